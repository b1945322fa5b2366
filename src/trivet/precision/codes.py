"""Tensors as whole-number codes: what integer kernels multiply, and what is kept for the backward pass.

    value = (data − zero) × scale,   data int8 or uint8

The codes are those of the simulated rounding (`plain.py`), so both describe the same numbers. Weights of 8 bits are the
exception: their grid is symmetric, scale = max |w| / 127 per output channel, because a zero-point per channel would
need a correction of its own for every product. In eager code on a CPU a pass goes piece by piece through the
processor's cache, and the rounding is an addition: x / scale + zero + 1.5 × 2²³ leaves the code, rounded half to even,
in the low byte of the number. Measured, that equals compiled code and compiles nothing.

Not covered: codes of more than 8 bits; elements that are not finite (the caller looks for them, or, on other devices,
the scale becomes NaN, and so does everything computed with it).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from trivet.precision.layout import in_memory_order
from trivet.precision.plain import PlainGrid
from trivet.precision.rounding import FLOOR, Grid, range_limit, raw_range

MAGIC = 1.5 * 2.0**23
"""A float32 number of this size has whole-number spacing."""

_PIECE = 2**18


class Operand(NamedTuple):
    """One operand of a product: codes, or numbers that are not rounded to a grid (scale 1, zero 0)."""

    data: torch.Tensor
    """int8 or uint8 codes, or floating-point numbers."""
    scale: float | torch.Tensor = 1.0
    """Of the whole tensor, or one per output channel, shape [channels]."""
    zero: int | torch.Tensor = 0
    """Code of zero."""
    most: float | torch.Tensor = 0.0
    """Largest size of a value, for weights."""

    @property
    def coded(self) -> bool:
        """Whether the data are codes."""
        return not self.data.is_floating_point()

    @property
    def shifted(self) -> bool:
        """Whether zero has another code than 0."""
        return not (isinstance(self.zero, int) and self.zero == 0)

    def numbers(self, dtype: torch.dtype) -> torch.Tensor:
        """The data less the zero, not scaled, in a floating-point format; exact for codes, since |code| ≤ 255.

        Examples:
            >>> Operand(torch.tensor([0, 255], dtype=torch.uint8), 0.5, 128).numbers(torch.bfloat16).tolist()
            [-128.0, 127.0]
        """
        y = self.data.to(dtype)
        return y.sub_(self.zero) if self.shifted else y

    def values(self) -> torch.Tensor:
        """The numbers that the operand stands for, float32."""
        y = self.numbers(torch.float32)
        scale = self.scale
        if isinstance(scale, torch.Tensor) and scale.dim():
            scale = scale.view(-1, *(1,) * (y.dim() - 1))
        return y * scale

    def signed(self) -> Operand:
        """The same codes as int8."""
        if self.data.dtype != torch.uint8:
            return self
        return self._replace(data=self.data.view(torch.int8).bitwise_xor(-128), zero=self.zero - 128)

    def unsigned(self) -> Operand:
        """The same codes as uint8."""
        if self.data.dtype != torch.int8:
            return self
        return self._replace(data=self.data.bitwise_xor(-128).view(torch.uint8), zero=self.zero + 128)


def encode(x: torch.Tensor, grid: PlainGrid, noise: torch.Tensor | None = None, *, unsigned: bool = False) -> Operand:
    """Codes of a float32 tensor on a CPU.

    Args:
        x: All finite, contiguous or channels-last.
        grid: Of at most 8 bits.
        noise: Added before rounding, in units of the scale; laid out like x.
        unsigned: Whether to make uint8 codes rather than int8.

    Examples:
        >>> from trivet.precision.plain import plain_grid
        >>> codes = encode(torch.tensor([-1.0, 0.0, 0.6, 2.0]), plain_grid(-1.0, 2.0, 3.0))
        >>> codes.data.tolist(), codes.values().tolist()
        ([-1, 0, 1, 2], [-1.0, 0.0, 1.0, 2.0])
    """
    zero = int(-grid.first) if unsigned else _signed_zero(grid.first, grid.last)
    dtype = torch.uint8 if unsigned else torch.int8
    data = torch.empty_like(x, dtype=dtype)
    flat = [in_memory_order(t).reshape(-1) for t in (x, data)]
    pieces = [t.split(_PIECE) for t in flat]
    noises = in_memory_order(noise).reshape(-1).split(_PIECE) if noise is not None else pieces[0]
    room = torch.empty(min(x.numel(), _PIECE))
    whole = room.view(torch.int32)
    # The low byte of a negative code is that of its two's complement, so one constant serves both kinds.
    magic, low, high = torch.tensor(MAGIC + zero), MAGIC + zero + grid.first, MAGIC + zero + grid.last
    size = room.numel()
    for source, target, extra in zip(*pieces, noises, strict=True):
        if source.numel() < size:  # the last piece
            room, whole = room[: source.numel()], whole[: source.numel()]
        if noise is None:
            torch.add(magic, source, alpha=grid.inverse, out=room)
        else:
            torch.add(extra, source, alpha=grid.inverse, out=room).add_(magic)
        if grid.clamp:
            room.clamp_(low, high)
        target.copy_(whole)
    return Operand(data, grid.scale, zero)


def _signed_zero(first: float, last: float) -> int:
    """Where codes from `first` ≤ 0 to `last` ≥ 0 have to move to fit into int8."""
    return 0 if first >= -128 and last <= 127 else int(-128 - first)


def encode_anywhere(
    x: torch.Tensor, grid: Grid, bits: int, bad: torch.Tensor | None, noise: torch.Tensor | None = None
) -> Operand:
    """int8 codes on any device, without reading a number from it.

    Args:
        x: float32.
        grid: From `rounding.make_grid`, one for the whole tensor.
        bits: At most 8.
        bad: How many elements are not finite; if any, the scale is NaN.
        noise: Added before rounding, in units of the scale.

    Examples:
        >>> from trivet.precision.rounding import make_grid
        >>> grid = make_grid(torch.tensor(0.0), torch.tensor(255.0), torch.tensor(255.0))
        >>> encode_anywhere(torch.tensor([0.0, 255.0]), grid, 8, None).values().tolist()
        [0.0, 255.0]
    """
    y = x * grid.scale.reciprocal()
    if noise is not None:
        y = y.add_(noise)
    y = torch.minimum(torch.maximum(y.round_(), grid.first), grid.last)
    zero: int | torch.Tensor = 0 if bits < 8 else -128 - grid.first
    scale = grid.scale if bad is None else torch.where(bad > 0, torch.nan, grid.scale)
    # NaN has no code of its own; what it becomes here does not matter, since the scale is NaN.
    return Operand(torch.nan_to_num(y + zero).to(torch.int8), scale, zero)


def encode_weight(weight: torch.Tensor, bits: int) -> Operand | None:
    """int8 codes of a weight, one range per output channel (dimension 0); None when an element is not finite.

    Args:
        weight: float32, two or more dimensions, not empty.
        bits: At most 8. Below 8 the codes are those of the simulated grid; 8 bits are symmetric.

    Examples:
        >>> codes = encode_weight(torch.tensor([[-1.0, 2.0], [0.0, 6.0]]), 2)
        >>> None if codes is None else (codes.data.tolist(), codes.scale.tolist())
        ([[-1, 2], [0, 3]], [1.0, 2.0])
    """
    dims = tuple(range(1, weight.dim()))
    low, high = raw_range(weight, dims)
    if weight.device.type == "cpu":
        limit = range_limit(weight.dtype)
        if not (float(low.min()) >= -limit and float(high.max()) <= limit):  # false for NaN too
            return None
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    size = torch.maximum(-low, high)
    first, last = None, None
    if bits >= 8:
        scale = (size / 127.0).clamp_(min=FLOOR)
    else:
        levels = float(2**bits - 1)
        scale = (high / levels - low / levels).clamp_(min=FLOOR)
        first = -torch.round(-low / scale).clamp_(max=levels)
        last = first + levels
        size = size + scale / 2  # rounding may go that much further
    most = size.max()
    data = _encode_rows(weight, scale, first, last)
    return Operand(data, scale.reshape(-1), 0, float(most) if most.device.type == "cpu" else most)


def _encode_rows(
    weight: torch.Tensor, scale: torch.Tensor, first: torch.Tensor | None, last: torch.Tensor | None
) -> torch.Tensor:
    data = torch.empty_like(weight, dtype=torch.int8)
    inverse = scale.reciprocal()
    step = max(1, _PIECE // max(1, weight[0].numel()))
    for at in range(0, weight.shape[0], step):
        rows = slice(at, at + step)
        work = (weight[rows] * inverse[rows]).round_()
        if first is not None and last is not None:
            work = torch.minimum(torch.maximum(work, first[rows]), last[rows])
        data[rows] = work.to(torch.int8)
    return data


def common_scale(weight: Operand, limit: float = 4.0) -> Operand | None:
    """The codes of a weight again, with one scale for all, as the product with the output gradient needs it.

    That product sums over the output channels, where scales of their own cannot be taken out of the sum. The new scale
    is max |w| / 127 over the whole weight; None when the largest scale exceeds `limit` times the mean, which a channel
    of large weights would cause: the caller then takes a floating-point format, where scales may differ.

    Examples:
        >>> codes = torch.tensor([[127], [127]], dtype=torch.int8)
        >>> again = common_scale(Operand(codes, torch.tensor([1.0, 0.5]), 0, 127.0))
        >>> None if again is None else (again.data.tolist(), again.scale)
        ([[127], [64]], 1.0)
        >>> common_scale(Operand(codes.repeat(3, 1), torch.tensor([1.0, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3]), 0, 127.0))
    """
    scale = weight.scale
    if not isinstance(scale, torch.Tensor) or scale.dim() == 0:
        return weight
    if scale.device.type == "cpu" and float(scale.max()) > limit * float(scale.mean()):
        return None
    common = weight.most / 127.0
    ratio = (scale / common).view(-1, *(1,) * (weight.data.dim() - 1))
    data = torch.empty_like(weight.data)
    step = max(1, _PIECE // max(1, weight.data[0].numel()))
    for at in range(0, data.shape[0], step):
        rows = slice(at, at + step)
        data[rows] = torch.mul(weight.data[rows], ratio[rows]).round_().to(torch.int8)
    return Operand(data, common)
