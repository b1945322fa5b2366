"""The `precision` section of a run's configuration. Loads no torch: a study file is checked before any process starts.

Not covered: which layers are quantized, which is code (`quantize_(model, filter_fn)`), not configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trivet.core.errors import unknown_name
from trivet.precision.catalog import ODD_CYCLES, PERIODS, TEN_SCHEDULES
from trivet.precision.checks import MAX_BITS, check_bits, check_choice
from trivet.precision.deficit import Deficit
from trivet.precision.profiles import EXPONENT, REX_CODE
from trivet.precision.schedules import PrecisionSchedule

KINDS = ("none", "static", *TEN_SCHEDULES, "custom")
"""What `schedule` may be."""

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
class PrecisionConfig:
    """At which precision a run trains; nothing given means full precision (32 bits).

    An option that the chosen schedule does not have is refused rather than ignored.

    Raises:
        ValueError: An unknown name, a value outside its range, or an option without effect.
        TypeError: A number of bits that is not whole.

    Example:
        >>> config = PrecisionConfig(schedule="RR", q_min=3, q_max=8, num_cycles=8)
        >>> config.build(64_000).name, config.forward_q_max, config.backward_bits
        ('RR', 8, 8)
        >>> PrecisionConfig().build(100) is None
        True
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
    grad_bits: int = 0
    """Bits of the gradients, the same at every step; 0 stands for the most bits of the schedule."""
    evaluate_bits: int = 0
    """Bits at which the model is evaluated; 0 stands for the most bits of the schedule."""
    deficit: Deficit | None = None
    """A learning deficit laid over the schedule: start, length, bits."""
    exponent: float = EXPONENT
    """Constant of the exponential profile."""
    rex_constant: float = REX_CODE
    """Constant of the rex profile: 0.9 as in the published code, 0.5 as in the published formula."""
    period: str = "exact"
    """Length of a cycle: exact (T / n) or train_py (int(T / n) + 1, as published)."""
    odd_cycles: str = "refuse"
    """Whether a triangular schedule may end at q_min: refuse or allow."""
    quantizer: str = "default"
    """default (zero is exact, finite ranges, own random numbers) or published (as in the reference code)."""

    def __post_init__(self) -> None:
        if self.schedule not in KINDS:
            raise ValueError(unknown_name("schedule", self.schedule, KINDS))
        check_choice("quantizer", self.quantizer, QUANTIZERS)
        check_choice("period", self.period, PERIODS)
        check_choice("odd_cycles", self.odd_cycles, ODD_CYCLES)
        check_bits("grad_bits", self.grad_bits, low=0)
        check_bits("evaluate_bits", self.evaluate_bits, low=0)
        for name in ("bits", "q_min", "q_max"):
            value: int | None = getattr(self, name)
            if value is not None:
                check_bits(name, value)
        self._check_effect()
        if self.schedule not in ("none", "static"):
            # Shapes and levels are checked by making the schedule once; its real length comes later.
            self._cyclic(total_steps=max(self.num_cycles or NUM_CYCLES, 1))

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
            for name in ("grad_bits", "evaluate_bits", "deficit"):
                value = getattr(self, name)
                if value:
                    raise ValueError(f"`{name}={value}` has no effect with schedule='none'; choose a schedule")

    @property
    def forward_q_max(self) -> int:
        """Most bits of the forward pass; 32 without a schedule."""
        if self.schedule == "none":
            return MAX_BITS
        if self.schedule == "static":
            return self.bits or MAX_BITS
        return self.q_max or Q_MAX

    @property
    def backward_bits(self) -> int:
        """Bits of the gradients, with the default resolved."""
        return self.grad_bits or self.forward_q_max

    @property
    def evaluation_bits(self) -> int:
        """Bits of evaluation, with the default resolved."""
        return self.evaluate_bits or self.forward_q_max

    def build(self, total_steps: int) -> PrecisionSchedule | None:
        """The schedule of a run of that many optimizer steps, or None for full precision.

        Raises:
            ValueError: The run is shorter than the number of cycles or than the deficit.

        Example:
            >>> PrecisionConfig(schedule="static", bits=6).build(10).bits(9)
            6
        """
        if self.schedule == "none":
            return None
        if self.schedule == "static":
            schedule = PrecisionSchedule.static(self.forward_q_max, total_steps=total_steps)
        else:
            schedule = self._cyclic(total_steps)
        if self.deficit is None:
            return schedule
        return schedule.with_deficit(start=self.deficit.start, length=self.deficit.length, bits=self.deficit.bits)

    def _cyclic(self, total_steps: int) -> PrecisionSchedule:
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
