"""Two lines that connect a user's own script to a study: `with trivet.run() as run: run.log({...}, step=i)`.

Outside a study (no `TRIVET_RUN_DIR` in the environment) nothing is written and nothing fails.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from trivet.core.io import append_jsonl

VARIABLE = "TRIVET_RUN_DIR"
"""Set by a study for every run it starts."""


class UserRun:
    """One run of a user's script, as the study that started it sees it.

    Example:
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
            step: Whole number ≥ 0.

        Raises:
            TypeError: A value is not a number.
            ValueError: `step` is negative.
        """
        if step < 0:
            raise ValueError(f"`step={step}` must be ≥ 0")
        row: dict[str, float] = {}
        for name, value in metrics.items():
            try:
                row[name] = float(value)
            except (TypeError, ValueError):
                raise TypeError(f"metric {name!r} is {value!r}; give a number") from None
        if self.folder is not None:
            plain = {name: value if math.isfinite(value) else None for name, value in row.items()}
            append_jsonl(self.folder / "metrics.jsonl", [{"step": step, **plain}])

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
