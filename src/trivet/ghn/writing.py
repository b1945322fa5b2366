"""Predicted parameters into the storage of a module: what can take them, and writing them.

Not covered: which parameters are predicted (`targets.py`) and what they are made of (`tile.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trivet.ghn.groups import Part
from trivet.ghn.tile import spread, write_


def why_unwritable(parameter: Tensor) -> str:
    """Why a parameter cannot or should not take predicted values; empty if it can.

    Examples:
        >>> why_unwritable(torch.nn.Parameter(torch.zeros(2)))
        ''
        >>> why_unwritable(torch.nn.Parameter(torch.zeros(2), requires_grad=False))
        'it is frozen (`requires_grad=False`)'
    """
    if not parameter.is_floating_point():
        return f"it holds {str(parameter.dtype).removeprefix('torch.')}, and only floating-point numbers are predicted"
    if not parameter.requires_grad:
        return "it is frozen (`requires_grad=False`)"
    if parameter.is_inference():
        return "it was made in inference mode and cannot be changed"
    if any(step == 0 and size > 1 for step, size in zip(parameter.stride(), parameter.shape, strict=True)):
        return "several of its entries share one place in memory"
    return ""


def overflows(part: Part, block: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> str:
    """Name of a parameter of a part whose type cannot hold what is predicted for it; empty if there is none."""
    narrow = [name for _, name in part.names if name in parameters and parameters[name].dtype == torch.float16]
    if not narrow:
        return ""
    largest = float(block[part.target.kind].abs().amax()) * max(1.0, part.target.scale)
    return narrow[0] if largest > torch.finfo(torch.float16).max else ""


def made(part: Part, block: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Parameters of one part, as new tensors."""
    values = block[part.target.kind]
    chosen = values if part.picked is None else values.index_select(0, part.picked)
    return spread(chosen, part.target).unbind(0)


def write_part(part: Part, block: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Fill those parameters of one part that are among `parameters`."""
    if part.target.form == "vector":
        chosen = [index for index, (_, name) in enumerate(part.names) if name in parameters]
        values = made(part, block)
        if chosen:
            into = [parameters[part.names[index][1]].detach() for index in chosen]
            torch._foreach_copy_(into, [values[index] for index in chosen])
        return
    blocks = block[part.target.kind]
    for (_, name), row in zip(part.names, part.rows, strict=True):
        if name in parameters:
            write_(parameters[name].detach(), blocks[row], part.target)
