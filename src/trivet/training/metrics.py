"""The log of a run: one row a logged step in `metrics.jsonl`, cut back when a run resumes.

A row that was written after the last checkpoint is written again by the resumed run; without the cut it would
stand twice. Wall-clock seconds are the only thing in a row that may differ between equal runs.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path

from trivet.core.io import append_jsonl, read_jsonl, write_text

logger = logging.getLogger(__name__)


class MetricsLog:
    """Appends rows to one JSON-lines file.

    Examples:
        >>> import tempfile
        >>> log = MetricsLog(Path(tempfile.mkdtemp()) / "metrics.jsonl")
        >>> log.write(1, {"train_loss": 2.0}); log.write(2, {"train_loss": 1.0})
        >>> log.cut(1); read_jsonl(log.path)
        [{'step': 1, 'train_loss': 2.0}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one row. A value that is not finite is left out, with a warning in the log.

        Args:
            step: Optimiser steps done so far.
            values: Name → number.
        """
        row: dict[str, float] = {"step": step}
        for name, value in values.items():
            if math.isfinite(value):
                row[name] = value
            else:
                logger.warning("step %d: %s is %s; it is left out of %s", step, name, value, self.path.name)
        append_jsonl(self.path, [row])

    def cut(self, last_step: int) -> None:
        """Drop rows after `last_step` and any torn line, atomically; `last_step=0` empties the log."""
        if not self.path.exists():
            return
        kept = [row for row in read_jsonl(self.path) if row.get("step", math.inf) <= last_step]
        write_text(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept))
