"""From a decoded block to a parameter: repeated until it fills the parameter's shape, and cut there.

Entry (o, i, y, x) of a parameter is entry (o mod O, i mod I, y, x) of its block, where O and I are the smaller of the
parameter's and the decoder's channels. That is what published code computes wherever it does not crash: it decodes a
block of at least the needed size and cuts it before it repeats it, and its rule for small inputs, which fails for
numbers of inputs that do not divide the decoder's, otherwise picks just these entries.

`spread` makes new tensors that gradients flow through. `write_` fills existing storage in one pass, tiling and scaling
together, and needs no memory beyond the block. The two agree bit for bit. Vectors are small and many, so they take the
way over `spread`, all of equal shape together.

Not covered: kernels larger than the decoder's; the decoder enlarges them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trivet.ghn.anchor import add_
from trivet.ghn.targets import Target


def spread(block: Tensor, target: Target) -> Tensor:
    """Parameters made of decoded blocks.

    Args:
        block: Blocks [n, O, I, height, width], or [n, O] of vectors.
        target: What all of them become.

    Returns:
        Parameters [n, *target.shape], contiguous.
    """
    n = block.shape[0]
    if target.form == "vector":
        values = _repeated(block[:, : target.view[0]], 1, target.view[0])
        return _along_channel(values, target.shape).contiguous()
    out, inputs = target.view[:2]
    block = block[:, :out, :inputs]
    if target.scale != 1.0:
        block = block * target.scale
    full = _repeated(_repeated(block, 2, inputs), 1, out)
    if target.anchor is not None:
        full = full.clone() if target.scale == 1.0 else full  # else it is new already
        add_(full, target.anchor)
    if target.swapped:
        full = full.transpose(1, 2)
    if target.form == "flat":
        full = full[..., 0].expand(n, out, inputs, target.shape[1] // inputs)
    elif target.form == "volume":
        full = full.unsqueeze(3).expand(n, *target.shape)
    elif target.form == "map":
        full = full.permute(0, 1, 3, 4, 2)
    elif target.form == "positions":
        rows = full.flatten(3).squeeze(1).transpose(1, 2)
        front = rows.new_zeros(n, target.shape[-2] - rows.shape[1], rows.shape[2])
        full = torch.cat((front, rows), 1)
    return full.reshape(n, *target.shape).contiguous()


def write_(parameter: Tensor, block: Tensor, target: Target) -> None:
    """Fill one parameter in place, whatever its strides, type and device; call it without gradients.

    Args:
        parameter: What is filled, of shape `target.shape`.
        block: Its block [O, I, height, width], or [O] of a vector.
        target: What the block becomes.
    """
    parameter, block = parameter.detach(), block.to(parameter.device)
    if target.form == "vector":
        axis = _channel(target.shape)
        line = parameter.movedim(axis, 0) if target.shape else parameter
        _fill(line, block[: line.shape[0]].view(-1, *[1] * (len(target.shape) - 1)), 1.0)
        return
    if target.swapped:
        parameter = parameter.transpose(0, 1)
    if target.form == "matrix":
        views = [parameter[:, :, None, None]]
    elif target.form == "flat":
        views = [parameter.unflatten(1, (target.view[1], -1))[..., None]]
        block = block.expand(*block.shape[:2], views[0].shape[2], 1)
    elif target.form == "line":
        views = [parameter.unsqueeze(2)]
    elif target.form == "volume":
        views = list(parameter.unbind(2))
    elif target.form == "map":
        views = [parameter.permute(0, 3, 1, 2)]
    elif target.form == "positions":
        rows = parameter.view(target.shape[-2:]) if parameter.is_contiguous() else parameter.reshape(target.shape[-2:])
        front = target.shape[-2] - math.prod(target.view[2:])
        rows[:front].zero_()
        views = [rows[front:].t().unflatten(1, target.view[2:]).unsqueeze(0)]
    else:
        views = [parameter]
    for view in views:
        _fill(view, block[: target.view[0], : target.view[1]], target.scale)
        if target.anchor is not None:
            add_(view, target.anchor, everywhere=target.form == "flat")


def _channel(shape: tuple[int, ...]) -> int:
    """Dimension of a vector's values: the first one larger than 1."""
    return next((axis for axis, n in enumerate(shape) if n > 1), 0)


def _along_channel(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Vectors [n, channels] as tensors [n, *shape], the same at every position."""
    if len(shape) == 1:
        return values
    axis = _channel(shape)
    ones = [1] * len(shape)
    ones[axis] = values.shape[1]
    return values.reshape(-1, *ones).expand(-1, *shape)


def _repeated(block: Tensor, dim: int, size: int) -> Tensor:
    """Repeat a dimension up to `size` and cut it there."""
    have = block.shape[dim]
    if have == size:
        return block
    times = -(-size // have)
    more = block.unsqueeze(dim).expand(*block.shape[:dim], times, *block.shape[dim:])
    return more.flatten(dim, dim + 1).narrow(dim, 0, size)


def _fill(view: Tensor, block: Tensor, scale: float) -> None:
    """Tile a block over the first two dimensions (the first one of a vector) of a view, times a factor."""
    dims = min(2, view.dim() if block.dim() > 2 else 1)
    for dim in range(dims):
        have, want = block.shape[dim], view.shape[dim]
        rest = want % have
        if rest and want > have:
            _fill(view.narrow(dim, want - rest, rest), block.narrow(dim, 0, rest), scale)
            view = view.narrow(dim, 0, want - rest)
    # Each tiled dimension becomes two, copies and entries, and the block is the same for all copies.
    for dim in range(dims - 1, -1, -1):
        view = view.unflatten(dim, (-1, block.shape[dim]))
        block = block.unsqueeze(dim)
    torch.mul(block.expand(view.shape), scale, out=view)
