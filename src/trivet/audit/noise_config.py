"""The `noise` section of a run: indeterminacy on purpose, to measure whether it matters. Torch-free.

Not covered: noise on activations, and on what a user's command computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from trivet.core.errors import unknown_name

Kind = Literal["none", "rounding", "order", "race", "ulp"]
Target = Literal["gradients", "weights"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseConfig:
    """What is disturbed, how strongly and when. Empty: nothing.

    Examples:
        >>> NoiseConfig(kind="rounding", bits=8).is_silent, NoiseConfig().is_silent
        (False, True)
        >>> NoiseConfig(kind="order", target="weights")
        Traceback (most recent call last):
        ...
        ValueError: `target=weights` applies to kind=rounding alone; remove it
    """

    kind: Kind = "none"
    """`rounding`: every number x becomes x · (1 + u · 2^-bits), u uniform in (-1, 1). `order`: the examples of a batch
    change places inside the forward pass, so that sums over them round otherwise. `race`: gradients are summed by
    several threads at once in no fixed order, as on a GPU; needs `environment.threads` of 2 or more. `ulp`: one weight
    changes by one unit in the last place, once."""
    bits: int = 24
    """Of `rounding`; 24 is the precision of float32."""
    target: Target = "gradients"
    """Of `rounding`: gradients before the update, or weights after it."""
    start: int = 0
    """First step that is disturbed."""
    length: int = 0
    """How many steps are; 0 is all from `start` on."""

    def __post_init__(self) -> None:
        for name, kind in (("kind", Kind), ("target", Target)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(unknown_name(name, str(getattr(self, name)), get_args(kind)))
        if not 1 <= self.bits <= 30:
            raise ValueError(f"`bits={self.bits}` must lie in [1, 30]; 24 is the precision of float32")
        if self.start < 0 or self.length < 0:
            raise ValueError(f"`start={self.start}` and `length={self.length}` must be ≥ 0")
        for name, value, usual in (("bits", self.bits, 24), ("target", self.target, "gradients")):
            if value != usual and self.kind != "rounding":
                raise ValueError(f"`{name}={value}` applies to kind=rounding alone; remove it")
        if self.length and self.kind == "ulp":
            raise ValueError(f"`length={self.length}` does not apply to kind=ulp, which happens once; remove it")
        if self.kind == "none" and (self.start or self.length):
            raise ValueError("`start` and `length` have no effect without a `kind`; name one, or remove them")

    @property
    def is_silent(self) -> bool:
        """Whether nothing is disturbed."""
        return self.kind == "none"

    def disturbs(self, step: int) -> bool:
        """Whether a step, counted from 0, is disturbed.

        Examples:
            >>> [NoiseConfig(kind="order", start=2, length=2).disturbs(step) for step in range(5)]
            [False, False, True, True, False]
        """
        return not self.is_silent and step >= self.start and (not self.length or step < self.start + self.length)
