"""Text by path, as numbered words: a file, a folder of text files, or a folder that is split already. Loads no torch.

    FILE                                       any text in UTF-8
    FOLDER/**/*.txt                            several, in the order of their paths; hidden ones are left out
    FOLDER/train.txt, valid.txt, test.txt      split already (also ptb.train.txt … and wiki.train.tokens …)

Every line that holds a word ends in `<eos>`; empty lines are left out. The vocabulary is made from the training part
alone: `<unk>`, `<eos>`, then the words by falling number of occurrences, equal ones in alphabetical order; what is not
in it is `<unk>`. Where the text is not split, it is cut into 100 stretches of equal length; those for the test and for
validation are chosen by the SHA-256 of their numbers, the same ones on every machine.

Not covered: text larger than memory (a word takes four bytes), parts of words, other encodings.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from trivet.core.errors import MissingDataError
from trivet.core.places import files_below, find_place
from trivet.tasks.data.base import ROOT_HINT, roots
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.select import hash_ranked

UNKNOWN, END = "<unk>", "<eos>"
SPECIAL = (UNKNOWN, END)
"""First words of every vocabulary."""

SPLITS = ("train", "valid", "test")
PATTERNS = ("{}.txt", "ptb.{}.txt", "wiki.{}.tokens")
"""File names of a folder that is split already."""

STRETCHES = 100
"""Parts that a text is cut into to split it."""

_WORD = re.compile(r"<[a-z]+>|[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")


def words(line: str) -> list[str]:
    """Lower-case words and, apart, every mark of punctuation; an apostrophe inside a word belongs to it.

    Examples:
        >>> words("Don't go, <unk>: 3.5!")
        ["don't", 'go', ',', '<unk>', ':', '3', '.', '5', '!']
    """
    return _WORD.findall(line.lower())


SPLITTERS: dict[str, Callable[[str], list[str]]] = {"words": words, "spaces": str.split}
"""How a line becomes words: by `words`, or cut at white space alone (for a text that is prepared already)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextData:
    """A text as numbers of words.

    Examples:
        >>> ids = np.array([2, 1], np.int32)
        >>> text = TextData(source="x", vocabulary=("<unk>", "<eos>", "hello"), train=ids, valid=ids, test=ids)
        >>> text.unknown("test")
        0.0
    """

    source: str
    """File or folder."""
    vocabulary: tuple[str, ...]
    """Word of each number; `<unk>` is 0 and `<eos>` 1."""
    train: np.ndarray
    """int32 [N]."""
    valid: np.ndarray
    """int32 [V]."""
    test: np.ndarray
    """int32 [T]."""

    def unknown(self, split: str) -> float:
        """Share of `<unk>` in a split."""
        return float(np.mean(getattr(self, split) == 0))


def find_text(name: str) -> Path:
    """The file or folder that a name means: a path, looked up here and in the data roots when it is relative.

    Raises:
        MissingDataError: Nothing is there; says where it was looked for.
    """
    missing = f"text {name!r} is not on this machine"
    return find_place(
        name,
        roots(None),
        missing=missing,
        allowed="a text file, a folder of .txt files, or a folder with train.txt, valid.txt and test.txt",
        hint=ROOT_HINT,
    )


def load_text(
    name: str,
    *,
    split_by: str = "words",
    vocabulary: int = 0,
    min_count: int = 1,
    train_tokens: int = 0,
    held_out: float = 0.1,
) -> TextData:
    """Read a text.

    Args:
        name: Path of a file or folder, see the module.
        split_by: `words` or `spaces`, see `SPLITTERS`.
        vocabulary: Most words that are told apart, `<unk>` and `<eos>` included; 0 for no limit.
        min_count: Fewest occurrences in the training part of a word that is told apart.
        train_tokens: Use the first so many words of the training part; 0 for all.
        held_out: Share of the text for validation, and as much again for the test, where it is not split already.

    Raises:
        MissingDataError: Nothing is there, or a part of a split text is missing.
        UnusableDataError: A file is no text, a part is empty, or no two words are left to tell apart.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.txt"
        >>> _ = file.write_text("to be or not to be " * 50)
        >>> text = load_text(str(file))
        >>> text.vocabulary[:4], len(text.train), len(text.test)
        (('<unk>', '<eos>', 'be', 'to'), 241, 30)
    """
    found = find_text(name)
    files = _files(found)
    marks = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for part in files for path in part)
    counts = tuple(len(part) for part in files)
    return _load(str(found), marks, counts, split_by, vocabulary, min_count, train_tokens, held_out)


