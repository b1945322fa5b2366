"""Sentence pairs from WordNet, as a stand-in for textual entailment: does the definition describe a kind of X?

    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb wordnet-base
    python benchmarks/wordnet_pairs.py wordnet-base/usr/share/wordnet --out wordnet

Premise: the definition of a noun, without examples. Hypothesis: "a kind of X", X the first word of its hypernym (label
yes), or of the hypernym of another noun of the same field that is no ancestor of it (no). Nouns are split 80 : 10 : 10
by the SHA-256 of their offsets, and negatives are drawn inside a part, so that X alone tells next to nothing: each
positive X of a part is as likely as a negative one. Written are train.jsonl, valid.jsonl and test.jsonl.

Not covered: verbs, adjectives; senses (a word that is ambiguous stays so).
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Noun(NamedTuple):
    field: str
    word: str
    parents: tuple[str, ...]
    definition: str


def read_nouns(path: Path) -> dict[str, Noun]:
    """Nouns of WordNet's data.noun by their offsets."""
    nouns: dict[str, Noun] = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        if line.startswith("  "):
            continue  # the licence
        left, _, gloss = line.partition(" | ")
        parts = left.split()
        words = int(parts[3], 16)
        pointers = parts[5 + 2 * words :]
        parents = tuple(
            pointers[i + 1] for i in range(0, 4 * int(parts[4 + 2 * words]), 4) if pointers[i] in ("@", "@i")
        )
        nouns[parts[0]] = Noun(parts[1], parts[4].replace("_", " "), parents, gloss.split("; ")[0].strip().rstrip(";"))
    return nouns


def ancestors(nouns: dict[str, Noun], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for parent in nouns[waiting.pop()].parents:
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def pairs(nouns: dict[str, Noun], limit: int) -> dict[str, list[dict[str, str]]]:
    """Rows of the three parts, a positive and a negative for each noun that has a definition and a hypernym."""
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for offset in sorted(nouns, key=digest):
        if nouns[offset].parents and nouns[offset].definition:
            place = digest(f"part/{offset}") % 10
            parts["test" if place == 0 else "valid" if place == 1 else "train"].append(offset)
    found: dict[str, list[dict[str, str]]] = {}
    for part, members in parts.items():
        members = members[: (limit if part == "train" else limit // 8) or None]
        fields: dict[str, list[str]] = {}
        for offset in members:
            fields.setdefault(nouns[offset].field, []).append(nouns[offset].parents[0])
        rows = []
        for offset in members:
            noun, above = nouns[offset], ancestors(nouns, offset)
            names = {nouns[parent].word for parent in above} | {noun.word}
            others = fields[noun.field]
            start = digest(f"negative/{offset}")
            tries = (others[(start + 7919 * k) % len(others)] for k in range(50))
            other = next((item for item in tries if item not in above and nouns[item].word not in names), None)
            if other is not None:
                for parent, label in ((noun.parents[0], "yes"), (other, "no")):
                    word = nouns[parent].word
                    rows.append({"premise": noun.definition, "hypothesis": f"a kind of {word}", "label": label})
        found[part] = rows
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with data.noun")
    parser.add_argument("--out", type=Path, default=Path("wordnet"))
    parser.add_argument("--nouns", type=int, default=0, help="use so many nouns for training; 0 uses all")
    options = parser.parse_args(arguments)
    if not (options.folder / "data.noun").is_file():
        raise SystemExit(f"{options.folder}: found no data.noun; give the folder of WordNet's files")
    options.out.mkdir(parents=True, exist_ok=True)
    for part, rows in pairs(read_nouns(options.folder / "data.noun"), options.nouns).items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (options.out / f"{part}.jsonl").write_text(text, encoding="utf-8")
        print(f"{part}: {len(rows):,} pairs")


if __name__ == "__main__":
    main()
