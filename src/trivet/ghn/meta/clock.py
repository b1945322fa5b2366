"""Where a step's time goes: processor seconds, or seconds of the clock where a device computes apart from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Clock:
    """Adds up the time of named parts.

    Args:
        now: What tells the time in seconds: `time.process_time` counts what this process computes, undisturbed by
            others; on a GPU take one that waits for the device first.

    Examples:
        >>> ticks = iter([0.0, 2.0, 5.0, 6.0])
        >>> clock = Clock(lambda: next(ticks))
        >>> with clock("forward"): pass
        >>> with clock("forward"): pass
        >>> clock.take()
        {'forward': 3.0}
        >>> clock.take()
        {}
    """

    def __init__(self, now: Callable[[], float] = time.process_time) -> None:
        self.now = now
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Generator[None]:
        """Time what happens inside the `with` block."""
        start = self.now()
        try:
            yield
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + self.now() - start

    def take(self) -> dict[str, float]:
        """Seconds of each part since the last call."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds
