"""Quantizers: what happens to the weight, the input and the output gradient of a layer.

| tensor | range | rounding |
|---|---|---|
| weight | per output channel, current values | nearest |
| activation | per tensor, current batch in training; running mean of the ranges in evaluation | nearest |
| gradient of the layer's output | per tensor, current batch | stochastic; one result serves both backward products |

The backward pass through the rounding of weights and activations is the identity for every element (straight-through
estimator, no clipping mask). `AffineQuantizer` is the default, `PublishedQuantizer` repeats the reference code of
arXiv 2101.09868 and 2403.02243: floating-point offset, running ranges that start at 0, ranges poisoned by NaN, a
quantized bias, and for inputs of three or more dimensions one gradient range per position. Both round gradients with
the keyed noise of `noise.py`.

Not covered: integer execution, learned ranges, power-of-two scales.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.autograd.function import once_differentiable

from trivet.precision.buffers import Buffers, is_subclass, is_unshared
from trivet.precision.counters import Counter
from trivet.precision.noise import noise_of_part
from trivet.precision.plain import (
    ChannelGrid,
    PlainGrid,
    PublishedGrid,
    channel_grid,
    plain_extremes,
    plain_grid,
    plain_range,
    published_grid,
    round_plain,
)
from trivet.precision.rounding import (
    Grid,
    finite_range,
    in_eager_cpu,
    make_grid,
    published_round,
    raw_range,
    round_to_grid,
    widen,
)
from trivet.training.ranks import Ranks

ALONE = Ranks()
"""One process, which holds whole tensors."""

Probe = Callable[[torch.Tensor, torch.Tensor], None]
"""Looks at a tensor and at what it was rounded to."""

MOMENTUM = 0.9
"""Share of the old value in the running range of activations."""


class RunningRange:
    """Exponential mean of the ranges of a layer's input, with a memory of whether it has seen any.

    The first range is taken as it is; later ones enter with weight 1 − momentum. `from_zero` starts at the range
    (0, 0) and always weighs, as the reference code does.
    """

    def __init__(self, device: torch.device, *, from_zero: bool = False) -> None:
        self.bounds = torch.zeros(2, device=device)
        """Lower and upper bound."""
        self.blend = torch.tensor((1.0 - MOMENTUM) if from_zero else 1.0, device=device)
        """Weight of the next range: 1 until the first one has been seen."""

    def in_mode(self, low: torch.Tensor, high: torch.Tensor, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The range to round with, given that of the batch; the mode is update, current or running."""
        if mode == "current":
            return low, high
        self._move(low.device)
        found = torch.stack((low, high)).float()
        if mode == "update":
            self.bounds.lerp_(found, self.blend)
            self.blend.fill_(1.0 - MOMENTUM)
            return low, high
        bounds = torch.where(self.blend < 1.0, self.bounds, found)  # of the batch when none has been seen
        return bounds[0], bounds[1]

    def in_mode_plain(self, low: float, high: float, mode: str) -> tuple[float, float]:
        """The same, given numbers."""
        if mode == "update":
            self.bounds.lerp_(torch.tensor((low, high), device=self.bounds.device), self.blend)
            self.blend.fill_(1.0 - MOMENTUM)
        elif mode == "running" and float(self.blend) < 1.0:
            low, high = self.bounds.tolist()
        return low, high

    def _move(self, device: torch.device) -> None:
        if self.bounds.device != device:
            self.bounds = self.bounds.to(device)
            self.blend = self.blend.to(device)


class Quantizer(Protocol):
    """What a layer needs of a quantizer; all tensors are rounded to `levels` + 1 values."""

    from_zero: bool
    """Whether running ranges start at zero."""
    quantizes_bias: bool
    """Whether the bias is rounded too."""
    published: bool
    """Whether gradients are rounded as published."""

    def rows(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...] = ()) -> torch.Tensor:
        """Round with one range per index of the dimensions that are not among `dims`, straight-through.

        Without `dims`, one range for all.
        """
        ...

    def activation(
        self,
        x: torch.Tensor,
        levels: torch.Tensor,
        ranges: RunningRange,
        counter: Counter,
        *,
        mode: str,
        buffers: Buffers | None = None,
        ranks: Ranks = ALONE,
    ) -> torch.Tensor:
        """Round with one range, straight-through.

        Args:
            x: Not empty.
            levels: 0-d, 2^b − 1.
            ranges: Running range of this operand.
            counter: Raised by the number of elements that were not finite.
            mode: Range to take: update (that of x, which the running one takes in), current (that of x) or running.
            buffers: Memory for the result.
            ranks: Processes that hold the other parts of the same tensor.
        """
        ...