@lru_cache(maxsize=4)
def _load(
    source: str,
    marks: tuple[tuple[str, int, int], ...],
    counts: tuple[int, ...],
    split_by: str,
    vocabulary: int,
    min_count: int,
    train_tokens: int,
    held_out: float,
) -> TextData:
    """Kept, because a plan asks once an arm; the marks of the files notice a change."""
    paths = iter([Path(name) for name, _, _ in marks])
    numbers: dict[str, int] = {word: index for index, word in enumerate(SPECIAL)}
    parts = [_read([next(paths) for _ in range(count)], SPLITTERS[split_by], numbers) for count in counts]
    train, valid, test = parts if len(parts) == 3 else _split(parts[0], held_out)
    train = train[: train_tokens or None]
    for split, ids in zip(SPLITS, (train, valid, test), strict=True):
        if not len(ids):
            raise UnusableDataError(f"{source}: the {split} part holds no word; give a longer text")
    known = _vocabulary(list(numbers), train, vocabulary, min_count)
    if len(known) <= len(SPECIAL):
        raise UnusableDataError(
            f"{source}: no word occurs {min_count} times in the {len(train):,} words of the training part; "
            "lower `min_count` or give a longer text"
        )
    new = np.zeros(len(numbers), np.int32)
    for number, word in enumerate(known):
        new[numbers[word]] = number
    return TextData(source=source, vocabulary=known, train=new[train], valid=new[valid], test=new[test])


def _files(found: Path) -> list[list[Path]]:
    """Files of the three parts, or of the one text that is still to be split."""
    if found.is_file():
        return [[found]]
    for pattern in PATTERNS:
        parts = [found / pattern.format(split) for split in SPLITS]
        if parts[0].is_file():
            lacking = [path.name for path in parts if not path.is_file()]
            if lacking:
                raise MissingDataError(
                    f"text {str(found)!r}: found {parts[0].name} and no {' and no '.join(lacking)}; "
                    "allowed: all three parts, or files of other names, which are split by trivet"
                )
            return [[path] for path in parts]
    try:
        texts = sorted(files_below(found, (".txt",)))
    except OSError as error:
        raise UnusableDataError(f"{error.filename}: cannot be read ({error.strerror}); mend or remove it") from error
    if not texts:
        raise MissingDataError(f"text {str(found)!r}: the folder holds no .txt file")
    return [texts]


def _read(paths: Sequence[Path], split: Callable[[str], list[str]], numbers: dict[str, int]) -> np.ndarray:
    """Words of some files as numbers in the order of first sight; new words are added to `numbers`."""
    ids = array("i")
    for path in paths:
        for line in _lines(path):
            found = split(line)
            if found:
                ids.extend([numbers.setdefault(word, len(numbers)) for word in found])
                ids.append(1)
    return np.array(ids, np.int32)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if "\0" in line:
                    raise UnusableDataError(f"{path}: line {number} holds a zero byte; allowed: text in UTF-8")
                yield line
    except UnicodeDecodeError as error:
        raise UnusableDataError(no_utf8(path, error)) from error
    except OSError as error:
        raise UnusableDataError(f"{path}: cannot be read ({error.strerror})") from error


def no_utf8(path: Path, error: UnicodeDecodeError) -> str:
    """Message for a text in another encoding, with the command that converts it."""
    with path.open("rb") as file:
        origin = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "latin1"
    fix = f"convert it, such as iconv -f {origin} -t utf-8 {path.name}"
    return f"{path}: no text in UTF-8 ({error.reason}); {fix}"


def _split(ids: np.ndarray, held_out: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train, validation and test part of one text, each in the order of the text."""
    count = max(round(held_out * STRETCHES), 1)
    ranked = hash_ranked(np.arange(STRETCHES), "text")
    chosen = {"test": set(ranked[:count].tolist()), "valid": set(ranked[count : 2 * count].tolist())}
    edges = [round(index * len(ids) / STRETCHES) for index in range(STRETCHES + 1)]
    parts: dict[str, list[np.ndarray]] = {split: [ids[:0]] for split in SPLITS}
    for index in range(STRETCHES):
        split = next((name for name, members in chosen.items() if index in members), "train")
        parts[split].append(ids[edges[index] : edges[index + 1]])
    train, valid, test = (np.concatenate(parts[split]) for split in SPLITS)
    return train, valid, test


def _vocabulary(seen: list[str], train: np.ndarray, limit: int, min_count: int) -> tuple[str, ...]:
    counts = np.bincount(train, minlength=len(seen)).tolist()
    kept = [(-counts[i], word) for i, word in enumerate(seen) if word not in SPECIAL and counts[i] >= max(min_count, 1)]
    ordered = [word for _, word in sorted(kept)]
    return (*SPECIAL, *ordered[: limit - len(SPECIAL) if limit else None])
