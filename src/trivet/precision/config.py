"""The `precision` section of a run's configuration. Loads no torch: a study file is checked before any process starts.

Not covered: which layers are quantized, which is code (`quantize_(model, filter_fn)`), not configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trivet.core.config import UNSET_IS_LEFT_OUT
from trivet.core.errors import unknown_name
from trivet.precision.base import Schedule
from trivet.precision.catalog import ODD_CYCLES, PERIODS, TEN_SCHEDULES
from trivet.precision.checks import EXECUTIONS, MAX_BITS, check_bits, check_choice, plain_ints
from trivet.precision.combine import clip, join, offset, overlay, scale, snap
from trivet.precision.combined import check_levels
from trivet.precision.deficit import Deficit
from trivet.precision.profiles import EXPONENT, REX_CODE, check_constants
from trivet.precision.roles import RoleSchedules
from trivet.precision.schedules import PrecisionSchedule

KINDS = ("none", "static", *TEN_SCHEDULES, "custom")
"""What `schedule` may be; that of a whole run may also be joined."""

JOINED = "joined"

QUANTIZERS = ("default", "published")

_BELONGS: Mapping[str, tuple[str, ...]] = {
    "bits": ("static",),
    "q_min": (*TEN_SCHEDULES, "custom"),
    "q_max": (*TEN_SCHEDULES, "custom"),
    "num_cycles": (*TEN_SCHEDULES, "custom"),
    "profile": ("custom",),
    "shape": ("custom",),
    "reflection": ("custom",),
}
"""Options that only some kinds of schedule have."""

Q_MIN, Q_MAX, NUM_CYCLES = 3, 8, 8
"""What a cyclic schedule uses where nothing is given: the setting of the published CIFAR experiments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """One schedule and what is done to its bits, in this order: scale, offset, clip, levels.

    An option that the chosen schedule does not have is refused rather than ignored.

    Raises:
        ValueError: An unknown name, a value outside its range, or an option without effect.
        TypeError: A number of bits that is not whole.

    Examples:
        >>> config = ScheduleConfig(schedule="CR", q_min=4, q_max=32, levels=(4, 8, 16, 32))
        >>> [bits for _, _, bits in config.build_plain(80).runs()][:5]
        [4, 8, 16, 32, 4]
    """

    schedule: str = "none"
    """none (full precision), static, one of the ten names such as RR, or custom."""
    bits: int | None = None
    """Bits of a static schedule."""
    q_min: int | None = None
    """Fewest bits of a cyclic schedule; 3 when left out."""
    q_max: int | None = None
    """Most bits of a cyclic schedule; 8 when left out."""
    num_cycles: int | None = None
    """Cycles, or segments of a triangular schedule; 8 when left out."""
    profile: str | None = None
    """Growth profile of a custom schedule: cosine, linear, exponential or rex."""
    shape: str | None = None
    """Shape of a custom schedule: repeated or triangular; repeated when left out."""
    reflection: str | None = None
    """How a custom triangular schedule falls: vertical or horizontal."""
    exponent: float = EXPONENT
    """Constant of the exponential profile."""
    rex_constant: float = REX_CODE
    """Constant of the rex profile: 0.9 as in the published code, 0.5 as in the published formula."""
    period: str = "exact"
    """Length of a cycle: exact (T / n) or train_py (int(T / n) + 1, as published)."""
    odd_cycles: str = "refuse"
    """Whether a triangular schedule may end at q_min: refuse or allow."""
    scale: float = 1.0
    """Factor on the bits, rounded half to even."""
    offset: int = 0
    """Bits added after that."""
    clip: tuple[int, int] | None = None
    """Fewest and most bits, after that."""
    levels: tuple[int, ...] = ()
    """Rising bits that are allowed; each step takes the nearest, of two equally near ones the higher. Empty: all."""

    def __post_init__(self) -> None:
        if self.schedule not in KINDS:
            raise ValueError(unknown_name("schedule", self.schedule, KINDS))
        check_choice("period", self.period, PERIODS)
        check_choice("odd_cycles", self.odd_cycles, ODD_CYCLES)
        plain_ints(
            self, "offset", *(n for n in ("bits", "q_min", "q_max", "num_cycles") if getattr(self, n) is not None)
        )
        for name in ("bits", "q_min", "q_max"):
            value: int | None = getattr(self, name)
            if value is not None:
                check_bits(name, value)
        self._check_effect()
        if self.levels:
            object.__setattr__(self, "levels", check_levels(self.levels))
        check_constants(self.exponent, self.rex_constant)
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"`scale={self.scale}` must be a finite number > 0; 2 doubles the bits")
        # Shapes and levels are checked by making the schedule once; its real length comes later.
        self._changed(self._cyclic(total_steps=max(self.num_cycles or NUM_CYCLES, 1)))

    def _check_effect(self) -> None:
        for name, kinds in _BELONGS.items():
            value = getattr(self, name)
            if value is not None and self.schedule not in kinds:
                hint = "schedule: static" if kinds == ("static",) else f"one of {', '.join(kinds)}"
                raise ValueError(f"`{name}={value}` has no effect with schedule={self.schedule!r}; it needs {hint}")
        if self.schedule == "static" and self.bits is None:
            raise ValueError("schedule='static' needs `bits`; allowed: a whole number in [1, 32], for example bits: 8")
        if self.schedule == "custom" and self.profile is None:
            raise ValueError("schedule='custom' needs `profile`; allowed: cosine, linear, exponential, rex")
        if self.schedule == "none":
            self._check_unused("scale", "offset", "clip", "levels")

    def _check_unused(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value and value != 1.0:
                fix = "choose a schedule" if self.schedule == "none" else "give it to the parts"
                raise ValueError(f"`{name}={value}` has no effect with schedule={self.schedule!r}; {fix}")

    @property
    def most_bits(self) -> int:
        """Most bits of the forward pass; 32 without a schedule."""
        if self.schedule == "none":
            return MAX_BITS
        top = (self.bits if self.schedule == "static" else self.q_max) or Q_MAX
        return self._changed(PrecisionSchedule.static(top, total_steps=1)).bits(0)

    def build_plain(self, total_steps: int) -> Schedule:
        """The schedule, without deficits and windows; 32 bits throughout where there is none.

        Raises:
            ValueError: The run is shorter than the number of cycles.
        """
        return self._changed(self._cyclic(total_steps))

    def _changed(self, schedule: Schedule) -> Schedule:
        if self.scale != 1.0:
            schedule = scale(schedule, self.scale)
        if self.offset:
            schedule = offset(schedule, self.offset)
        if self.clip:
            schedule = clip(schedule, *self.clip)
        return snap(schedule, self.levels) if self.levels else schedule

    def _cyclic(self, total_steps: int) -> PrecisionSchedule:
        if self.schedule in ("none", "static"):
            return PrecisionSchedule.static(self.bits or MAX_BITS, total_steps=total_steps)
        custom = (self.profile or "", self.shape or "repeated", self.reflection or "none")
        profile, shape, reflection = TEN_SCHEDULES.get(self.schedule, custom)
        return PrecisionSchedule(
            profile=profile,
            shape=shape,
            reflection=reflection,
            q_min=Q_MIN if self.q_min is None else self.q_min,
            q_max=Q_MAX if self.q_max is None else self.q_max,
            num_cycles=NUM_CYCLES if self.num_cycles is None else self.num_cycles,
            total_steps=total_steps,
            exponent=self.exponent,
            rex_constant=self.rex_constant,
            period=self.period,
            odd_cycles=self.odd_cycles,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PartConfig(ScheduleConfig):
    """One part of a joined schedule.

    Examples:
        >>> PartConfig(share=0.1, schedule="static", bits=8).share
        0.1
    """

    share: float
    """Share of the training, in (0, 1]."""

    def __post_init__(self) -> None:
        ScheduleConfig.__post_init__(self)
        if not 0 < self.share <= 1:
            raise ValueError(f"`share={self.share}` must lie in (0, 1]; it is this part's share of all steps")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionConfig(ScheduleConfig):
    """At which precision a run trains; nothing given means full precision (32 bits).

    Deficits and windows lie over whatever the schedule says, later ones over earlier ones.

    Raises:
        ValueError: An unknown name, a value outside its range, or an option without effect.
        TypeError: A number of bits that is not whole.

    Examples:
        >>> config = PrecisionConfig(schedule="RR", q_min=3, q_max=8, num_cycles=8)
        >>> config.build(64_000).name, config.forward_q_max, config.backward_bits
        ('RR', 8, 8)
        >>> PrecisionConfig().build(100) is None
        True
    """

    parts: tuple[PartConfig, ...] = ()
    """With schedule joined: one schedule after another, each with its `share` of the steps."""
    activation: ScheduleConfig | None = None
    """Schedule of the activations, where it is not that of the weights."""
    gradient: ScheduleConfig | None = None
    """Schedule of the gradients, in place of constant `grad_bits`."""
    grad_bits: int = 0
    """Bits of the gradients, the same at every step; 0 stands for the most bits of the schedule."""
    evaluate_bits: int = 0
    """Bits at which the model is evaluated; 0 stands for the most bits of the schedule."""
    deficit: Deficit | None = None
    """A learning deficit laid over the schedule: start, length, bits."""
    windows: tuple[Deficit, ...] = ()
    """Probing windows laid over the schedule: a list of start, length, bits."""
    execution: str = field(default="simulated", metadata=UNSET_IS_LEFT_OUT)
    """simulated (rounded, computed in floating point), native (in the cheapest number format of the device that holds
    the bits) or auto (in the fastest one)."""
    quantizer: str = "default"
    """default (zero is exact, finite ranges, own random numbers) or published (as in the reference code)."""

    def __post_init__(self) -> None:
        if self.schedule == JOINED:
            self._check_joined()
        elif self.parts:
            raise ValueError(f"`parts` has no effect with schedule={self.schedule!r}; it needs schedule: joined")
        else:
            if self.schedule not in KINDS:
                raise ValueError(unknown_name("schedule", self.schedule, (*KINDS, JOINED)))
            ScheduleConfig.__post_init__(self)
        check_choice("quantizer", self.quantizer, QUANTIZERS)
        check_choice("execution", self.execution, EXECUTIONS)
        if self.execution != "simulated" and self.quantizer == "published":
            raise ValueError(
                f"`execution={self.execution}` has no effect with quantizer='published', whose grid has no whole zero; "
                "take quantizer: default"
            )
        plain_ints(self, "grad_bits", "evaluate_bits")
        check_bits("grad_bits", self.grad_bits, low=0)
        check_bits("evaluate_bits", self.evaluate_bits, low=0)
        if self.schedule == "none":
            self._check_unused("grad_bits", "evaluate_bits", "deficit", "windows", "activation", "gradient")
            if self.execution != "simulated":
                raise ValueError(f"`execution={self.execution}` has no effect with schedule='none'; choose a schedule")
        if self.gradient is not None and self.grad_bits:
            raise ValueError(f"`grad_bits={self.grad_bits}` has no effect beside `gradient`; give one of the two")

    def _check_joined(self) -> None:
        if not self.parts:
            raise ValueError("schedule='joined' needs `parts`; such as [{share: 0.1, schedule: static, bits: 8}, …]")
        self._check_unused(*_BELONGS, "scale", "offset", "clip", "levels")
        total = math.fsum(part.share for part in self.parts)
        if not math.isclose(total, 1.0, abs_tol=1e-6):
            raise ValueError(f"the shares of `parts` add up to {total:g}; they must add up to 1")

    @property
    def forward_q_max(self) -> int:
        """Most bits of the forward pass; 32 without a schedule."""
        own = max(part.most_bits for part in self.parts) if self.parts else self.most_bits
        return own if self.activation is None else max(own, self.activation.most_bits)

    @property
    def backward_bits(self) -> int:
        """Bits of the gradients, with the default resolved; the most of them where they have a schedule."""
        return self.grad_bits or (self.forward_q_max if self.gradient is None else self.gradient.most_bits)

    @property
    def evaluation_bits(self) -> int:
        """Bits of evaluation, with the default resolved."""
        return self.evaluate_bits or self.forward_q_max

    def build(self, total_steps: int) -> Schedule | None:
        """The schedule of a run of that many optimizer steps, or None for full precision.

        Raises:
            ValueError: The run is shorter than the number of cycles or than the deficit.

        Examples:
            >>> PrecisionConfig(schedule="static", bits=6).build(10).bits(9)
            6
        """
        if self.schedule == "none":
            return None
        schedule = self._joined(total_steps) if self.parts else self.build_plain(total_steps)
        laid_over = (*((self.deficit,) if self.deficit else ()), *self.windows)
        if isinstance(schedule, PrecisionSchedule):
            for window in laid_over:
                schedule = schedule.with_deficit(start=window.start, length=window.length, bits=window.bits)
            return schedule
        return overlay(schedule, *laid_over)

    def build_roles(self, total_steps: int) -> Schedule | RoleSchedules | None:
        """What a controller takes: as `build`, and a schedule for each role where the configuration has them.

        Examples:
            >>> config = PrecisionConfig(schedule="RR", gradient=ScheduleConfig(schedule="CT", q_min=6))
            >>> config.build_roles(80).bits(0)
            (3, 3, 8)
        """
        weight = self.build(total_steps)
        if weight is None or (self.activation is None and self.gradient is None):
            return weight
        activation = weight if self.activation is None else self.activation.build_plain(total_steps)
        if self.gradient is None:
            gradient: Schedule = PrecisionSchedule.static(self.backward_bits, total_steps=total_steps)
        else:
            gradient = self.gradient.build_plain(total_steps)
        return RoleSchedules(weight=weight, activation=activation, gradient=gradient)

    def _joined(self, total_steps: int) -> Schedule:
        """Parts end at the rounded sums of their shares, so that nothing is lost."""
        made: list[Schedule] = []
        done, share = 0, 0.0
        for index, part in enumerate(self.parts):
            share += part.share
            end = total_steps if index == len(self.parts) - 1 else round(share * total_steps)
            if end <= done:
                raise ValueError(f"`parts[{index}]` has no step in a training of {total_steps}; train longer")
            made.append(part.build_plain(end - done))
            done = end
        return join(*made)
