"""How long the rest of a study will take: the mean time of the runs that ended, by arm where there are any.

    left = (Σ expected time of runs to come + Σ rest of those running) / slots

Not covered: runs whose time depends on anything but their arm, and a machine whose load changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping


class TimeLeft:
    """Collects durations and turns them into seconds left.

    Examples:
        >>> clock = TimeLeft(slots=2)
        >>> clock.add("a", 10.0)
        >>> clock.left({"a": 4}, running=[("a", 4.0)])
        23.0
    """

    def __init__(self, slots: int) -> None:
        self.slots = max(slots, 1)
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def add(self, arm: str, seconds: float) -> None:
        """A run of `arm` ended after this many seconds."""
        self._seconds[arm].append(seconds)

    def expected(self, arm: str) -> float | None:
        """Seconds a run of `arm` takes, or None while nothing is known."""
        known = self._seconds.get(arm) or [value for values in self._seconds.values() for value in values]
        return sum(known) / len(known) if known else None

    def left(self, waiting: Mapping[str, int], running: list[tuple[str, float]]) -> float | None:
        """Seconds until everything has ended.

        Args:
            waiting: Arm → runs that have not been started.
            running: Arm and seconds since its start of each run that is going on.
        """
        if not self._seconds:
            return None
        to_come = sum((self.expected(arm) or 0.0) * count for arm, count in waiting.items())
        rest = [max((self.expected(arm) or 0.0) - gone, 0.0) for arm, gone in running]
        total = (to_come + sum(rest)) / self.slots
        return max([total, *rest])


def duration(seconds: float) -> str:
    """Seconds as a person reads them.

    Examples:
        >>> duration(7.2), duration(95), duration(3720), duration(200_000)
        ('7 s', '1:35 min', '1 h 02 min', '2 d 7 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
