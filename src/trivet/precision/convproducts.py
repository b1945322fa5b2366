"""The three products of a Conv2d layer in the number format that the caller names.

Kernels:

- `int8`: oneDNN's convolution of uint8 with int8, which knows zero-points (padding is then zero, exactly). The product
  with the weight for the input gradient is the convolution of the output gradient with the flipped weight, for
  stride 1. CPU only; it rearranges the weight at every call, which takes long for many channels.
- `int8-matmul`: patches of some images at a time are laid out as a matrix, few enough for the processor's cache, and
  multiplied by `int_matmul`. Any stride forward and for the weight gradient; stride 1 for the input gradient.
- `int8-shifted`: the weight gradient without patches (`shifted.py`), for stride 1, on a CPU.
- `bf16`, `fp32`: torch's convolutions of the codes, which these formats hold exactly.

Results are laid out channels-last. Not covered: groups, dilation, padding by other values than zero, or named padding;
the layer then is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from trivet.precision.codes import Operand, common_scale
from trivet.precision.formats import support_of
from trivet.precision.matproducts import (
    FLOATS,
    column_sums,
    corrections,
    fits_kernel,
    int_matmul,
    scaled,
    summed,
    weight_numbers,
)
from trivet.precision.shifted import shifted_weight, shifts

LAST = torch.channels_last

_PATCH_BYTES = 2**22
"""Bytes of patches laid out at a time."""

MOST_PADDING = 1.2
"""Pixels with their padding over those without, up to which padding is multiplied rather than patches laid out."""


def quantized_conv(
    x: torch.Tensor,
    scale: float,
    zero: int,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> torch.Tensor:
    """Convolve by oneDNN: uint8 codes (channels-last) with int8 codes → float32.

    Examples:
        >>> x = torch.full((1, 1, 2, 2), 3, dtype=torch.uint8).to(memory_format=torch.channels_last)
        >>> w = torch.ones(1, 1, 1, 1, dtype=torch.int8)
        >>> quantized_conv(x, 0.5, 1, w, torch.ones(1), None, (1, 1), (0, 0)).tolist()
        [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    onednn, one = torch.ops.onednn, [1, 1]
    steps, pads = list(stride), list(padding)
    # Scales do not change how a weight is arranged, but are looked at one by one.
    packed = onednn.qconv_prepack(weight, torch.ones(1), scale, zero, steps, pads, one, 1, list(x.shape))
    zeros = torch.zeros(weight_scale.numel(), dtype=torch.int64)
    return onednn.qconv_pointwise(
        x, scale, zero, packed, weight_scale, zeros, bias, steps, pads, one, 1, 1.0, 0, torch.float32, "none", [], ""
    )


class ConvProducts:
    """The products of one geometry of Conv2d."""

    unsigned = True
    """Which codes the forward kernel takes."""

    def __init__(self, stride: tuple[int, int], padding: tuple[int, int]) -> None:
        self.stride = stride
        self.padding = padding

    def kernels(
        self, product: str, formats: tuple[str, ...], a: torch.Size, w: torch.Size, device: torch.device
    ) -> list[str]:
        """Kernels that can compute a product, in the order of preference; see `MatrixProducts.kernels`."""
        outputs, inputs, height, width = w
        turned = self.stride == (1, 1) and height > self.padding[0] and width > self.padding[1]
        patches = a[0] * a[2] * a[3]  # of x these are more than there are patches; enough for a look at limits
        sizes = {
            "forward": (patches, inputs * height * width, outputs),
            "input": (patches, outputs * height * width, inputs),
        }
        fits = fits_kernel(*sizes.get(product, (outputs, patches, inputs * height * width)), device)
        found: list[str] = []
        for name in formats:
            if name in FLOATS:
                found.append(name)
            elif name == "int8" and (product != "input" or turned):
                by_matmul = ["int8-matmul"] if fits else []
                if product == "weight":
                    found += [*self._shifted(a, w, device), *by_matmul]
                else:
                    found += ["int8", *by_matmul] if support_of(device).conv else by_matmul
        # Few channels make thin matrices, which several threads hardly share.
        fewest = 32 if "int8-shifted" in found and torch.get_num_threads() == 1 else 64
        if product == "weight" and "bf16" in found and min(inputs, outputs) < fewest:
            found.sort(key=lambda name: name != "bf16")
        return found

    def _shifted(self, g: torch.Size, w: torch.Size, device: torch.device) -> list[str]:
        """The kernel without patches, where it is not mostly padding that it multiplies."""
        area, padded = g[2] * g[3], (g[2] + self.padding[0]) * (g[3] + self.padding[1])
        worth = device.type == "cpu" and padded <= MOST_PADDING * area
        return ["int8-shifted"] if worth and shifts((w[2], w[3]), self.stride, self.padding) else []

    def forward(self, kernel: str, x: Operand, w: Operand, bias: torch.Tensor | None) -> torch.Tensor:
        """The convolution, float32."""
        if kernel == "int8":
            x = x.unsigned()
            data = x.data.contiguous(memory_format=LAST)
            return quantized_conv(data, x.scale, x.zero, w.data, w.scale, bias, self.stride, self.padding)  # pyrefly: ignore[bad-argument-type]
        factor = w.scale * x.scale
        if kernel in FLOATS:
            dtype = FLOATS[kernel]
            numbers = x.numbers(dtype).contiguous(memory_format=LAST)
            y = functional.conv2d(
                numbers, w.numbers(dtype).contiguous(memory_format=LAST), None, self.stride, self.padding
            )
            return _by_channel(y, factor, bias)
        return self._patch_product(x, w, self.stride, self.padding, factor, bias)

    def _patch_product(
        self,
        x: Operand,
        w: Operand,
        stride: tuple[int, int],
        padding: tuple[int, int],
        factor: float | torch.Tensor,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        x = x.signed()
        outputs = w.data.shape[0]
        rows = w.data.permute(0, 2, 3, 1).reshape(outputs, -1)
        row = bias
        if x.shifted:
            row = column_sums(rows.t()) * -x.zero * factor
            row = row if bias is None else row + bias
        patches = Patches(x, w.data.shape[2:], stride, padding)
        y = torch.empty(patches.rows, outputs, device=rows.device)
        at = 0
        for part in patches:
            y[at : at + len(part)] = scaled(int_matmul(part, rows.t()), factor, row)
            at += len(part)
        return y.view(x.data.shape[0], *patches.size, outputs).permute(0, 3, 1, 2)

    def input(self, kernel: str, g: Operand, w: Operand, like: torch.Size) -> torch.Tensor:
        """The input gradient, float32, channels-last."""
        again = None if kernel in FLOATS else common_scale(w)
        if again is None:
            dtype = FLOATS.get(kernel, torch.bfloat16)
            numbers = g.numbers(dtype).contiguous(memory_format=LAST)
            weights = weight_numbers(w, dtype).contiguous(memory_format=LAST)
            x = torch.empty(like, dtype=dtype, device=numbers.device, memory_format=LAST)
            return _by_channel(self._backward(numbers, x, weights, 0), g.scale, None)
        flipped = again._replace(data=again.data.flip(2, 3).transpose(0, 1))
        height, width = flipped.data.shape[2:]
        padding = height - 1 - self.padding[0], width - 1 - self.padding[1]
        if kernel == "int8":
            g = g.unsigned()
            data = g.data.contiguous(memory_format=LAST)
            one_scale = torch.as_tensor(again.scale, dtype=torch.float32).view(1)
            return quantized_conv(data, g.scale, g.zero, flipped.data, one_scale, None, (1, 1), padding)  # pyrefly: ignore[bad-argument-type]
        return self._patch_product(g, flipped, (1, 1), padding, g.scale * again.scale, None)

    def weight(self, kernel: str, g: Operand, x: Operand, like: torch.Size) -> torch.Tensor:
        """The weight gradient, float32."""
        factor = g.scale * x.scale
        if kernel in FLOATS:
            dtype = FLOATS[kernel]
            one, other = (part.numbers(dtype).contiguous(memory_format=LAST) for part in (g, x))
            weights = torch.empty(like, dtype=dtype, device=one.device, memory_format=LAST)
            return self._backward(one, other, weights, 1).float().mul_(factor)
        if kernel == "int8-shifted":
            return shifted_weight(g, x, (like[2], like[3]), self.padding)
        g, x = g.signed(), x.signed()
        rows = _rows(g.data)
        patches = Patches(x, like[2:], self.stride, self.padding)
        total = torch.zeros(like[0], patches.columns, device=rows.device)
        at = 0
        for part in patches:
            total += int_matmul(rows[at : at + len(part)].t(), part)
            at += len(part)
        sums = patches.sums() if g.shifted else None
        row, column = corrections(g, column_sums(rows) if x.shifted else None, x, sums, len(rows))
        row, column = (None if part is None else part * factor for part in (row, column))
        found = scaled(total, factor, row, column)
        return found.view(like[0], like[2], like[3], like[1]).permute(0, 3, 1, 2)

    def bias(self, g: Operand) -> torch.Tensor:
        """Sum of g over everything but the channels."""
        return summed(_rows(g.data), g)

    def _backward(self, g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, which: int) -> torch.Tensor:
        mask = [which == 0, which == 1, False]
        found = torch.ops.aten.convolution_backward(
            g, x, weight, None, list(self.stride), list(self.padding), [1, 1], False, [0, 0], 1, mask
        )
        return found[which]


class Patches:
    """Patches of int8 images as matrices [patches, height × width × channels], some images at a time."""

    def __init__(self, x: Operand, kernel: torch.Size, stride: tuple[int, int], padding: tuple[int, int]) -> None:
        n, channels, height, width = x.data.shape
        self.stride, self.kernel = stride, tuple(kernel)
        wide = (n, height + 2 * padding[0], width + 2 * padding[1], channels)
        self.size = tuple((wide[i + 1] - self.kernel[i]) // stride[i] + 1 for i in (0, 1))
        self.columns = self.kernel[0] * self.kernel[1] * channels
        self.rows = n * self.size[0] * self.size[1]
        self.images = torch.empty(wide, dtype=torch.int8, device=x.data.device)
        self.images.copy_(torch.as_tensor(x.zero)) if x.shifted else self.images.zero_()
        inner = self.images[:, padding[0] : padding[0] + height, padding[1] : padding[1] + width]
        inner.copy_(x.data.permute(0, 2, 3, 1))

    def sums(self) -> torch.Tensor:
        """Sums of the columns over all patches, float32 [columns], without laying them out."""
        n, height, width, channels = self.images.shape
        over_images = column_sums(self.images.view(n, -1)).view(height, width, channels)
        ends = [self.stride[i] * (self.size[i] - 1) + 1 for i in (0, 1)]
        window = [
            over_images[i : i + ends[0] : self.stride[0], j : j + ends[1] : self.stride[1]].sum((0, 1))
            for i in range(self.kernel[0])
            for j in range(self.kernel[1])
        ]
        return torch.cat(window)

    def __iter__(self) -> Iterator[torch.Tensor]:
        n, height, width, channels = self.images.shape
        # Eight codes are moved as one number where that is possible.
        images = self.images.view(torch.int64) if channels % 8 == 0 else self.images
        channels = images.shape[-1]
        window = (self.kernel[0], self.kernel[1] * channels)
        strides = (width * channels * self.stride[0], channels * self.stride[1], width * channels, 1)
        each = self.size[0] * self.size[1]
        count = n if images.device.type != "cpu" else max(1, _PATCH_BYTES // max(1, each * self.columns))
        room = torch.empty(min(count, n) * each, window[0], window[1], dtype=images.dtype, device=images.device)
        for at in range(0, n, count):
            some = images[at : at + count]
            size = (len(some), *self.size, *window)
            view = some.as_strided(size, (height * width * channels, *strides))
            part = room[: len(some) * each].view(size).copy_(view)
            yield part.view(-1, window[0] * window[1]).view(torch.int8)


def _by_channel(y: torch.Tensor, factor: float | torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Images times a factor per channel plus bias, float32."""
    n, channels, height, width = y.shape
    return scaled(_rows(y), factor, bias).view(n, height, width, channels).permute(0, 3, 1, 2)


def _rows(x: torch.Tensor) -> torch.Tensor:
    """Images as a matrix [pixels, channels]."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
