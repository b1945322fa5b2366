"""What the harness costs: how much of the slots' time went into training, and where the rest went.

efficiency = Σ (a run's own training seconds × its share of a slot) / (slots × wall seconds of `run`), measured in one
invocation. The rest is waiting for the warm server, overhead of each run (start, data, evaluation, writing), and slots
that stood empty (the tail, when fewer runs than slots are left).

Not covered: time of runs that were stopped and of orphans of an earlier parent; it counts as overhead or as empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Harness:
    """Accounts of one or several invocations of `run`; all in seconds of a slot, measured.

    Examples:
        >>> harness = Harness(runs=4, slots=2, wall=10, slot_seconds=20, train=16, waiting=2, overhead=1)
        >>> harness.efficiency, harness.idle
        (0.8, 1)
        >>> print(harness)
        80 % of 20.0 slot-seconds (2 slots × 10.0 s, 4 runs) was training; waiting for the warm server 10 %, \
overhead of runs 5 %, empty slots 5 %
    """

    runs: int
    """Runs that were started."""
    slots: int
    """Slots of the last invocation."""
    wall: float
    """Wall seconds of `run`."""
    slot_seconds: float
    """Slots × wall seconds."""
    train: float
    """The runs' own training seconds."""
    waiting: float
    """From asking for a run to the start of its process: mostly the server's import of torch."""
    overhead: float
    """Life of the processes, less training."""

    @property
    def efficiency(self) -> float:
        """Share of the slots' time that was training; 0 when nothing ran."""
        return self.train / self.slot_seconds if self.slot_seconds > 0 else 0.0

    @property
    def idle(self) -> float:
        """Slot-seconds in which a slot stood empty."""
        return max(0.0, self.slot_seconds - self.train - self.waiting - self.overhead)

    def to_dict(self) -> dict[str, float]:
        """All figures, for JSON."""
        return {
            "runs": self.runs,
            "slots": self.slots,
            "wall": self.wall,
            "slot_seconds": self.slot_seconds,
            "train": self.train,
            "waiting": self.waiting,
            "overhead": self.overhead,
            "idle": self.idle,
            "efficiency": self.efficiency,
        }

    def __str__(self) -> str:
        def share(seconds: float) -> str:
            return f"{100 * seconds / self.slot_seconds:.0f} %" if self.slot_seconds else "0 %"

        slots = f"{self.slots} slot" + ("s" if self.slots != 1 else "")
        runs = f"{self.runs} run" + ("s" if self.runs != 1 else "")
        return (
            f"{share(self.train)} of {self.slot_seconds:.1f} slot-seconds ({slots} × {self.wall:.1f} s, {runs}) was "
            f"training; waiting for the warm server {share(self.waiting)}, overhead of runs {share(self.overhead)}, "
            f"empty slots {share(self.idle)}"
        )


def harness_of(history: Sequence[Mapping[str, Any]]) -> Harness | None:
    """Accounts of all invocations that started a run, summed; None when there was none.

    Args:
        history: Rows of history.jsonl.
    """
    rows = [row["harness"] for row in history if row.get("event") == "run" and _is_harness(row.get("harness"))]
    rows = [row for row in rows if row["runs"]]
    if not rows:
        return None

    def total(name: str) -> float:
        return sum(float(row[name]) for row in rows)

    return Harness(
        runs=int(total("runs")),
        slots=int(rows[-1]["slots"]),
        wall=total("wall"),
        slot_seconds=total("slot_seconds"),
        train=total("train"),
        waiting=total("waiting"),
        overhead=total("overhead"),
    )


_NUMBERS = ("runs", "slots", "wall", "slot_seconds", "train", "waiting", "overhead")


def _is_harness(content: object) -> bool:
    return isinstance(content, Mapping) and all(isinstance(content.get(name), int | float) for name in _NUMBERS)
