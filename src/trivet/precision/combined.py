"""Schedules made of other schedules; `combine.py` makes them.

Each is immutable and answers from the step alone by asking its parts. Not covered: see `combine.py`.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

from trivet.precision.base import FORMAT, Schedule
from trivet.precision.checks import check_bits, plain_ints
from trivet.precision.deficit import Deficit

Runs = list[tuple[int, int, int]]


class CombinedSchedule(Schedule):
    """A schedule made of other schedules; comes from the functions of this module."""

    __slots__ = ()
    kind: ClassVar[str]
    """Word that stands for the class in dictionaries and names."""

    @property
    def name(self) -> str:
        """How it was made, such as clip(RR)."""
        return f"{self.kind}({', '.join(part.name for part in self.parts())})"

    @abstractmethod
    def parts(self) -> tuple[Schedule, ...]:
        """The schedules it is made of."""

    @abstractmethod
    def _stretches(self) -> Iterable[tuple[int, int]]:
        """Lengths and bits; neighbors may be equal."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole training."""
        return self.parts()[0].total_steps

    @property
    def q_min(self) -> int:
        """Fewest bits that occur."""
        return min(bits for _, _, bits in _runs(self))

    @property
    def q_max(self) -> int:
        """Most bits that occur."""
        return max(bits for _, _, bits in _runs(self))

    def runs(self) -> Runs:
        """The whole schedule as stretches of equal bits; see `Schedule.runs`."""
        return list(_runs(self))

    def with_deficit(self, *, start: int = 0, length: int, bits: int) -> Schedule:
        """The schedule with a learning deficit, or a probing window, laid over it."""
        return Overlaid(self, (Deficit(start=start, length=length, bits=bits),))

    def to_dict(self) -> dict[str, Any]:
        """The schedule as plain values for JSON or YAML, with the version of the format."""
        own = {"format": FORMAT, "kind": self.kind}
        return {**own, "parts": [part.to_dict() for part in self.parts()], **self._options()}

    def _options(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Joined(CombinedSchedule):
    """One schedule after another."""

    kind: ClassVar[str] = "join"

    members: tuple[Schedule, ...]
    """The schedules, in order."""

    def parts(self) -> tuple[Schedule, ...]:
        """The schedules, in order."""
        return self.members

    @property
    def total_steps(self) -> int:
        """Sum of the steps of the parts."""
        return sum(part.total_steps for part in self.members)

    def _bits(self, step: int) -> int:
        for part in self.members:
            if step < part.total_steps:
                return part.bits(step)
            step -= part.total_steps
        raise AssertionError("checked by bits()")

    def _stretches(self) -> Iterable[tuple[int, int]]:
        return ((length, bits) for part in self.members for _, length, bits in part.runs())


@dataclass(frozen=True, slots=True)
class Mapped(CombinedSchedule):
    """A schedule whose bits are changed one by one."""

    inner: Schedule
    """The schedule that is changed."""

    @abstractmethod
    def change(self, bits: int) -> int:
        """What becomes of the bits."""

    def parts(self) -> tuple[Schedule, ...]:
        """The schedule that is changed."""
        return (self.inner,)

    def _bits(self, step: int) -> int:
        return self.change(self.inner.bits(step))

    def _stretches(self) -> Iterable[tuple[int, int]]:
        return ((length, self.change(bits)) for _, length, bits in self.inner.runs())

    def _check_range(self, what: str) -> None:
        for bits in sorted({bits for _, _, bits in self.inner.runs()}):
            changed = self.change(bits)
            if not 1 <= changed <= 32:
                raise ValueError(
                    f"{what} turns {bits} bits into {changed}; bits lie in [1, 32]: clip the schedule first"
                )


@dataclass(frozen=True, slots=True)
class Offset(Mapped):
    """More or fewer bits throughout."""

    kind: ClassVar[str] = "offset"

    by: int
    """Bits added."""

    def __post_init__(self) -> None:
        plain_ints(self, "by")
        self._check_range(f"`by={self.by}`")

    def change(self, bits: int) -> int:
        """Bits + by."""
        return bits + self.by

    def _options(self) -> dict[str, Any]:
        return {"by": self.by}


@dataclass(frozen=True, slots=True)
class Scaled(Mapped):
    """Bits times a factor."""

    kind: ClassVar[str] = "scale"

    factor: float
    """The factor."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise ValueError(f"`factor={self.factor}` must be a finite number > 0; 2 doubles the bits")
        self._check_range(f"`factor={self.factor}`")

    def change(self, bits: int) -> int:
        """round(factor · bits), half to even."""
        return round(self.factor * bits)

    def _options(self) -> dict[str, Any]:
        return {"factor": self.factor}


@dataclass(frozen=True, slots=True)
class Clipped(Mapped):
    """Bits kept inside a range."""

    kind: ClassVar[str] = "clip"

    low: int
    """Fewest bits."""
    high: int
    """Most bits."""

    def __post_init__(self) -> None:
        plain_ints(self, "low", "high")
        check_bits("low", self.low)
        check_bits("high", self.high)
        if self.low > self.high:
            raise ValueError(f"`low={self.low}` must be ≤ high={self.high}; exchange them")

    def change(self, bits: int) -> int:
        """The nearest number of bits in [low, high]."""
        return min(max(bits, self.low), self.high)

    def _options(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Snapped(Mapped):
    """Bits from a set of levels only."""

    kind: ClassVar[str] = "snap"

    levels: tuple[int, ...]
    """The levels, rising."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", check_levels(self.levels))

    def change(self, bits: int) -> int:
        """The nearest level; of two equally near ones the higher."""
        return min(self.levels, key=lambda level: (abs(level - bits), -level))

    def _options(self) -> dict[str, Any]:
        return {"levels": list(self.levels)}