class AffineQuantizer:
    """The default: integer zero-point, finite ranges."""

    from_zero = False
    quantizes_bias = False
    published = False

    def rows(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...] = ()) -> torch.Tensor:
        """Round with one range per index of the dimensions that are not among `dims`, straight-through."""
        if in_eager_cpu(x) and (grid := _weight_grid(widen(x.detach()), levels.item(), dims)) is not None:
            return _RoundPlain.apply(x, grid, None)
        with torch.no_grad():
            low, high, bad = finite_range(widen(x), dims)
            grid = make_grid(low, high, levels)
        return _RoundToGrid.apply(x, *grid, bad is not None)

    def activation(
        self,
        x: torch.Tensor,
        levels: torch.Tensor,
        ranges: RunningRange,
        counter: Counter,
        *,
        mode: str,
        buffers: Buffers | None = None,
        ranks: Ranks = ALONE,
    ) -> torch.Tensor:
        """Round with one range, straight-through; see `Quantizer.activation`."""
        if ranks.size == 1 and in_eager_cpu(x) and (found := plain_range(widen(x.detach()))) is not None:
            low, high = ranges.in_mode_plain(*found, mode)
            double, within = x.dtype == torch.float64, mode != "running"
            grid = plain_grid(low, high, levels.item(), double=double, within=within)
            return _RoundPlain.apply(x, grid, buffers)
        with torch.no_grad():
            low, high, bad = finite_range(widen(x))
            if bad is not None:
                counter.add(bad)
            low, high = ranges.in_mode(*ranks.widest(low, high), mode)
            grid = make_grid(low, high, levels)
        return _RoundToGrid.apply(x, *grid, bad is not None)


class PublishedQuantizer:
    """As in the reference code of cyclic precision training."""

    from_zero = True
    quantizes_bias = True
    published = True

    def rows(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...] = ()) -> torch.Tensor:
        """Round with one range per index of the dimensions that are not among `dims`, straight-through."""
        with torch.no_grad():
            low, high = raw_range(widen(x), dims)
        return _PublishedRound.apply(x, low, high - low, levels)

    def activation(
        self,
        x: torch.Tensor,
        levels: torch.Tensor,
        ranges: RunningRange,
        counter: Counter,
        *,
        mode: str,
        buffers: Buffers | None = None,
        ranks: Ranks = ALONE,
    ) -> torch.Tensor:
        """Round with one range, straight-through; see `Quantizer.activation`."""
        if ranks.size == 1 and in_eager_cpu(x) and (found := plain_extremes(widen(x.detach()))) is not None:
            low, high = ranges.in_mode_plain(*found, mode)
            if math.isfinite(high - low):
                grid = published_grid(low, high, levels.item(), double=x.dtype == torch.float64)
                return _RoundPlain.apply(x, grid, buffers)
        with torch.no_grad():
            low, high = raw_range(widen(x))
            low, high = ranges.in_mode(*ranks.widest(low, high), mode)
        return _PublishedRound.apply(x, low, high - low, levels)


def _weight_grid(wide: torch.Tensor, levels: float, dims: tuple[int, ...]) -> PlainGrid | ChannelGrid | None:
    """The grid of a tensor whose range is its own, where that needs no tensors of ranges."""
    if is_subclass(wide):
        return None
    if dims:
        return channel_grid(wide, dims, levels)
    found = plain_range(wide)
    return None if found is None else plain_grid(*found, levels, double=wide.dtype == torch.float64)


def quantize_output_gradient(
    y: torch.Tensor,
    levels: torch.Tensor,
    offset: int | torch.Tensor,
    counter: Counter,
    *,
    published: bool,
    by_position: bool,
    probe: Probe | None = None,
    ranks: Ranks = ALONE,
    blocks: int = 1,
) -> torch.Tensor:
    """Mark a layer's output so that its gradient is rounded, stochastically, before it reaches the layer.

    Args:
        y: Output of the layer, owned by the caller: it is returned itself, not a copy.
        levels: 0-d, 2^b − 1.
        offset: Where the noise begins, from `noise.stream_offset`.
        counter: Raised by the number of gradient elements that were not finite.
        published: Round as the reference code.
        by_position: Published ranges per position: over the first and the last dimension only.
        probe: Called with the gradient and the rounded one.
        ranks: Processes that hold the other parts of the same tensor.
        blocks: Of how many blocks, one after another, each was cut into these parts.

    Returns:
        The output, with the same values.
    """
    return _RoundGradient.apply(y, levels, offset, counter.tensor, published, by_position, probe, ranks, blocks)


