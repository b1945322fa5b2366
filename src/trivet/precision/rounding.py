"""Rounding tensors to few levels: ranges, grids and the rounding itself, without autograd.

Default (`Grid`): codes 0 … 2^b − 1 with an integer zero-point z, so that zero is exact,

    low = min(min x, 0), high = max(max x, 0) over the finite elements
    scale = high / levels − low / levels,   z = round(−low / scale),   levels = 2^b − 1
    x̂ = (clamp(round(x / scale) + z, 0, levels) − z) × scale

Published (`published_round`): offset `low` in floating point, so zero is in general not representable,

    scale = max((high − low) / levels, 1e-8),   x̂ = round(clamp((x − low) / scale, 0, levels)) × scale + low

Stochastic rounding adds noise in (−½, ½) before rounding. So that the ends of the range are not cut, which would bias
the largest elements, it spreads the range over one step less and puts z at the next whole number above; at 1 bit there
is no step to give, and the ends are cut. An element that is not finite stays what it is: it neither
moves the range nor hides from a gradient scaler. Finite elements beyond a quarter of the largest floating-point number
are cut there, so that a grid, which may reach a step beyond the elements, holds finite numbers only.
Everything is computed in float32 (float64 for float64 input) and returned in the dtype of the input.

Sources: the default is the affine scheme of arXiv 1712.05877; the published one that of arXiv 2101.09868. Not covered:
integer arithmetic; the results are floating-point numbers that lie on a grid. Above 24 bits float32 itself is coarser
than the grid; the published rounding of numbers that large overflows, as its reference does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from trivet.precision.layout import in_memory_order

FLOOR = 2.0**-100
"""Scale of a tensor that is all zero; small enough to keep gradients of any size."""

STEPS_LOST = 1.001
"""Steps that stochastic rounding gives up, so that no element can be rounded beyond the grid."""

PUBLISHED_FLOOR = 1e-8
"""Smallest scale of the published rounding."""


class Range(NamedTuple):
    """Smallest and largest value, and how many elements were not finite."""

    low: torch.Tensor
    """0-d, or one per channel with kept dimensions."""
    high: torch.Tensor
    """Like `low`."""
    non_finite: torch.Tensor | None
    """0-d int64; None when it is known that there are none."""


class Grid(NamedTuple):
    """The values a tensor is rounded to: code × scale, for whole codes from `first` to `last`."""

    scale: torch.Tensor
    """Distance of neighboring values."""
    first: torch.Tensor
    """Code of the smallest value, ≤ 0."""
    last: torch.Tensor
    """Code of the largest value, ≥ 0."""


def widen(x: torch.Tensor) -> torch.Tensor:
    """The tensor in the dtype that ranges and grids are computed in.

    Examples:
        >>> widen(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def range_limit(dtype: torch.dtype) -> float:
    """A quarter of the largest number of a dtype; ranges end there, so that no grid overflows.

    Examples:
        >>> range_limit(torch.float32) < 8.6e37
        True
    """
    return torch.finfo(dtype).max / 4


def in_eager_cpu(x: torch.Tensor) -> bool:
    """Whether reading a number out of the tensor is free: an ordinary CPU tensor outside `torch.compile`."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def raw_range(x: torch.Tensor, dims: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    """Smallest and largest value over `dims` (kept), or over all when none are given.

    Examples:
        >>> raw_range(torch.tensor([[1.0, -2.0], [0.5, 3.0]]), (1,))[1].tolist()
        [[1.0], [3.0]]
    """
    if not dims:
        low, high = torch.aminmax(in_memory_order(x))
        return low, high
    return x.amin(dims, keepdim=True), x.amax(dims, keepdim=True)


def finite_range(x: torch.Tensor, dims: tuple[int, ...] = ()) -> Range:
    """Range of the finite elements, widened to contain zero, and cut at `range_limit`.

    Args:
        x: float32 or float64, not empty.
        dims: Dimensions to reduce; all when none are given.

    Examples:
        >>> r = finite_range(torch.tensor([1.0, float("nan"), float("inf"), -2.0]))
        >>> r.low.item(), r.high.item(), r.non_finite.item()
        (-2.0, 1.0, 2)
    """
    bad: torch.Tensor | None = None
    if in_eager_cpu(x):
        low, high = raw_range(x, dims)
        # A NaN or infinity anywhere shows in the sum of the extremes; only then a second look is needed.
        if not math.isfinite(float((low + high).sum())):
            bad = (~torch.isfinite(x)).sum()
            low, high = raw_range(torch.nan_to_num(x, 0.0, 0.0, 0.0), dims)
    else:
        bad = (~torch.isfinite(x)).sum()
        low, high = raw_range(torch.nan_to_num(x, 0.0, 0.0, 0.0), dims)
    limit = range_limit(x.dtype)
    return Range(low.clamp(min=-limit, max=0.0), high.clamp(min=0.0, max=limit), bad)


def make_grid(low: torch.Tensor, high: torch.Tensor, levels: torch.Tensor, *, stochastic: bool = False) -> Grid:
    """Grid with an integer zero-point for a range that contains zero.

    Args:
        low: ≤ 0.
        high: ≥ 0.
        levels: 0-d, 2^b − 1.
        stochastic: Whether noise will be added before rounding.

    Examples:
        >>> grid = make_grid(torch.tensor(-1.0), torch.tensor(2.0), torch.tensor(3.0))
        >>> [part.item() for part in grid]
        [1.0, -1.0, 2.0]
    """
    steps = torch.where(levels > 1, levels - STEPS_LOST, levels) if stochastic else levels
    scale = (high / steps - low / steps).clamp(min=FLOOR)
    zero = -low / scale
    below = torch.where(levels > 1, zero.ceil(), zero.round()) if stochastic else zero.round()
    below = torch.minimum(below, levels)
    return Grid(scale, -below, levels - below)


def round_to_grid(
    x: torch.Tensor, grid: Grid, noise: torch.Tensor | None = None, *, keep_non_finite: bool = False
) -> torch.Tensor:
    """Round every element to the grid.

    Args:
        x: float32 or float64.
        grid: Scalars, or one value per channel that broadcasts against x.
        noise: Added before rounding, in units of the scale.
        keep_non_finite: Whether x may hold NaN or infinities, which then stay.

    Examples:
        >>> grid = make_grid(torch.tensor(-1.0), torch.tensor(2.0), torch.tensor(3.0))
        >>> round_to_grid(torch.tensor([-5.0, 0.0, 0.6, 9.0]), grid).tolist()
        [-1.0, 0.0, 1.0, 2.0]
    """
    inverse = grid.scale.reciprocal()
    plain = in_eager_cpu(x) and inverse.dim() == 0
    if noise is None:
        y = x * inverse
    elif plain:
        y = torch.add(noise, x, alpha=float(inverse))
    else:
        y = torch.addcmul(noise, x, inverse)
    y.round_()
    if plain:
        y.clamp_(float(grid.first), float(grid.last))  # scalar bounds are vectorized, tensor bounds are not
    else:
        y = torch.minimum(torch.maximum(y, grid.first), grid.last)
    y.mul_(grid.scale)
    return torch.where(torch.isfinite(x), y, x) if keep_non_finite else y


def published_round(
    x: torch.Tensor, low: torch.Tensor, span: torch.Tensor, levels: torch.Tensor, noise: torch.Tensor | None = None
) -> torch.Tensor:
    """Round as the reference code of cyclic precision training does, in its order of operations.

    Args:
        x: float32 or float64.
        low: Smallest value, broadcasting against x.
        span: Largest minus smallest value.
        levels: 0-d, 2^b − 1.
        noise: Added before rounding, in units of the scale.

    Examples:
        >>> zero_to_one = torch.tensor(0.0), torch.tensor(1.0), torch.tensor(3.0)
        >>> published_round(torch.tensor([0.0, 0.4, 1.0]), *zero_to_one).mul(3).tolist()
        [0.0, 1.0, 3.0]
    """
    scale = (span / levels).clamp(min=PUBLISHED_FLOOR)
    y = (x - low).div_(scale)
    if noise is not None:
        y.add_(noise)
    y = torch.minimum(y.clamp_(min=0.0), levels)
    return y.round_().mul_(scale).add_(low)
