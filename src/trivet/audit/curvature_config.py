"""The `curvature` section of a run: after which steps the loss surface is measured, and how closely. Torch-free.

Not covered: a user's command, whose model is out of reach; `trivet.audit.curvature` measures in a script.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FIGURES = (
    "gradient_norm",
    "hessian_min",
    "hessian_min_error",
    "hessian_max",
    "negative_mass",
    "negative_mass_error",
    "saddle_drop",
    "near_saddle",
)
"""What a row of metrics.jsonl gets; with `_at_STEP` behind it, what the run reports at its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvatureConfig:
    """When and how closely the curvature is measured. Empty: never.

    Examples:
        >>> CurvatureConfig(at=(100,)).reported[:2]
        ('gradient_norm_at_100', 'hessian_min_at_100')
        >>> CurvatureConfig(at=(0,))
        Traceback (most recent call last):
        ...
        ValueError: `at=[0]` must be growing steps ≥ 1; at 0 all arms with one initialization are equal
    """

    at: tuple[int, ...] = ()
    """After so many steps."""
    batches: int = 4
    """The loss is the mean over the first so many batches of the run: the same for every arm with its seed."""
    steps: int = 40
    """Steps of Lanczos; each costs about two gradients in float64."""
    probes: int = 4
    """Random vectors that Lanczos starts from; their spread is the error of the negative mass."""

    def __post_init__(self) -> None:
        if list(self.at) != sorted(set(self.at)) or any(step < 1 for step in self.at):
            raise ValueError(
                f"`at={list(self.at)}` must be growing steps ≥ 1; at 0 all arms with one initialization are equal"
            )
        for name, value, least, usual in (
            ("batches", self.batches, 1, 4), ("steps", self.steps, 2, 40), ("probes", self.probes, 2, 4)
        ):  # fmt: skip
            if value < least:
                raise ValueError(f"`{name}={value}` must be ≥ {least}; {usual} is the default")
            if value != usual and not self.at:
                raise ValueError(f"`{name}={value}` has no effect without `at`; name steps, or remove it")

    @property
    def is_off(self) -> bool:
        """Whether nothing is measured."""
        return not self.at

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the metrics that a run reports at its end."""
        return tuple(_names(self.at))


def _names(at: tuple[int, ...]) -> Iterator[str]:
    for step in at:
        for name in FIGURES:
            yield f"{name}_at_{step}"
