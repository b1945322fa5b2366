"""An outside figure for the language-model task: the perplexity of word counts on the same words of the same text.

    python benchmarks/ngram.py kjv.txt --vocabulary 3000 --min-count 3 --held-out 0.02

Unigram: p(w) = (n(w) + 1) / (N + V). Bigram, interpolated with absolute discounting (d = 0.75):

    p(w | v) = max(n(v, w) − d, 0) / n(v) + d · u(v) / n(v) · p(w)

n counts occurrences in the training part, u(v) the different words seen after v; p(w) stands alone after a word never
seen. The sum over w is 1. The options mean what they mean in a study file, so the test words are those of the task.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from trivet.tasks.data.text import TextData, load_text

DISCOUNT = 0.75
END = 1


def perplexities(text: TextData) -> tuple[float, float]:
    """Perplexity of the test part under the unigram and the bigram model."""
    size = len(text.vocabulary)
    counts = np.bincount(text.train, minlength=size).astype(float)
    unigram = (counts + 1) / (counts.sum() + size)
    before, after = _pairs(text.train)
    pairs, times = np.unique(before * size + after, return_counts=True)
    contexts = np.bincount(before, minlength=size).astype(float)
    different = np.bincount(pairs // size, minlength=size)

    before, after = _pairs(text.test)
    wanted = before * size + after
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    seen = np.where(pairs[place] == wanted, times[place], 0)
    total = np.maximum(contexts[before], 1)
    weight = np.where(contexts[before] > 0, DISCOUNT * different[before] / total, 1.0)
    bigram = np.maximum(seen - DISCOUNT, 0) / total + weight * unigram[after]
    return _perplexity(unigram[text.test]), _perplexity(bigram)


def _pairs(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each word with the one before it; the end of a line stands before the first."""
    return np.concatenate(([END], words[:-1])).astype(np.int64), words.astype(np.int64)


def _perplexity(chances: np.ndarray) -> float:
    return math.exp(-float(np.mean(np.log(chances))))


def main() -> None:
    """Print both perplexities."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--split-by", default="words")
    parser.add_argument("--vocabulary", type=int, default=0)
    parser.add_argument("--min-count", type=int, default=1)
    parser.add_argument("--held-out", type=float, default=0.1)
    given = parser.parse_args()
    text = load_text(
        given.data,
        split_by=given.split_by,
        vocabulary=given.vocabulary,
        min_count=given.min_count,
        held_out=given.held_out,
    )
    unigram, bigram = perplexities(text)
    print(
        f"{text.source}: {len(text.vocabulary):,} words told apart; {len(text.train):,} words train, "
        f"{len(text.valid):,} validate, {len(text.test):,} test, {text.unknown('test'):.2%} of them <unk>"
    )
    print(f"test perplexity: unigram {unigram:.1f}, bigram {bigram:.1f}")


if __name__ == "__main__":
    main()
