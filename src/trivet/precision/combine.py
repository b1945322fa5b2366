"""New schedules from old ones: join, offset, scale, clip, snap, and stretches laid over.

    join(a, b)                 a, then b; each counts its steps from 0
    scale(s, factor)           round(factor · bits), half to even
    offset(s, by)              bits + by
    clip(s, low, high)         min(max(bits, low), high)
    snap(s, levels)            the nearest of the levels; of two equally near ones the higher, the safer for training
    overlay(s, window, …)      other bits inside windows; later windows win

All of them are again schedules: immutable, pure functions of the optimizer step, with the cost of their stretches, and
they survive `to_dict()` → JSON → `schedule_from_dict()`. An offset or a scale that would leave 1 to 32 bits is
refused rather than cut off; `clip` first when that is meant.

Not covered: sums and products of two schedules; anything that depends on the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trivet.core.errors import unknown_name
from trivet.precision.base import FORMAT, Schedule
from trivet.precision.checks import check_fields
from trivet.precision.combined import (
    Clipped,
    CombinedSchedule,
    Joined,
    Offset,
    Overlaid,
    Scaled,
    Snapped,
)
from trivet.precision.deficit import Deficit
from trivet.precision.schedules import PrecisionSchedule


def join(*schedules: Schedule) -> Schedule:
    """One schedule after another, each counting its steps from 0.

    Raises:
        ValueError: No schedule.

    Examples:
        >>> warm = PrecisionSchedule.static(8, total_steps=2)
        >>> rest = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=4)
        >>> join(warm, rest).bits_array().tolist()
        [8, 8, 3, 4, 6, 7]
    """
    if not schedules:
        raise ValueError("join() needs at least one schedule")
    return schedules[0] if len(schedules) == 1 else Joined(tuple(schedules))


def offset(schedule: Schedule, by: int) -> Schedule:
    """More bits throughout, or fewer where `by` is negative.

    Raises:
        ValueError: Bits would leave [1, 32].

    Examples:
        >>> offset(PrecisionSchedule.static(6, total_steps=2), 2).bits_array().tolist()
        [8, 8]
    """
    return Offset(schedule, by)


def scale(schedule: Schedule, factor: float) -> Schedule:
    """Bits times a factor, rounded half to even.

    Raises:
        ValueError: Bits would leave [1, 32], or the factor is not > 0.

    Examples:
        >>> scale(PrecisionSchedule.static(8, total_steps=2), 2).bits_array().tolist()
        [16, 16]
    """
    return Scaled(schedule, factor)


def clip(schedule: Schedule, low: int = 1, high: int = 32) -> Schedule:
    """Bits kept inside [low, high].

    Raises:
        ValueError: The range is empty or leaves [1, 32].

    Examples:
        >>> s = PrecisionSchedule.named("LR", q_min=2, q_max=8, num_cycles=1, total_steps=6)
        >>> clip(s, 4).bits_array().tolist()
        [4, 4, 4, 5, 6, 7]
    """
    return Clipped(schedule, low, high)


def snap(schedule: Schedule, levels: Iterable[int]) -> Schedule:
    """Bits from a set of levels only: the nearest one, and of two equally near ones the higher.

    Args:
        schedule: Any schedule.
        levels: Rising numbers of bits, such as those that the hardware executes.

    Raises:
        ValueError: The levels are not rising numbers of bits.

    Examples:
        >>> s = PrecisionSchedule.named("LR", q_min=4, q_max=32, num_cycles=1, total_steps=8)
        >>> snap(s, (4, 8, 16, 32)).bits_array().tolist()
        [4, 8, 8, 16, 16, 16, 32, 32]
    """
    return Snapped(schedule, tuple(levels))


def overlay(schedule: Schedule, *windows: Deficit) -> Schedule:
    """Other bits inside windows: learning deficits from the start, or probing windows [a, a + W) anywhere.

    Raises:
        ValueError: A window goes on after the training.

    Examples:
        >>> s = PrecisionSchedule.static(8, total_steps=6)
        >>> overlay(s, Deficit(start=2, length=3, bits=3)).bits_array().tolist()
        [8, 8, 3, 3, 3, 8]
    """
    return Overlaid(schedule, tuple(windows)) if windows else schedule


_CLASSES: Mapping[str, type[CombinedSchedule]] = {
    cls.kind: cls for cls in (Joined, Offset, Scaled, Clipped, Snapped, Overlaid)
}


def schedule_from_dict(mapping: Mapping[str, Any]) -> Schedule:
    """The schedule that `to_dict` wrote, of whatever kind.

    Raises:
        ValueError: An unknown kind or key, or a version this trivet does not know.

    Examples:
        >>> s = clip(PrecisionSchedule.static(8, total_steps=10), high=6)
        >>> schedule_from_dict(s.to_dict()) == s
        True
    """
    kind = mapping.get("kind")
    if kind not in _CLASSES:
        if kind not in ("precision-schedule", None):
            raise ValueError(unknown_name("kind of schedule", str(kind), ["precision-schedule", *_CLASSES]))
        return PrecisionSchedule.from_dict(mapping)
    if mapping.get("format") != FORMAT:
        raise ValueError(f"`format={mapping.get('format')!r}` must be {FORMAT}; written by another trivet version?")
    cls = _CLASSES[kind]
    values = {key: value for key, value in mapping.items() if key not in ("format", "kind", "parts")}
    parts = tuple(schedule_from_dict(part) for part in mapping.get("parts", ()))
    if not parts or (cls is not Joined and len(parts) != 1):
        allowed = "≥ 1" if cls is Joined else "1"
        raise ValueError(f"`parts` of {kind!r} holds {len(parts)} schedule(s); allowed: {allowed}")
    if "levels" in values:
        values["levels"] = tuple(values["levels"])
    if "windows" in values:
        values["windows"] = tuple(Deficit(**window) for window in values["windows"])
    first: dict[str, Any] = {"members": parts} if cls is Joined else {"inner": parts[0]}
    check_fields(cls, {**first, **values})
    return cls(**first, **values)
