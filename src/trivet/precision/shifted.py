"""The weight gradient of a convolution of stride 1 in whole numbers, without laying out patches.

    dw[o, i, a, b] = Σ g[n, y, x, o] · image[n, y + a, x + b, i]

Images lie one after another in one flat row of pixels, with padding between them; so do the gradients, with as much
room between them, filled with 0. The pixel that meets a gradient's at the place (a, b) of the kernel then lies a fixed
way further on, and the sum is one matrix product of the two rows of pixels, shifted against each other. Neighbours
share their padding, so the rows are longer than the images by (1 + padding/height)(1 + padding/width).

Thin matrices multiply slowly; so, unless there are very many channels, each pixel is laid out with those that follow
it, as many as the kernel is wide, and a product serves a row of the kernel.

Some images are taken at a time, few enough for the processor's cache. Not covered: strides, dilation, groups; padding
as large as the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from trivet.precision.codes import Operand
from trivet.precision.matproducts import LONGEST_SUM, int_matmul, scaled

LAST = torch.channels_last

_PART_BYTES = 2**20
"""Bytes of pixels laid out at a time."""

_THIN = 512
"""Channels below which a product serves a row of the kernel; measured faster at 16 to 256 channels."""


def shifts(kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> bool:
    """Whether the weight gradient of a convolution can be computed so.

    Examples:
        >>> shifts((3, 3), (1, 1), (1, 1)), shifts((3, 3), (2, 2), (1, 1)), shifts((1, 1), (1, 1), (1, 1))
        (True, False, False)
    """
    return stride == (1, 1) and all(size > pad for size, pad in zip(kernel, padding, strict=True))


def shifted_weight(g: Operand, x: Operand, kernel: tuple[int, int], padding: tuple[int, int]) -> torch.Tensor:
    """The weight gradient, float32 [outputs, inputs, *kernel], channels-last.

    Args:
        g: Codes of the output gradient [images, outputs, height, width], on a CPU.
        x: Codes of the input, likewise.
        kernel: Height and width.
        padding: Likewise.

    Examples:
        >>> g = Operand(torch.ones(1, 1, 1, 2, dtype=torch.int8), 0.5)
        >>> x = Operand(torch.tensor([[[[1, 2, 3]]]], dtype=torch.int8), 1.0, 1)
        >>> shifted_weight(g, x, (1, 2), (0, 0)).tolist()
        [[[[0.5, 1.5]]]]
    """
    zeros = [part.zero - 128 if part.data.dtype == torch.uint8 else part.zero for part in (g, x)]
    total, g_sums, x_sums = shifted_product(g.data, x.data, kernel, padding, int(zeros[1]))
    factor = g.scale * x.scale
    pixels = g.data.shape[0] * g.data.shape[2] * g.data.shape[3]
    rows = (x_sums * -zeros[0] + pixels * zeros[0] * zeros[1]) * factor
    column = g_sums * -zeros[1] * factor
    found = torch.stack([scaled(some, factor, row, column) for some, row in zip(total, rows, strict=True)])
    return found.view(kernel[0], len(g_sums), kernel[1], -1).permute(1, 3, 0, 2).contiguous(memory_format=LAST)


def shifted_product(
    g: torch.Tensor, x: torch.Tensor, kernel: tuple[int, int], padding: tuple[int, int], zero: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Σ g · x for every place of the kernel, with the sums that correct for codes of zero.

    Args:
        g: Codes of the output gradient, int8 or uint8 [images, outputs, height, width]; uint8 codes stand for 128 less.
        x: Codes of the input, likewise.
        kernel: Height and width.
        padding: Likewise.
        zero: Code of zero in x, as int8.

    Returns:
        Σ g x, int32 or float32 [kernel height, outputs, kernel width × inputs]; Σ g, float32 [outputs]; Σ x over the
        pixels that g meets, float32 [kernel height, kernel width × inputs].

    Examples:
        >>> g, x = torch.ones(1, 1, 1, 2, dtype=torch.int8), torch.tensor([[[[1, 2, 3]]]], dtype=torch.int8)
        >>> [part.tolist() for part in shifted_product(g, x, (1, 2), (0, 0), 0)]
        [[[[3, 5]]], [2.0], [[3.0, 5.0]]]
    """
    n, inputs, height, width = x.shape
    outputs = g.shape[1]
    tall, wide = height + padding[0], width + padding[1]
    across = kernel[1] if inputs < _THIN else 1
    count = min(n, max(1, _PART_BYTES * torch.get_num_threads() // max(1, tall * wide * inputs * across)))
    pixels, slopes = _Row(x, (tall, wide), count, zero, padding), _Row(g, (tall, wide), count, 0, (0, 0))
    places = _Places(pixels.flat, slopes.flat, kernel, wide, across)
    exact = n * tall * wide <= LONGEST_SUM
    total = torch.zeros(len(places.starts), outputs, across * inputs, dtype=torch.int32 if exact else torch.float32)
    g_sums, x_sums = (torch.zeros(*t.shape[2:], t.shape[1], dtype=torch.int32) for t in (g, x))
    totals = total.unbind()
    for at in range(0, n, count):
        taken = pixels.fill(x[at : at + count])
        slopes.fill(g[at : at + count])
        length = ((taken - 1) * tall + g.shape[2] - 1) * wide + g.shape[3]
        g_sums += slopes.summed(taken)
        x_sums += pixels.summed(taken)
        for some, product in zip(totals, places.products(length), strict=True):
            some += product
    if across == 1:
        total = total.view(*kernel, outputs, inputs).transpose(1, 2).reshape(kernel[0], outputs, -1)
    return (
        total,
        g_sums.sum((0, 1)).float(),
        _window_sums(x_sums.float(), (g.shape[2], g.shape[3]), kernel, padding, n * zero),
    )


class _Places:
    """The products of two rows of pixels, one for each place of the kernel or for each row of places."""

    def __init__(self, x: torch.Tensor, g: torch.Tensor, kernel: tuple[int, int], wide: int, across: int) -> None:
        self.starts = [a * wide + b for a in range(kernel[0]) for b in range(0, kernel[1], across)]
        self._x, self._g = x, g
        self._spread: tuple[torch.Tensor, torch.Tensor] | None = None
        if across > 1:
            length = len(x) - across + 1
            # As many channels at once as the machine moves; every pixel with its followers is one stretch of memory.
            kinds = (torch.complex128, torch.int64, torch.int32)
            kind = next((kind for kind in kinds if x.shape[1] % kind.itemsize == 0), torch.int8)
            source = x.view(kind)
            columns = across * source.shape[1]
            spread = torch.empty(length, columns, dtype=kind)
            self._spread = spread, source.as_strided((length, columns), (source.shape[1], 1))
            self._x = spread.view(torch.int8)
        self._length, self._pairs = 0, [(g, x)]

    def products(self, length: int) -> Iterator[torch.Tensor]:
        """Sums over the first gradients, int32 [outputs, columns]."""
        if self._spread is not None:
            self._spread[0].copy_(self._spread[1])
        if length != self._length:  # views cost as much as small products
            left = self._g[:length].t()
            self._pairs = [(left, self._x[start : start + length]) for start in self.starts]
            self._length = length
        return (int_matmul(left, right) for left, right in self._pairs)


class _Row:
    """Pixels of some images at a time, one after another with room between."""

    def __init__(
        self, images: torch.Tensor, spacing: tuple[int, int], count: int, fill: int, padding: tuple[int, int]
    ) -> None:
        channels, height, width = images.shape[1:]
        tall, wide = spacing
        length = (count * tall + padding[0]) * wide + padding[1]
        self.flat = torch.full((length, channels), fill, dtype=torch.int8)
        first = padding[0] * wide + padding[1]
        size = (count, height, width, channels)
        strides = (tall * wide * channels, wide * channels, channels, 1)
        self._inside = self.flat.as_strided(size, strides, first * channels)

    def fill(self, images: torch.Tensor) -> int:
        """Put images in their places, as int8; says how many."""
        source = images.permute(0, 2, 3, 1)
        target = self._inside[: len(source)]
        if source.dtype == torch.uint8:
            torch.bitwise_xor(source.view(torch.int8), -128, out=target)
        else:
            target.copy_(source)
        return len(source)

    def summed(self, taken: int) -> torch.Tensor:
        """Sum of the first images, int32 [height, width, channels]."""
        return self._inside[:taken].sum(0, dtype=torch.int32)


def _window_sums(
    x: torch.Tensor, size: tuple[int, int], kernel: tuple[int, int], padding: tuple[int, int], outside: int
) -> torch.Tensor:
    """Sums over all windows of the given size, of which each place of the kernel sees one.

    Args:
        x: [height, width, channels].
        size: Height and width of the output.
        kernel: Height and width.
        padding: Likewise.
        outside: Value of the padding.

    Examples:
        >>> _window_sums(torch.tensor([[[1.0], [2.0], [3.0]]]), (1, 2), (1, 2), (0, 0), 0).tolist()
        [[3.0, 5.0]]
    """
    whole = functional.pad(x, (0, 0, padding[1], padding[1], padding[0], padding[0]), value=float(outside))
    rows = torch.stack([whole[a : a + size[0]].sum(0) for a in range(kernel[0])])
    return torch.cat([rows[:, b : b + size[1]].sum(1) for b in range(kernel[1])], 1)