class _RoundToGrid(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any,
        x: torch.Tensor,
        scale: torch.Tensor,
        first: torch.Tensor,
        last: torch.Tensor,
        keep_non_finite: bool,
    ) -> torch.Tensor:
        y = round_to_grid(widen(x), Grid(scale, first, last), keep_non_finite=keep_non_finite)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        return grads[0], None, None, None, None


class _RoundPlain(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any, x: torch.Tensor, grid: PlainGrid | PublishedGrid | ChannelGrid, buffers: Buffers | None
    ) -> torch.Tensor:
        wide = widen(x)
        if wide is not x:  # a copy already
            return round_plain(wide, grid, out=wide).to(x.dtype)
        return round_plain(x, grid, out=torch.empty_like(x) if buffers is None else buffers.like(x))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return grads[0], None, None


class _PublishedRound(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any, x: torch.Tensor, low: torch.Tensor, span: torch.Tensor, levels: torch.Tensor
    ) -> torch.Tensor:
        return published_round(widen(x), low, span, levels).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return grads[0], None, None, None


class _RoundGradient(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any,
        y: torch.Tensor,
        levels: torch.Tensor,
        offset: int | torch.Tensor,
        counter: torch.Tensor,
        published: bool,
        by_position: bool,
        probe: Probe | None,
        ranks: Ranks,
        blocks: int,
    ) -> torch.Tensor:
        # Not save_for_backward: the bits and the counter change in place between forward and backward of
        # accumulated batches, which is meant.
        ctx.levels, ctx.offset, ctx.counter = levels, offset, counter
        ctx.published, ctx.by_position, ctx.probe, ctx.ranks = published, by_position, probe, ranks
        ctx.blocks = blocks
        if torch.compiler.is_compiling():
            return y.clone()  # fused away by the compiler
        # Returned as changed in place, the output is no view: ReLU(inplace=True) may follow.
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override]
        ctx: Any, *grads: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None, None, None, None, None]:
        grad = grads[0]
        # Counted here, before this function makes more.
        references = 0 if torch.compiler.is_compiling() else sys.getrefcount(grad)
        if grad.numel() == 0:
            return grad, None, None, None, None, None, None, None, None
        wide = widen(grad)
        ranks = ctx.ranks
        noise = noise_of_part(wide, ctx.offset, rank=ranks.rank, size=ranks.size, blocks=ctx.blocks)
        grid = _gradient_grid(ctx, wide)
        if grid is None:
            rounded = _rounded_gradient(ctx, wide, noise)
        elif ctx.probe is None and (wide is not grad or is_unshared(grad, references)):
            rounded = round_plain(wide, grid, noise, out=wide)
        else:
            rounded = round_plain(wide, grid, noise)
        if ctx.probe is not None:
            ctx.probe(wide, rounded)
        return rounded.to(grad.dtype), None, None, None, None, None, None, None, None


def _gradient_grid(ctx: Any, wide: torch.Tensor) -> PlainGrid | PublishedGrid | None:
    """The grid of a gradient as numbers, where that is possible."""
    if not in_eager_cpu(wide) or (ctx.published and ctx.by_position) or ctx.ranks.size > 1:
        return None
    double = wide.dtype == torch.float64
    if ctx.published:
        found = plain_extremes(wide)
        return None if found is None else published_grid(*found, ctx.levels.item(), double=double)
    found = plain_range(wide)
    return None if found is None else plain_grid(*found, ctx.levels.item(), double=double, stochastic=True)


def _rounded_gradient(ctx: Any, wide: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """A gradient rounded with tensors of ranges."""
    if ctx.published:
        low, high = ctx.ranks.widest(*raw_range(wide, (0, -1) if ctx.by_position else ()))
        return published_round(wide, low, high - low, ctx.levels, noise)
    low, high, bad = finite_range(wide)
    if bad is not None:
        ctx.counter.add_(bad)
    low, high = ctx.ranks.widest(low, high)
    grid = make_grid(low, high, ctx.levels, stochastic=True)
    return round_to_grid(wide, grid, noise, keep_non_finite=bad is not None)
