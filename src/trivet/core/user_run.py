"""Two lines that connect a user's own script to a study: `with trivet.run() as run: run.log({...}, step=i)`.

Outside a study (no `TRIVET_RUN_DIR` in the environment) nothing is written and nothing fails.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from trivet.core.io import append_jsonl

VARIABLE = "TRIVET_RUN_DIR"
"""Set by a study for every run it starts."""

RESERVED = ("step", "seconds")
"""Columns of metrics.jsonl that are no metrics."""

MAX_STEP = 2**63 - 1
"""Largest step: what 64 bits hold."""


def _whole(step: int) -> int:
    """`step` as an int; a number type of a library's own (numpy's, a 0-dimensional tensor) counts when it is whole."""
    try:
        number = operator.index(step)
    except TypeError:
        number = None
    if number is None or isinstance(step, bool):
        raise TypeError(f"`step={step!r}` must be a whole number; such as step=100")
    if not 0 <= number <= MAX_STEP:
        shown = str(number) if abs(number) < 10**30 else "a number of more than 30 digits"
        raise ValueError(f"`step={shown}` must lie in [0, 2**63 - 1]")
    return number


class UserRun:
    """One run of a user's script, as the study that started it sees it.

    Examples:
        >>> with run() as r:
        ...     r.log({"loss": 0.5}, step=1)
        ...     r.active
        False
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @property
    def active(self) -> bool:
        """Whether a study is listening."""
        return self.folder is not None

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics at one step; the last value of each is the run's result.

        Args:
            metrics: Name → number. Not-a-number and infinity are kept as missing values.
            step: Whole number in [0, 2⁶³ − 1].

        Raises:
            TypeError: A value is not a number, or `step` is not a whole number.
            ValueError: `step` is out of range, or a metric has the name of something that is logged beside it.
        """
        number = _whole(step)
        reserved = [name for name in metrics if name in RESERVED]
        if reserved:
            raise ValueError(
                f"a metric cannot be called {reserved[0]!r}, which is a column of its own; choose another name, "
                f"such as 'my_{reserved[0]}'"
            )
        row: dict[str, float] = {}
        for name, value in metrics.items():
            try:
                row[name] = float(value)
            except (TypeError, ValueError):
                raise TypeError(f"metric {name!r} is {value!r}; give a number") from None
        if self.folder is not None:
            plain = {name: value if math.isfinite(value) else None for name, value in row.items()}
            append_jsonl(self.folder / "metrics.jsonl", [{"step": number, **plain}])

    def __enter__(self) -> UserRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def run() -> UserRun:
    """The run that this process belongs to, or one that does nothing outside a study."""
    folder = os.environ.get(VARIABLE)
    return UserRun(Path(folder) if folder else None)
