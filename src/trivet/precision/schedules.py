"""Precision schedules: how many bits each optimizer step computes with, as a pure function of the step.

A schedule is a growth profile (`profiles.py`), a number of cycles n and a shape, between q_min and q_max bits:

    repeated     S = q_min + Δ p(z)                           every cycle grows, then drops back to q_min
    triangular   even segments fall, odd segments grow        starts at q_max
      vertical     falling: S = q_max − Δ p(z)                the growth profile turned upside down
      horizontal   falling: S = q_min + Δ p(1 − z)            the growth profile run backwards in time

    bits = S rounded to the nearest whole number (half to even), Δ = q_max − q_min,
    z = position in the cycle, 0 ≤ z < 1

As in the published code one cycle of a triangular schedule is one segment, so n = 8 gives four falls and four
rises, and an odd n would end the training at q_min; that is refused unless asked for.

The period P is T / n exactly (`period="exact"`) or int(T / n) + 1 as in most of the published training scripts
(`period="train_py"`); the two differ at about n steps of a run.

Source: arXiv 2403.02243; CR: arXiv 2101.09868. Joining, clipping and the like: `combine.py`. Not covered: reacting to
the loss, bits per layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trivet.core.errors import unknown_name
from trivet.precision.base import FORMAT, Schedule
from trivet.precision.catalog import GROUPS, ODD_CYCLES, PERIODS, REFLECTIONS, SHAPES, TEN_SCHEDULES
from trivet.precision.checks import check_bits, check_choice, check_fields, plain_ints
from trivet.precision.deficit import Deficit
from trivet.precision.profiles import EXPONENT, PROFILES, REX_CODE, SYMMETRIC, check_constants, growth
from trivet.precision.runs import find_runs


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionSchedule(Schedule):
    """Bits of the forward pass for every optimizer step of a training run.

    Immutable and hashable; holds no position, so resuming needs nothing but the step.

    Raises:
        ValueError: A value outside its range, or an option that would have no effect.
        TypeError: A count that is not a whole number.

    Examples:
        >>> s = PrecisionSchedule.named("RR", q_min=3, q_max=8, num_cycles=8, total_steps=64_000)
        >>> s.bits(0), s.bits(63_999), round(s.mean_bits, 3), s.group
        (3, 8, 3.805, 'small')
    """

    profile: str
    """Growth profile: cosine, linear, exponential or rex."""
    shape: str = "repeated"
    """repeated or triangular."""
    reflection: str = "none"
    """How a triangular schedule falls: vertical or horizontal; none for repeated ones."""
    q_min: int
    """Fewest bits."""
    q_max: int
    """Most bits."""
    num_cycles: int
    """Number of cycles n; for triangular schedules the number of segments."""
    total_steps: int
    """Optimizer steps T of the whole training."""
    exponent: float = EXPONENT
    """Constant of the exponential profile."""
    rex_constant: float = REX_CODE
    """Constant of the rex profile: `profiles.REX_CODE` (0.9) or `profiles.REX_PUBLISHED` (0.5)."""
    period: str = "exact"
    """Length of a cycle: exact (T / n) or train_py (int(T / n) + 1, as published)."""
    odd_cycles: str = "refuse"
    """Whether a triangular schedule may end at q_min, which an odd num_cycles causes: refuse or allow."""
    deficits: tuple[Deficit, ...] = ()
    """Stretches laid over the schedule; later ones win."""

    def __post_init__(self) -> None:
        check_choice("profile", self.profile, PROFILES)
        check_choice("shape", self.shape, SHAPES)
        check_choice("reflection", self.reflection, REFLECTIONS)
        check_choice("period", self.period, PERIODS)
        check_choice("odd_cycles", self.odd_cycles, ODD_CYCLES)
        plain_ints(self, "q_min", "q_max", "total_steps", "num_cycles")
        self._check_levels()
        self._check_cycles()
        self._check_shape()
        check_constants(self.exponent, self.rex_constant)
        for deficit in self.deficits:
            deficit.check_within(self.total_steps)

    def _check_levels(self) -> None:
        check_bits("q_min", self.q_min)
        check_bits("q_max", self.q_max)
        if self.q_min > self.q_max:
            fix = "lower `q_min` or raise `q_max`."
            raise ValueError(f"`q_min={self.q_min}` must lie in [1, q_max={self.q_max}]; {fix}")

    def _check_cycles(self) -> None:
        if self.total_steps < 1:
            raise ValueError(f"`total_steps={self.total_steps}` must be ≥ 1; give the number of optimizer steps")
        if not 1 <= self.num_cycles <= self.total_steps:
            limit = f"[1, total_steps={self.total_steps}]"
            raise ValueError(f"`num_cycles={self.num_cycles}` must lie in {limit}; lower it or train longer")

    def _check_shape(self) -> None:
        if self.shape == "repeated":
            if self.reflection != "none":
                fix = "leave it out or take shape='triangular'"
                raise ValueError(f"`reflection={self.reflection!r}` has no effect on a repeated schedule; {fix}")
            return
        if self.reflection == "none" and self.profile not in SYMMETRIC:
            allowed = "allowed: 'vertical', 'horizontal'"
            raise ValueError(f"a triangular {self.profile} schedule needs `reflection`; {allowed}")
        if self.num_cycles % 2 == 1 and self.q_min < self.q_max and self.odd_cycles == "refuse":
            raise ValueError(
                f"`num_cycles={self.num_cycles}` is odd: a triangular schedule would end training at "
                f"q_min={self.q_min} bits; take an even number, or odd_cycles='allow' if that is meant"
            )

    @staticmethod
    def names() -> list[str]:
        """Names of the ten published schedules.

        Examples:
            >>> PrecisionSchedule.names()
            ['CR', 'LR', 'ER', 'RR', 'CT', 'LT', 'ETV', 'ETH', 'RTV', 'RTH']
        """
        return list(TEN_SCHEDULES)

    @classmethod
    def named(
        cls,
        name: str,
        *,
        q_min: int,
        q_max: int,
        num_cycles: int,
        total_steps: int,
        exponent: float = EXPONENT,
        rex_constant: float = REX_CODE,
        period: str = "exact",
        odd_cycles: str = "refuse",
    ) -> PrecisionSchedule:
        """One of the ten published schedules.

        Args:
            name: First letter the profile (C, L, E, R), second the shape (R repeated, T triangular), third the
                reflection (V vertical, H horizontal).
            q_min: Fewest bits.
            q_max: Most bits.
            num_cycles: Number of cycles; segments for triangular schedules.
            total_steps: Optimizer steps of the training.
            exponent: As the field of that name.
            rex_constant: As the field of that name.
            period: As the field of that name.
            odd_cycles: As the field of that name.

        Raises:
            ValueError: No schedule has that name, or a value outside its range.

        Examples:
            >>> PrecisionSchedule.named("CT", q_min=3, q_max=8, num_cycles=2, total_steps=10).bits_array().tolist()
            [8, 8, 6, 5, 3, 3, 3, 5, 6, 8]
        """
        if name not in TEN_SCHEDULES:
            raise ValueError(unknown_name("schedule", name, TEN_SCHEDULES))
        profile, shape, reflection = TEN_SCHEDULES[name]
        return cls(
            profile=profile,
            shape=shape,
            reflection=reflection,
            q_min=q_min,
            q_max=q_max,
            num_cycles=num_cycles,
            total_steps=total_steps,
            exponent=exponent,
            rex_constant=rex_constant,
            period=period,
            odd_cycles=odd_cycles,
        )

    @classmethod
    def static(cls, bits: int, *, total_steps: int) -> PrecisionSchedule:
        """The same bits at every step.

        Examples:
            >>> PrecisionSchedule.static(8, total_steps=4).bits_array().tolist()
            [8, 8, 8, 8]
        """
        bits = check_bits("bits", bits)
        return cls(profile="linear", q_min=bits, q_max=bits, num_cycles=1, total_steps=total_steps)

    @property
    def name(self) -> str:
        """One of the ten names, static followed by the bits, or custom.

        Examples:
            >>> PrecisionSchedule.static(6, total_steps=4).name
            'static6'
        """
        if self.q_min == self.q_max:
            return f"static{self.q_max}"
        mirrored = self.profile in SYMMETRIC and self.shape == "triangular"
        own = (self.profile, self.shape, "vertical" if mirrored else self.reflection)
        return next((name for name, kind in TEN_SCHEDULES.items() if kind == own), "custom")

    def _bits(self, step: int) -> int:
        for deficit in reversed(self.deficits):
            if deficit.covers(step):
                return deficit.bits
        return self._cycle_bits(step)

    def _cycle_bits(self, step: int) -> int:
        if self.q_min == self.q_max:
            return self.q_max
        segment, z = self._position(step)
        span = self.q_max - self.q_min
        if self.shape == "repeated" or segment % 2 == 1:
            return round(self.q_min + span * self._height(z))
        if self.reflection == "horizontal":
            return round(self.q_min + span * self._height(1.0 - z))
        return round(self.q_max - span * self._height(z))

    def _height(self, z: float) -> float:
        return growth(self.profile, z, exponent=self.exponent, rex_constant=self.rex_constant)

    def _position(self, step: int) -> tuple[int, float]:
        """Segment a step lies in, and its position there; exact in whole numbers, so nothing drifts."""
        if self.period == "train_py":
            length = self.total_steps // self.num_cycles + 1
            return step // length, (step % length) / length
        done = step * self.num_cycles
        return done // self.total_steps, (done % self.total_steps) / self.total_steps

    def runs(self) -> list[tuple[int, int, int]]:
        """The whole schedule as stretches of equal bits.

        Returns:
            Triples (first step, number of steps, bits), in order and without gaps.

        Examples:
            >>> PrecisionSchedule.named("LR", q_min=3, q_max=5, num_cycles=1, total_steps=8).runs()
            [(0, 2, 3), (2, 5, 4), (7, 1, 5)]
        """
        return list(_runs(self))

    @property
    def group(self) -> str:
        """small, medium or large, by the compute the cycles use; deficits do not count.

        Examples:
            >>> PrecisionSchedule.named("RTH", q_min=3, q_max=8, num_cycles=8, total_steps=800).group
            'small'
        """
        if self.q_min == self.q_max:
            return GROUPS[2]
        plain = dataclasses.replace(self, deficits=())
        height = (plain.mean_bits - self.q_min) / (self.q_max - self.q_min)
        return GROUPS[min(int(3 * height), 2)]

    def with_deficit(self, *, start: int = 0, length: int, bits: int) -> PrecisionSchedule:
        """The schedule with a learning deficit laid over it.

        Args:
            start: First step of the deficit.
            length: Number of steps; exactly so many are changed.
            bits: Bits inside it.

        Examples:
            >>> s = PrecisionSchedule.static(8, total_steps=6).with_deficit(start=1, length=2, bits=3)
            >>> s.bits_array().tolist()
            [8, 3, 3, 8, 8, 8]
        """
        deficit = Deficit(start=start, length=length, bits=bits)
        return dataclasses.replace(self, deficits=(*self.deficits, deficit))

    def to_dict(self) -> dict[str, Any]:
        """The schedule as plain values for JSON or YAML, with the version of the format.

        Examples:
            >>> s = PrecisionSchedule.static(8, total_steps=10)
            >>> PrecisionSchedule.from_dict(s.to_dict()) == s
            True
        """
        plain = dataclasses.asdict(self)
        plain["deficits"] = [dict(deficit) for deficit in plain["deficits"]]
        return {"format": FORMAT, "kind": "precision-schedule", **plain}

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> PrecisionSchedule:
        """The schedule that `to_dict` wrote.

        Raises:
            ValueError: Another kind, a version this trivet does not know, or an unknown or missing key.

        Examples:
            >>> PrecisionSchedule.from_dict({"format": 1})
            Traceback (most recent call last):
            ...
            ValueError: `kind=None` must be 'precision-schedule'; is this the dictionary of a schedule?
        """
        kind = mapping.get("kind")
        if kind != "precision-schedule":
            raise ValueError(f"`kind={kind!r}` must be 'precision-schedule'; is this the dictionary of a schedule?")
        if mapping.get("format") != FORMAT:
            raise ValueError(f"`format={mapping.get('format')!r}` must be {FORMAT}; written by another trivet version?")
        values = {key: value for key, value in mapping.items() if key not in ("format", "kind")}
        check_fields(cls, values)
        values["deficits"] = tuple(Deficit(**deficit) for deficit in values.get("deficits", ()))
        return cls(**values)


@lru_cache(maxsize=256)
def _runs(schedule: PrecisionSchedule) -> tuple[tuple[int, int, int], ...]:
    total, cycles = schedule.total_steps, schedule.num_cycles
    if schedule.period == "train_py":
        cuts = set(range(0, total, total // cycles + 1))
    else:
        cuts = {-(-segment * total // cycles) for segment in range(cycles)}
    for deficit in schedule.deficits:
        cuts |= {deficit.start, deficit.start + deficit.length}
    edges = sorted({cut for cut in cuts if cut < total} | {0, total})
    return tuple(find_runs(schedule.bits, edges))
