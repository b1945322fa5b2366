"""The short way to round a tensor in eager code on a CPU, where reading a number out of a tensor is free.

Range and grid are Python numbers, computed in the precision of the tensor so that they equal those of `rounding.py`.
The passes over the data (scale and add noise, round, scale back) go piece by piece, so that all but the first find the
data in the processor's cache, and the limits of the grid are enforced only where they can be exceeded at all.

The published rounding goes the same way, with the operations of `rounding.published_round` in their order.

Weights, with one range per channel, are small: their passes go over the whole tensor.

Not covered: tensors with elements that are not finite; `rounding.py` does those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from trivet.precision.layout import in_memory_order
from trivet.precision.rounding import FLOOR, PUBLISHED_FLOOR, STEPS_LOST, range_limit, raw_range

_PIECE = 2**17
"""Elements of a piece: half a megabyte in float32."""


class PlainGrid(NamedTuple):
    """A grid as numbers: code × scale, for whole codes from `first` to `last`."""

    scale: float
    inverse: float
    """1 / scale, rounded to the precision of the tensor."""
    first: float
    last: float
    clamp: bool
    """Whether an element could be rounded beyond the grid."""


class PublishedGrid(NamedTuple):
    """The published grid as numbers: low + code × scale, for whole codes from 0 to `levels`."""

    scale: float
    low: float
    levels: float


class ChannelGrid(NamedTuple):
    """Grids of the channels of a tensor, as tensors that broadcast against it."""

    scale: torch.Tensor
    inverse: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor
    clamp: bool
    """Whether an element could be rounded beyond the grid."""


def plain_extremes(x: torch.Tensor) -> tuple[float, float] | None:
    """Smallest and largest element; None when one is not finite or beyond `range_limit`.

    Examples:
        >>> plain_extremes(torch.tensor([1.0, 2.0])), plain_extremes(torch.tensor([1.0, float("nan")]))
        ((1.0, 2.0), None)
    """
    smallest, largest = torch.aminmax(in_memory_order(x))
    low, high = smallest.item(), largest.item()
    limit = range_limit(x.dtype)
    return (low, high) if -limit <= low <= high <= limit else None


def plain_range(x: torch.Tensor) -> tuple[float, float] | None:
    """`plain_extremes`, widened to contain zero.

    Examples:
        >>> plain_range(torch.tensor([1.0, 2.0])), plain_range(torch.tensor([1.0, float("nan")]))
        ((0.0, 2.0), None)
    """
    found = plain_extremes(x)
    return None if found is None else (min(found[0], 0.0), max(found[1], 0.0))


def plain_grid(
    low: float, high: float, levels: float, *, double: bool = False, stochastic: bool = False, within: bool = True
) -> PlainGrid:
    """The grid of `rounding.make_grid`, as numbers.

    Args:
        low: ≤ 0.
        high: ≥ 0.
        levels: 2^b − 1.
        double: Whether the tensor is float64.
        stochastic: Whether noise will be added.
        within: Whether all elements lie in the range.

    Examples:
        >>> plain_grid(-1.0, 2.0, 3.0)[:4]
        (1.0, 1.0, -1.0, 2.0)
    """
    number = np.float64 if double else np.float32
    a, b, steps = number(low), number(high), np.float32(levels)
    spread = stochastic and levels > 1
    if spread:
        steps -= np.float32(STEPS_LOST)
    scale = max(b / steps - a / steps, number(FLOOR))
    below = min(float((np.ceil if spread else np.rint)(-a / scale)), levels)
    inverse = number(1.0) / scale
    last = levels - below
    inside = within and (spread or (not stochastic and np.rint(a * inverse) >= -below and np.rint(b * inverse) <= last))
    return PlainGrid(float(scale), float(inverse), -below, last, not inside)


def published_grid(low: float, high: float, levels: float, *, double: bool = False) -> PublishedGrid:
    """The grid of `rounding.published_round`, as numbers.

    Args:
        low: Of the range, finite, a number in the precision of the tensor.
        high: Likewise.
        levels: 2^b − 1.
        double: Whether the tensor is float64.

    Examples:
        >>> published_grid(1.0, 4.0, 3.0)
        PublishedGrid(scale=1.0, low=1.0, levels=3.0)
    """
    number = np.float64 if double else np.float32
    scale = max((number(high) - number(low)) / np.float32(levels), number(PUBLISHED_FLOOR))
    return PublishedGrid(float(scale), low, levels)


def channel_grid(x: torch.Tensor, dims: tuple[int, ...], levels: float) -> ChannelGrid | None:
    """The grids of `rounding.make_grid` for one range per channel; None when an element is not finite or too large.

    Args:
        x: float32 or float64.
        dims: Dimensions that are not those of the channels.
        levels: 2^b − 1.

    Examples:
        >>> grid = channel_grid(torch.tensor([[-1.0, 2.0], [0.0, 6.0]]), (1,), 3.0)
        >>> None if grid is None else grid.scale.tolist()
        [[1.0], [2.0]]
    """
    a, b = (extreme.numpy() for extreme in raw_range(x, dims))
    limit = range_limit(x.dtype)
    if not (a.min() >= -limit and b.max() <= limit):  # false for NaN too
        return None
    a, b, steps = np.minimum(a, 0.0), np.maximum(b, 0.0), np.float32(levels)
    scale = np.maximum(b / steps - a / steps, FLOOR)
    below = np.minimum(np.rint(-a / scale), steps)
    inverse, first, last = 1.0 / scale, -below, steps - below
    clamp = bool((np.rint(a * inverse) < first).any() or (np.rint(b * inverse) > last).any())
    as_tensor = torch.from_numpy
    return ChannelGrid(as_tensor(scale), as_tensor(inverse), as_tensor(first), as_tensor(last), clamp)


def round_plain(
    x: torch.Tensor,
    grid: PlainGrid | PublishedGrid | ChannelGrid,
    noise: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Round every element to the grid.

    Args:
        x: float32 or float64, all finite.
        grid: From `plain_grid`, `published_grid` or `channel_grid`.
        noise: Same shape; added before rounding, in units of the scale; not for grids of channels.
        out: Where to write, laid out like x, or x itself; fresh memory when left out.

    Examples:
        >>> round_plain(torch.tensor([-1.0, 0.0, 0.6, 2.0]), plain_grid(-1.0, 2.0, 3.0)).tolist()
        [-1.0, 0.0, 1.0, 2.0]
        >>> round_plain(torch.tensor([1.0, 2.4, 4.0]), published_grid(1.0, 4.0, 3.0)).tolist()
        [1.0, 2.0, 4.0]
    """
    y = torch.empty_like(x) if out is None else out
    if isinstance(grid, ChannelGrid):
        _round_channels(grid, x, y)
        return y
    whole = [in_memory_order(tensor) for tensor in ((x, y) if noise is None else (x, y, noise))]
    split = x.numel() > _PIECE and all(tensor.is_contiguous() for tensor in whole)
    work = _round if isinstance(grid, PlainGrid) else _round_published
    if split:
        for part in zip(*(tensor.view(-1).split(_PIECE) for tensor in whole), strict=True):
            work(grid, *part)  # pyrefly: ignore[bad-argument-type]
    else:
        work(grid, x, y, noise)  # pyrefly: ignore[bad-argument-type]
    return y


def _round(grid: PlainGrid, x: torch.Tensor, y: torch.Tensor, noise: torch.Tensor | None = None) -> None:
    if noise is None:
        torch.mul(x, grid.inverse, out=y)
    else:
        torch.add(noise, x, alpha=grid.inverse, out=y)
    y.round_()
    if grid.clamp:
        y.clamp_(grid.first, grid.last)
    y.mul_(grid.scale)


def _round_channels(grid: ChannelGrid, x: torch.Tensor, y: torch.Tensor) -> None:
    torch.mul(x, grid.inverse, out=y)
    y.round_()
    if grid.clamp:
        torch.maximum(y, grid.first, out=y)
        torch.minimum(y, grid.last, out=y)
    y.mul_(grid.scale)


def _round_published(grid: PublishedGrid, x: torch.Tensor, y: torch.Tensor, noise: torch.Tensor | None = None) -> None:
    torch.sub(x, grid.low, out=y)
    y.div_(grid.scale)
    if noise is not None:
        y.add_(noise)
    y.clamp_(0.0, grid.levels).round_().mul_(grid.scale).add_(grid.low)
