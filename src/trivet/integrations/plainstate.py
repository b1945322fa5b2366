"""The state of a controller as JSON, and the settings that a state implies.

Tensors become lists of numbers; float32 values survive that exactly. A state names its schedules, bits by role and by
layer, and the layers it belongs to, so that a callback can be made from it alone.

Not covered: tensors of complex or quantized types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trivet.integrations.steering import Settings
from trivet.precision import RoleSchedules, schedule_from_dict
from trivet.precision.plan import Bits

_TENSOR = "tensor"
_DTYPE = "dtype"


def to_json(value: Any) -> Any:
    """A state with tensors as plain values.

    Examples:
        >>> to_json({"ranges": [torch.tensor([0.5, 1.0])]})
        {'ranges': [{'tensor': [0.5, 1.0], 'dtype': 'float32'}]}
    """
    if isinstance(value, torch.Tensor):
        return {_TENSOR: value.tolist(), _DTYPE: str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Mapping):
        return {key: to_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(inner) for inner in value]
    return value


def from_json(value: Any) -> Any:
    """What `to_json` was given, but for tuples, which become lists.

    Examples:
        >>> from_json(to_json([torch.tensor(2.5), 3]))
        [tensor(2.5000), 3]
    """
    if isinstance(value, Mapping):
        if set(value) == {_TENSOR, _DTYPE}:
            return torch.tensor(value[_TENSOR], dtype=getattr(torch, value[_DTYPE]))
        return {key: from_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [from_json(inner) for inner in value]
    return value


def implied_settings(
    state: Mapping[str, Any], chosen: list[str], *, total_steps: int, quantizer: str, dequantize: bool
) -> Settings:
    """Settings of a callback that goes on from a state.

    Args:
        state: Of a controller.
        chosen: Names of the layers that were quantized.
        total_steps: As in `Settings`.
        quantizer: Name of the quantizer.
        dequantize: As in `Settings`.
    """
    given = state["schedule"]
    schedule = RoleSchedules.from_dict(given) if given.get("kind") == "roles" else schedule_from_dict(given)
    plans = {pattern: {role: _bits(bits) for role, bits in plan.items()} for pattern, plan in state["plans"].items()}
    names = frozenset(chosen)
    return Settings(
        schedule=schedule,
        total_steps=total_steps,
        evaluate_bits=state["evaluate_bits"]["*"][0],
        seed=state["seed"],
        roles=plans.pop("*"),
        overrides=plans,
        filter_fn=lambda module, name: name in names,
        quantizer=quantizer,
        dequantize=dequantize,
    )


def _bits(value: Any) -> Bits:
    return value if isinstance(value, int) else schedule_from_dict(value)
