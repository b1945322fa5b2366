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

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.autograd.function import once_differentiable

from trivet.precision.counters import Counter
from trivet.precision.noise import noise_like
from trivet.precision.plain import PlainGrid, plain_grid, plain_range, round_plain
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

    def update(self, low: torch.Tensor, high: torch.Tensor) -> None:
        """Take in the range of one batch."""
        self._move(low.device)
        self.bounds.lerp_(torch.stack((low, high)).float(), self.blend)
        self.blend.fill_(1.0 - MOMENTUM)

    def update_plain(self, low: float, high: float) -> None:
        """The same, given numbers."""
        self.bounds.lerp_(torch.tensor((low, high), device=self.bounds.device), self.blend)
        self.blend.fill_(1.0 - MOMENTUM)

    def read_plain(self, low: float, high: float) -> tuple[float, float]:
        """The same as `read`, given numbers."""
        if float(self.blend) >= 1.0:
            return low, high
        first, last = self.bounds.tolist()
        return first, last

    def read(self, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The running range, or the given one when none has been seen yet."""
        self._move(low.device)
        bounds = torch.where(self.blend < 1.0, self.bounds, torch.stack((low, high)).float())
        return bounds[0], bounds[1]

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

    def rows(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        """Round with one range per index of the dimensions that are not among `dims`, straight-through."""
        ...

    def whole(self, x: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """Round with one range, straight-through."""
        ...

    def activation(
        self, x: torch.Tensor, levels: torch.Tensor, ranges: RunningRange, counter: Counter, *, mode: str
    ) -> torch.Tensor:
        """Round with one range, straight-through; `mode` is update, current or running."""
        ...


class AffineQuantizer:
    """The default: integer zero-point, finite ranges."""

    from_zero = False
    quantizes_bias = False
    published = False

    def rows(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        """Round with one range per index of the dimensions that are not among `dims`, straight-through."""
        return self._rounded(x, levels, dims)

    def whole(self, x: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """Round with one range, straight-through."""
        return self._rounded(x, levels, ())

    def _rounded(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        with torch.no_grad():
            low, high, bad = finite_range(widen(x), dims)
            grid = make_grid(low, high, levels)
        return _RoundToGrid.apply(x, *grid, bad is not None)

    def activation(
        self, x: torch.Tensor, levels: torch.Tensor, ranges: RunningRange, counter: Counter, *, mode: str
    ) -> torch.Tensor:
        """Round with one range, straight-through; `mode` is update, current or running."""
        if in_eager_cpu(x) and (found := plain_range(widen(x.detach()))) is not None:
            if mode == "update":
                ranges.update_plain(*found)
            elif mode == "running":
                found = ranges.read_plain(*found)
            double, within = x.dtype == torch.float64, mode != "running"
            return _RoundPlain.apply(x, plain_grid(*found, levels.item(), double=double, within=within))
        with torch.no_grad():
            low, high, bad = finite_range(widen(x))
            if bad is not None:
                counter.add(bad)
            if mode == "update":
                ranges.update(low, high)
            elif mode == "running":
                low, high = ranges.read(low, high)
            grid = make_grid(low, high, levels)
        return _RoundToGrid.apply(x, *grid, bad is not None)


class PublishedQuantizer:
    """As in the reference code of cyclic precision training."""

    from_zero = True
    quantizes_bias = True
    published = True

    def rows(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        """Round with one range per index of the dimensions that are not among `dims`, straight-through."""
        return self._rounded(x, levels, dims)

    def whole(self, x: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """Round with one range, straight-through."""
        return self._rounded(x, levels, ())

    def _rounded(self, x: torch.Tensor, levels: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
        with torch.no_grad():
            low, high = raw_range(widen(x), dims)
        return _PublishedRound.apply(x, low, high - low, levels)

    def activation(
        self, x: torch.Tensor, levels: torch.Tensor, ranges: RunningRange, counter: Counter, *, mode: str
    ) -> torch.Tensor:
        """Round with one range, straight-through; `mode` is update, current or running."""
        with torch.no_grad():
            low, high = raw_range(widen(x))
            if mode == "update":
                ranges.update(low, high)
            elif mode == "running":
                low, high = ranges.read(low, high)
        return _PublishedRound.apply(x, low, high - low, levels)


def quantize_output_gradient(
    y: torch.Tensor,
    levels: torch.Tensor,
    offset: int | torch.Tensor,
    counter: Counter,
    *,
    published: bool,
    by_position: bool,
    probe: Probe | None = None,
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

    Returns:
        The output, with the same values.
    """
    return _RoundGradient.apply(y, levels, offset, counter.tensor, published, by_position, probe)


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
    def forward(ctx: Any, x: torch.Tensor, grid: PlainGrid) -> torch.Tensor:  # pyrefly: ignore[bad-override]
        return round_plain(widen(x), grid).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None


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
    ) -> torch.Tensor:
        # Not save_for_backward: the bits and the counter change in place between forward and backward of
        # accumulated batches, which is meant.
        ctx.levels, ctx.offset, ctx.counter = levels, offset, counter
        ctx.published, ctx.by_position, ctx.probe = published, by_position, probe
        if torch.compiler.is_compiling():
            return y.clone()  # fused away by the compiler
        # Returned as changed in place, the output is no view: ReLU(inplace=True) may follow.
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override]
        ctx: Any, *grads: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None, None, None]:
        grad = grads[0]
        if grad.numel() == 0:
            return grad, None, None, None, None, None, None
        wide = widen(grad)
        noise = noise_like(wide, ctx.offset)
        if ctx.published:
            low, high = raw_range(wide, (0, -1) if ctx.by_position else ())
            rounded = published_round(wide, low, high - low, ctx.levels, noise)
        elif in_eager_cpu(wide) and (found := plain_range(wide)) is not None:
            grid = plain_grid(*found, ctx.levels.item(), double=wide.dtype == torch.float64, stochastic=True)
            rounded = round_plain(wide, grid, noise)
        else:
            low, high, bad = finite_range(wide)
            if bad is not None:
                ctx.counter.add_(bad)
            grid = make_grid(low, high, ctx.levels, stochastic=True)
            rounded = round_to_grid(wide, grid, noise, keep_non_finite=bad is not None)
        if ctx.probe is not None:
            ctx.probe(wide, rounded)
        return rounded.to(grad.dtype), None, None, None, None, None, None
