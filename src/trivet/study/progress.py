"""What a study tells while it runs: a protocol for whoever shows it, and one that logs plain lines."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trivet.study.plan import PlannedRun
from trivet.study.record import Record

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveRun:
    """A run that is going on now; its live metrics are in `folder/metrics.jsonl`."""

    run: PlannedRun
    """What runs."""
    folder: Path
    """Its run folder."""
    seconds: float
    """Since it was started."""
    gpu: str
    """The GPU it may use; empty on CPU."""


class Progress(Protocol):
    """Told what happens, from the thread that called `Study.run`; must return quickly."""

    def begin(self, total: int, done: int, slots: int) -> None:
        """The study starts: runs planned, runs done already, runs at the same time."""
        ...

    def started(self, run: PlannedRun, attempt: int) -> None:
        """A run is started; `attempt` is 1, or 2 after it was killed by a signal."""
        ...

    def ended(self, record: Record) -> None:
        """A run has come to rest in the state of its record."""
        ...

    def tick(self, active: Sequence[ActiveRun]) -> None:
        """Comes about every half second."""
        ...

    def message(self, text: str) -> None:
        """Something the user should read."""
        ...

    def end(self) -> None:
        """Nothing comes after this."""
        ...


class LogProgress:
    """Logs one plain line an event: the default.

    Examples:
        >>> LogProgress().begin(total=8, done=0, slots=2)
    """

    def __init__(self) -> None:
        self._total = 0
        self._done = 0

    def begin(self, total: int, done: int, slots: int) -> None:
        """See `Progress`."""
        self._total, self._done = total, done
        _log.info("%d runs, %d done already, %d at the same time", total, done, slots)

    def started(self, run: PlannedRun, attempt: int) -> None:
        """See `Progress`."""
        again = " again" if attempt > 1 else ""
        _log.info("started%s %s: %s, seed %d", again, run.run_id, run.arm, run.seed)

    def ended(self, record: Record) -> None:
        """See `Progress`."""
        self._done += record.is_done
        reason = f" ({record.reason})" if record.reason else ""
        _log.info(
            "%d/%d %s %s: %s, seed %d%s",
            self._done,
            self._total,
            record.state,
            record.run_id,
            record.arm,
            record.seed,
            reason,
        )

    def tick(self, active: Sequence[ActiveRun]) -> None:
        """See `Progress`."""

    def message(self, text: str) -> None:
        """See `Progress`."""
        _log.warning("%s", text)

    def end(self) -> None:
        """See `Progress`."""
