"""With which parameters the arms began, where a hypernetwork predicted them: how many, and which not, and why.

Read from the results of one finished run an arm, the one of the least seed: what can be predicted depends on the
network alone. Plain values; torch is not loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trivet.core.errors import RunFolderError
from trivet.core.runfolder import RunFolder
from trivet.report.numbers import count, number
from trivet.report.tables import Table

if TYPE_CHECKING:
    from trivet.study.results import Results

MOST_NAMES = 4
"""Tensors named for each reason; the others are counted."""


def starts(results: Results) -> list[dict[str, Any]]:
    """One row for each arm that began with predicted parameters; none where no arm did.

    Args:
        results: Records of the study.

    Returns:
        Rows with `arm`, `method`, `ghn`, `tensors`, `predicted_tensors`, `parameters`, `predicted_parameters` and
        `kept`, reason → names of the tensors that kept what they had.
    """
    rows: dict[str, dict[str, Any]] = {}
    tried: set[str] = set()
    for record in sorted(results.records, key=lambda record: record.seed):
        if record.state != "finished" or record.arm in tried:
            continue
        tried.add(record.arm)
        found = _initial(RunFolder(record.folder))
        if found:
            rows[record.arm] = {"arm": record.arm, **found}
    return [rows[arm] for arm in results.arms if arm in rows]


def _initial(folder: RunFolder) -> Mapping[str, Any] | None:
    try:
        result = folder.read_result_or_none()
    except (RunFolderError, OSError):
        return None
    found = result.extra.get("init") if result is not None and isinstance(result.extra, Mapping) else None
    return found if isinstance(found, Mapping) else None


def starts_table(rows: list[Mapping[str, Any]], marks: Mapping[str, str] | None = None) -> Table:
    """How much of each arm's network a hypernetwork predicted, and what it left.

    Examples:
        >>> row = {"arm": "ghn", "method": "default", "ghn": "fashion-small", "tensors": 3, "predicted_tensors": 2}
        >>> row |= {"parameters": 100, "predicted_parameters": 90, "kept": {"a word": ["embedding.weight"]}}
        >>> starts_table([row]).rows[0][1:]
        ('fashion-small', '2 of 3', '90 %', 'embedding.weight: a word')
    """
    return Table(
        title="Initial parameters that were predicted",
        headers=("arm", "hypernetwork", "tensors", "parameters", "kept their own values, and why"),
        rows=tuple(
            (
                row["arm"],
                row["ghn"] + ("" if row["method"] == "default" else f", {row['method']}"),
                f"{row['predicted_tensors']} of {row['tensors']}",
                f"{number(100 * row['predicted_parameters'] / max(1, row['parameters']), 0)} %",
                "; ".join(f"{_names(names)}: {reason}" for reason, names in row["kept"].items()) or "none",
            )
            for row in rows
        ),
        numeric=frozenset((2, 3)),
        marks=marks,
    )


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    rest = len(names) - MOST_NAMES
    return f"{shown} and {count(rest, 'more', 'more')}" if rest > 0 else shown
