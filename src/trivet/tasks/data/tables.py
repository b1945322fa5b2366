"""Rows of labelled documents as tables hold them: .csv and .tsv by the names in their first line, .jsonl by its keys.

Not covered: what a row must hold (`documents`), other separators, which are refused with a hint.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trivet.core.errors import describe, nearest
from trivet.tasks.data.errors import UnusableDataError

SEPARATORS = (";", "\t", "|", ",")
"""What stands between columns where the ending of the name says otherwise."""
RENAMED = {"\t": ".tsv", ",": ".csv"}

MAX_FIELD = 2**31 - 1
"""Longest text of a .csv file, in characters."""


class Columns(NamedTuple):
    """Names of the columns that are read."""

    text: str
    """The document, or the first of a pair."""
    pair: str
    """The second of a pair; empty where documents are single."""
    label: str
    """Its class."""


def read_csv(path: Path, columns: Columns) -> Iterator[tuple[int, Any, Any, Any]]:
    """Number of the line, text, second text or None, and label of each row of a .csv or .tsv file, unchecked.

    Raises:
        UnusableDataError: Another separator, a column that is not there or there twice, a row of another width.
        UnicodeDecodeError: No UTF-8.
        csv.Error: Quotes that do not close.
    """
    csv.field_size_limit(MAX_FIELD)
    quotes = csv.QUOTE_NONE if path.suffix == ".tsv" else csv.QUOTE_MINIMAL
    with path.open(encoding="utf-8-sig", newline="") as file:
        _check_separator(path, file.readline())
        file.seek(0)
        reader = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", quoting=quotes, strict=True)
        header = [name.strip() for name in next(reader, [])]
        places = [_place(path, header, name) for name in columns if name]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise UnusableDataError(
                    f"{path}: line {reader.line_num} has {len(row)} columns; allowed: {len(header)}, as in line 1; "
                    "put a text with a comma in quotes"
                )
            values = [row[place] for place in places]
            yield reader.line_num, values[0], values[1] if columns.pair else None, values[-1]


def _check_separator(path: Path, first: str) -> None:
    wanted, kind = ("\t", "tabs") if path.suffix == ".tsv" else (",", "commas")
    other = next((mark for mark in SEPARATORS if mark in first), "")
    if wanted not in first and other:
        rename = f", or call it {path.stem}{RENAMED[other]}" if other in RENAMED else ""
        raise UnusableDataError(
            f"{path}: line 1 is {first.strip()[:80]!r}; found columns separated by {other!r}; allowed in a "
            f"{path.suffix} file: {kind}; write it anew{rename}"
        )


def _place(path: Path, header: Sequence[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    close = nearest(name, header)
    fix = f"did you mean {close!r}? " if close and close != name else ""
    raise UnusableDataError(
        f"{path}: line 1 has {header.count(name)} columns called {name!r}; found {', '.join(header) or 'nothing'}; "
        f"{fix}say which with text_column, pair_column and label_column"
    )


def read_lines(path: Path, columns: Columns) -> Iterator[tuple[int, Any, Any, Any]]:
    """The same of a .jsonl file.

    Raises:
        UnusableDataError: A line is no JSON object, or lacks a column.
        UnicodeDecodeError: No UTF-8.
    """
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UnusableDataError(f"{path}: line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise UnusableDataError(f"{path}: line {number} is {describe(row)}; allowed: an object with columns")
            lacking = [name for name in columns if name and name not in row]
            if lacking:
                raise UnusableDataError(
                    f"{path}: line {number} has no {lacking[0]!r}; found {', '.join(row) or 'nothing'}; "
                    "say which with text_column, pair_column and label_column"
                )
            yield number, row[columns.text], row[columns.pair] if columns.pair else None, row[columns.label]