@dataclass(frozen=True, slots=True)
class Overlaid(CombinedSchedule):
    """A schedule with stretches at other bits."""

    kind: ClassVar[str] = "overlay"

    inner: Schedule
    """The schedule underneath."""
    windows: tuple[Deficit, ...]
    """The stretches; later ones win."""

    def __post_init__(self) -> None:
        for window in self.windows:
            window.check_within(self.inner.total_steps)

    def parts(self) -> tuple[Schedule, ...]:
        """The schedule underneath."""
        return (self.inner,)

    def _bits(self, step: int) -> int:
        for window in reversed(self.windows):
            if window.covers(step):
                return window.bits
        return self.inner.bits(step)

    def _stretches(self) -> Iterable[tuple[int, int]]:
        cuts = {start for start, _, _ in self.inner.runs()} | {self.total_steps}
        cuts |= {window.start for window in self.windows} | {window.start + window.length for window in self.windows}
        return ((end - start, self._bits(start)) for start, end in itertools.pairwise(sorted(cuts)))

    def _options(self) -> dict[str, Any]:
        return {"windows": [asdict(window) for window in self.windows]}


def check_levels(levels: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse a set of levels that is empty, not rising, or holds something that is no number of bits.

    Returns:
        The levels as plain ints.

    Raises:
        ValueError: As said. TypeError: A level is not a whole number.

    Examples:
        >>> check_levels((4, 8, 16, 32))
        (4, 8, 16, 32)
    """
    levels = tuple(check_bits("levels", level) for level in levels)
    if not levels or list(levels) != sorted(set(levels)):
        raise ValueError(f"`levels={list(levels)}` must be rising numbers of bits; such as [4, 8, 16, 32]")
    return levels


@lru_cache(maxsize=256)
def _runs(schedule: CombinedSchedule) -> tuple[tuple[int, int, int], ...]:
    found: Runs = []
    step = 0
    for length, bits in schedule._stretches():
        if found and found[-1][2] == bits:
            start, before, _ = found.pop()
            found.append((start, before + length, bits))
        else:
            found.append((step, length, bits))
        step += length
    return tuple(found)
