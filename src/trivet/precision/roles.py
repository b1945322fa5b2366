"""A schedule for each role: weights, activations and gradients at bits of their own.

One training step multiplies activations by weights forward, and output gradients by weights and by activations
backward, so with b_w, b_a, b_g bits each multiply-accumulate costs

    b_w b_a + b_g b_w + b_g b_a        BitOPs, which is b_f² + 2 b_f b_g where b_w = b_a = b_f

Not covered: bits of single layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trivet.precision.base import FORMAT, Schedule
from trivet.precision.checks import check_bits
from trivet.precision.combine import schedule_from_dict
from trivet.precision.schedules import PrecisionSchedule

ROLES = ("weight", "activation", "gradient")
"""Names of the roles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleSchedules:
    """The schedules of weights, activations and gradients of one training.

    Raises:
        ValueError: They are made for trainings of different lengths.

    Examples:
        >>> forward = PrecisionSchedule.named("CR", q_min=3, q_max=8, num_cycles=2, total_steps=100)
        >>> roles = RoleSchedules.of(forward, grad_bits=8)
        >>> roles.bits(0), round(roles.relative_cost() / forward.relative_cost(8), 6)
        ((3, 3, 8), 1.0)
    """

    weight: Schedule
    """Bits of the weights."""
    activation: Schedule
    """Bits of the activations."""
    gradient: Schedule
    """Bits of the gradients."""

    def __post_init__(self) -> None:
        lengths = {role: getattr(self, role).total_steps for role in ROLES}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{role} {steps}" for role, steps in lengths.items())
            raise ValueError(f"the schedules of the roles must have equal `total_steps`; found: {found}")

    @classmethod
    def of(cls, forward: Schedule, *, grad_bits: int) -> RoleSchedules:
        """One schedule for weights and activations, and constant bits for the gradients."""
        gradient = PrecisionSchedule.static(grad_bits, total_steps=forward.total_steps)
        return cls(weight=forward, activation=forward, gradient=gradient)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole training."""
        return self.weight.total_steps

    @property
    def q_max(self) -> int:
        """Most bits of the forward pass."""
        return max(bits for schedule in (self.weight, self.activation) for _, _, bits in schedule.runs())

    def bits(self, step: int) -> tuple[int, int, int]:
        """Bits of weights, activations and gradients at a step.

        Raises:
            ValueError: The step lies outside the training.
        """
        return self.weight.bits(step), self.activation.bits(step), self.gradient.bits(step)

    def runs(self) -> list[tuple[int, int, tuple[int, int, int]]]:
        """Stretches of equal bits: first step, number of steps, bits of the three roles.

        Examples:
            >>> s = PrecisionSchedule.static(8, total_steps=4)
            >>> RoleSchedules(weight=s, activation=s.with_deficit(length=1, bits=4), gradient=s).runs()
            [(0, 1, (8, 4, 8)), (1, 3, (8, 8, 8))]
        """
        starts = {start for role in ROLES for start, _, _ in getattr(self, role).runs()}
        edges = sorted(starts | {self.total_steps})
        return [(start, end - start, self.bits(start)) for start, end in itertools.pairwise(edges)]

    def relative_cost(self, reference: int = 32) -> float:
        """Cost in BitOPs, relative to training all the time at `reference` bits in every role."""
        check_bits("reference", reference)
        own = sum(length * role_bitops_per_mac(*bits) for _, length, bits in self.runs())
        return own / (self.total_steps * role_bitops_per_mac(reference, reference, reference))

    def to_dict(self) -> dict[str, Any]:
        """The schedules as plain values for JSON or YAML, with the version of the format."""
        return {"format": FORMAT, "kind": "roles", **{role: getattr(self, role).to_dict() for role in ROLES}}

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> RoleSchedules:
        """The schedules that `to_dict` wrote.

        Raises:
            ValueError: Another kind, a version this trivet does not know, or a missing role.

        Examples:
            >>> roles = RoleSchedules.of(PrecisionSchedule.static(6, total_steps=4), grad_bits=8)
            >>> RoleSchedules.from_dict(roles.to_dict()) == roles
            True
        """
        if mapping.get("kind") != "roles" or mapping.get("format") != FORMAT:
            found = f"kind={mapping.get('kind')!r}, format={mapping.get('format')!r}"
            raise ValueError(
                f"{found} must be kind='roles', format={FORMAT}; is this the dictionary of role schedules?"
            )
        if set(mapping) != {"kind", "format", *ROLES}:
            raise ValueError(
                f"the keys must be {', '.join(ROLES)}, besides kind and format; found: {', '.join(mapping)}"
            )
        return cls(**{role: schedule_from_dict(mapping[role]) for role in ROLES})


def role_bitops_per_mac(weight: int, activation: int, gradient: int) -> int:
    """BitOPs of one multiply-accumulate in one training step: b_w b_a + b_g (b_w + b_a).

    Examples:
        >>> role_bitops_per_mac(8, 8, 8), role_bitops_per_mac(4, 8, 8)
        (192, 128)
    """
    return weight * activation + gradient * (weight + activation)
