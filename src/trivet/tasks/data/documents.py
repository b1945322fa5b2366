"""Labelled documents, or pairs of them, by path. Loads no torch.

    FOLDER/train.EXT, test.EXT (and valid.EXT, also called val, validation or dev)     split already
    FILE.csv, FILE.tsv, FILE.jsonl                                                     split by trivet
    FILE.json                  {"train": [[text, label], …], "val": […], "test": […]}, as CLINC150 is published

Columns are found by their names: in the first line of a .csv or .tsv file (a .tsv file has no quotes, as in GLUE), as
keys of every line of a .jsonl file. A label is a name or a whole number. Classes are those of the training part, in the
order of their names, or of their numbers where all are numbers; a label that the training part lacks is refused.

What is not split is split class by class, 80 : 10 : 10, by the SHA-256 of the rows' numbers, the same rows on every
machine. Where only validation is missing, a tenth of the training part becomes it.

Refused, with file and line: an empty text, a line with more or fewer columns than the first, a negative number as
label (how hidden labels are marked), text that is not UTF-8. Texts that occur in the training and in another part are
kept and counted, see `Documents.shared`.

Not covered: several labels a document, grades in place of classes, data larger than memory.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trivet.core.errors import MissingDataError, describe, nearest
from trivet.core.places import find_place
from trivet.tasks.data.base import ROOT_HINT, roots
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.select import hash_ranked, split_by_class
from trivet.tasks.data.tables import Columns, read_csv, read_lines
from trivet.tasks.data.text import no_utf8

ALLOWED = "a .csv, .tsv, .jsonl or .json file, or a folder with train.csv and test.csv (or .tsv, .jsonl)"
TABLES = (".csv", ".tsv", ".jsonl")
VALID = ("valid", "val", "validation", "dev")
"""Names of a validation part."""

HELD_OUT = 0.1
"""Share of a part that is split off."""

MAX_LABEL = 200
"""Longest label, in characters."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?\d+")


