"""What the controller follows: bits for each role of each layer, with exceptions by layer.

A plan is a schedule or a constant number of bits for each role. The plan of the whole model comes from the schedule and
the gradient bits of the controller, changed by `roles`; `overrides` maps patterns of layer names (as in file names:
`layer1.*`, `*.attention:qk`) to changes for these layers alone. Of several patterns that match, the last one counts.

Not covered: bits learned from data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trivet.core.errors import unknown_name
from trivet.precision.base import Schedule
from trivet.precision.checks import check_bits
from trivet.precision.roles import ROLES, RoleSchedules

Bits = Schedule | int
"""A schedule, or the same bits at every step."""

Override = Bits | Mapping[str, Bits]
"""Bits of forward roles (weight and activation), or bits by role."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolePlan:
    """Bits of the roles of a group of layers."""

    weight: Bits
    activation: Bits
    gradient: Bits

    @classmethod
    def of(cls, schedule: Schedule | RoleSchedules, grad_bits: int) -> RolePlan:
        """The plan of a schedule, which may be one for each role already."""
        if isinstance(schedule, RoleSchedules):
            return cls(weight=schedule.weight, activation=schedule.activation, gradient=schedule.gradient)
        return cls(weight=schedule, activation=schedule, gradient=grad_bits)

    def bits(self, step: int) -> tuple[int, int, int]:
        """Bits of weight, activation and gradient at a step; after the end of a schedule, its last ones."""
        return _at(self.weight, step), _at(self.activation, step), _at(self.gradient, step)

    def most(self) -> tuple[int, int]:
        """The most bits that weight and activation ever have."""
        return _most(self.weight), _most(self.activation)

    def changed(self, change: Override, where: str) -> RolePlan:
        """The plan with some roles changed.

        Raises:
            ValueError: An unknown role, or bits outside [1, 32].
            TypeError: Neither a schedule nor a whole number.
        """
        if not isinstance(change, Mapping):
            change = {"weight": change, "activation": change}
        checked: dict[str, Bits] = {}
        for role, bits in change.items():
            if role not in ROLES:
                raise ValueError(f"{where}: " + unknown_name("role", role, ROLES))
            checked[role] = bits if isinstance(bits, Schedule) else check_bits(f"{where}[{role!r}]", bits)
        return replace(self, **checked)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {role: _plain(getattr(self, role)) for role in ROLES}


def _at(bits: Bits, step: int) -> int:
    return bits if isinstance(bits, int) else bits.bits(min(step, bits.total_steps - 1))


def _most(bits: Bits) -> int:
    return bits if isinstance(bits, int) else bits.q_max


def _plain(bits: Bits) -> Any:
    return bits if isinstance(bits, int) else bits.to_dict()
