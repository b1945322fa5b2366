"""How long the steps at each number of bits really take.

Wall time from one `PrecisionController.step` to the next, booked under the bits that were in force. A step during which
the model was evaluated (`PrecisionController.at`) is left out, and so is the first one.

Not covered: time that a training loop spends between steps on other things; it is counted with the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class LevelTime(NamedTuple):
    """Steps at one number of bits."""

    steps: int
    """Steps timed."""
    mean: float
    """Seconds a step."""


class LevelClock:
    """Books wall time under bits.

    Examples:
        >>> ticks = iter([0.0, 1.0, 4.0])
        >>> clock = LevelClock(lambda: next(ticks))
        >>> for bits in (8, 8, 16):
        ...     clock.book(bits)
        >>> clock.times()
        {8: LevelTime(steps=1, mean=1.0), 16: LevelTime(steps=1, mean=3.0)}
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._last: float | None = None
        self._sums: dict[int, tuple[int, float]] = {}

    def book(self, bits: int) -> None:
        """A step at these bits has ended."""
        now = self._now()
        if self._last is not None:
            steps, seconds = self._sums.get(bits, (0, 0.0))
            self._sums[bits] = (steps + 1, seconds + now - self._last)
        self._last = now

    def skip(self) -> None:
        """What happens until the end of this step is not part of it."""
        self._last = None

    def times(self) -> dict[int, LevelTime]:
        """Bits → time of their steps, fewest bits first."""
        return {bits: LevelTime(steps, total / steps) for bits, (steps, total) in sorted(self._sums.items())}