class Part(NamedTuple):
    """Documents of one part."""

    texts: tuple[str, ...]
    """Documents, or the first of each pair."""
    pairs: tuple[str, ...]
    """The second of each pair; empty where documents are single."""
    labels: np.ndarray
    """Class of each, int64 [N]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """A set of labelled documents.

    Examples:
        >>> part = Part(("hello", "bye"), (), np.array([0, 1]))
        >>> found = Documents(source="x", classes=("greet", "leave"), train=part, valid=part, test=part)
        >>> found.shared("test"), found.is_paired
        (2, False)
    """

    source: str
    """File or folder."""
    classes: tuple[str, ...]
    """Name of each class."""
    train: Part
    """To learn from."""
    valid: Part
    """For choices."""
    test: Part
    """For the result."""
    left_out: tuple[str, ...] = ()
    """Other parts that the file holds and that are not used."""

    @property
    def is_paired(self) -> bool:
        """Whether two texts are classified together."""
        return bool(self.train.pairs)

    def shared(self, name: str) -> int:
        """How many documents of a part occur in the training part too, apart from case and white space."""
        seen = set(_normal(self.train))
        return sum(document in seen for document in _normal(getattr(self, name)))

    def describe(self) -> str:
        """Sizes, classes, and what is worth a look."""
        kind = "pairs of texts" if self.is_paired else "texts"
        sizes = f"{len(self.train.labels):,} + {len(self.valid.labels):,} + {len(self.test.labels):,} {kind}"
        shared = f"{self.shared('valid')} of validation and {self.shared('test')} of the test occur in training"
        rest = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        return f"{self.source}: {sizes} for training, validation and test, {len(self.classes)} classes; {shared}{rest}"


def _normal(part: Part) -> Iterator[tuple[str, ...]]:
    columns = [part.texts, part.pairs] if part.pairs else [part.texts]
    for row in zip(*columns, strict=True):
        yield tuple(" ".join(text.casefold().split()) for text in row)


def find_documents(name: str) -> Path:
    """The file or folder that a name means: a path, looked up here and in the data roots when it is relative.

    Raises:
        MissingDataError: Nothing is there; says where it was looked for.
    """
    missing = f"documents {name!r} are not on this machine"
    return find_place(name, roots(None), missing=missing, allowed=ALLOWED, hint=ROOT_HINT)


def load_documents(name: str, *, text: str = "text", pair: str = "", label: str = "label") -> Documents:
    r"""Read labelled documents.

    Args:
        name: Path of a file or folder, see the module.
        text: Column of the document, or of the first of a pair.
        pair: Column of the second of a pair; empty where documents are single.
        label: Column of the class.

    Raises:
        MissingDataError: Nothing is there, or a part is missing.
        UnusableDataError: It is there and cannot be used; says where and why.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = file.write_text("text,label\n" + "good film,1\nbad film,0\n" * 10)
        >>> found = load_documents(str(file))
        >>> found.classes, len(found.train.labels), len(found.test.labels)
        (('0', '1'), 16, 2)
    """
    found = find_documents(name)
    files = _files(found)
    marks = tuple((part, str(path), path.stat().st_size, path.stat().st_mtime_ns) for part, path in files.items())
    return _load(str(found), marks, Columns(text, pair, label))


@lru_cache(maxsize=4)
def _load(source: str, marks: tuple[tuple[str, str, int, int], ...], columns: Columns) -> Documents:
    """Kept, because a plan asks once an arm; the marks of the files notice a change."""
    left_out: tuple[str, ...] = ()
    if len(marks) == 1 and source.endswith(".json"):
        rows, left_out = _read_json(Path(source), columns)
    else:
        rows = {part: _read_table(Path(path), columns) for part, path, _, _ in marks}
    for part, found in rows.items():
        if not found:
            where = source if part == "all" else f"{source}: the {part} part"
            raise UnusableDataError(f"{where} holds no document; allowed: one or more")
    classes = _classes(rows.get("train", rows.get("all", [])), source)
    parts = {part: _numbered(found, classes, columns) for part, found in rows.items()}
    if "all" in parts:
        everything = parts.pop("all")
        rest, test = _split(everything, 0.2, "documents/held-out")
        held = _take(everything, test)
        valid, tested = _split(held, 0.5, "documents/test")
        parts = {"train": _take(everything, rest), "valid": _take(held, valid), "test": _take(held, tested)}
    elif "valid" not in parts:
        kept, valid = _split(parts["train"], HELD_OUT, "documents/valid")
        parts |= {"train": _take(parts["train"], kept), "valid": _take(parts["train"], valid)}
    for part, found in parts.items():
        if not len(found.labels):
            raise UnusableDataError(f"{source}: too few documents for a {part} part; allowed: ten or more a class")
    return Documents(source=source, classes=tuple(classes), left_out=left_out, **parts)


def _split(part: Part, share: float, salt: str) -> tuple[np.ndarray, np.ndarray]:
    if not len(part.labels):
        return np.arange(0), np.arange(0)
    return split_by_class(part.labels, test_share=share, salt=salt)


def _take(part: Part, chosen: np.ndarray) -> Part:
    texts, pairs = (tuple(column[i] for i in chosen) if column else () for column in (part.texts, part.pairs))
    return Part(texts, pairs, part.labels[chosen])


def subset(part: Part, count: int, salt: str) -> Part:
    """So many documents of a part, the same ones for every seed; all of them for 0.

    Examples:
        >>> subset(Part(("a", "b", "c"), (), np.array([0, 1, 0])), 2, "x").texts
        ('a', 'b')
    """
    available = len(part.labels)
    return _take(part, np.sort(hash_ranked(np.arange(available), salt)[:count])) if 0 < count < available else part


class Row(NamedTuple):
    """One document as it is written."""

    where: str
    text: str
    pair: str
    label: str


def _files(found: Path) -> dict[str, Path]:
    """Files by the part that they hold; `all` for one that is not split."""
    if found.is_file():
        if found.suffix not in (*TABLES, ".json"):
            raise UnusableDataError(f"{found}: found a {found.suffix or 'nameless'} file; allowed: {ALLOWED}")
        return {"all": found}
    for suffix in TABLES:
        if (found / f"train{suffix}").is_file():
            files = {"train": found / f"train{suffix}", "test": found / f"test{suffix}"}
            if not files["test"].is_file():
                raise MissingDataError(f"documents {str(found)!r}: found train{suffix} and no test{suffix}")
            for name in VALID:
                if (found / f"{name}{suffix}").is_file():
                    return files | {"valid": found / f"{name}{suffix}"}
            return files
    raise MissingDataError(f"documents {str(found)!r}: the folder holds no train.csv, train.tsv or train.jsonl")


def _read_table(path: Path, columns: Columns) -> list[Row]:
    rows = read_lines(path, columns) if path.suffix == ".jsonl" else read_csv(path, columns)
    try:
        return [_checked(path, *row) for row in rows]
    except UnicodeDecodeError as error:
        raise UnusableDataError(no_utf8(path, error)) from error
    except (csv.Error, OSError) as error:
        raise UnusableDataError(f"{path}: cannot be read ({error})") from error


def _read_json(path: Path, columns: Columns) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError, OSError) as error:  # a UnicodeDecodeError is a ValueError
        raise UnusableDataError(f"{path}: no JSON in UTF-8: {error}") from error
    valid = next((name for name in VALID if isinstance(content, Mapping) and name in content), "")
    if not isinstance(content, Mapping) or not {"train", "test"} <= set(content):
        allowed = '{"train": [[text, label], …], "test": […]}, and "val" where there is one'
        raise UnusableDataError(f"{path}: found {describe(content)[:80]}; allowed: {allowed}")
    names = {"train": "train", "test": "test"} | ({"valid": valid} if valid else {})
    width = 3 if columns.pair else 2
    rows: dict[str, list[Row]] = {}
    for part, name in names.items():
        if not isinstance(content[name], list):
            raise UnusableDataError(f"{path}: {name} is {describe(content[name])[:80]}; allowed: a list")
        rows[part] = []
        for number, row in enumerate(content[name], 1):
            if not isinstance(row, list) or len(row) != width:
                wanted = "[text, second text, label]" if columns.pair else "[text, label]"
                raise UnusableDataError(f"{path}: {name} {number} is {describe(row)[:80]}; allowed: {wanted}")
            rows[part].append(_checked(path, f"{name} {number}", row[0], row[1] if columns.pair else None, row[-1]))
    left = tuple(_with_size(name, content[name]) for name in content if name not in names.values())
    return rows, left


def _with_size(name: str, content: Any) -> str:
    return f"{name} ({len(content)})" if isinstance(content, list) else name


def _checked(path: Path, line: int | str, text: Any, pair: Any, label: Any) -> Row:
    """One row whose texts hold something and whose label is a name or a number."""
    where = f"{path}: line {line}" if isinstance(line, int) else f"{path}: {line}"
    for value in (text,) if pair is None else (text, pair):
        if not isinstance(value, str):
            raise UnusableDataError(f"{where} holds {describe(value)} in place of a text; allowed: text")
        if not value.strip():
            raise UnusableDataError(f"{where} holds an empty text; fill it or take the line out")
        if "\0" in value or _SURROGATE.search(value):
            kind = "a zero byte" if "\0" in value else "half a surrogate pair (\\ud800 to \\udfff)"
            raise UnusableDataError(f"{where} holds {kind}; allowed: text in UTF-8")
    if isinstance(label, bool) or not isinstance(label, (str, int)) or not str(label).strip():
        raise UnusableDataError(f"{where} has the label {describe(label)}; allowed: a name or a whole number")
    name = str(label).strip()
    if len(name) > MAX_LABEL or _SURROGATE.search(name):
        raise UnusableDataError(
            f"{where} has a label that is no name ({name[:20]!r} …); allowed: {MAX_LABEL} characters"
        )
    if _NUMBER.fullmatch(name) and int(name) < 0:
        raise UnusableDataError(f"{where} has the label {name}; allowed: whole numbers ≥ 0 (−1 marks a hidden label)")
    return Row(where, text, pair or "", name)


def _classes(rows: Sequence[Row], source: str) -> dict[str, int]:
    """Number of each class."""
    names = {row.label for row in rows}
    if len(names) < 2:
        raise UnusableDataError(f"{source}: found one class, {min(names)!r}, in training; allowed: two or more")
    numeric = all(_NUMBER.fullmatch(name) for name in names)
    if not numeric and all(_is_number(name) for name in names):
        row = next(row for row in rows if not _NUMBER.fullmatch(row.label))
        raise UnusableDataError(
            f"{row.where} has the label {row.label!r}, and all labels are numbers; allowed: whole numbers; grades are "
            "no classes, and a document without a label must be left out"
        )
    ordered = sorted(names, key=lambda name: (int(name), name)) if numeric else sorted(names)
    return {name: number for number, name in enumerate(ordered)}


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _numbered(rows: Sequence[Row], classes: Mapping[str, int], columns: Columns) -> Part:
    for row in rows:
        if row.label not in classes:
            close = nearest(row.label, classes)
            fix = f"; did you mean {close!r}?" if close else ""
            raise UnusableDataError(
                f"{row.where} has the label {row.label!r}; allowed: one of the {len(classes)} classes of training{fix}"
            )
    labels = np.array([classes[row.label] for row in rows], np.int64)
    return Part(tuple(row.text for row in rows), tuple(row.pair for row in rows) if columns.pair else (), labels)
