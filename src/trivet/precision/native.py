"""Layers that compute in the number format that holds their bits, forward and backward.

Weight, input and output gradient are rounded as in simulation (same ranges, same random numbers), but to codes; the
products of codes run in the format that the ladder of `formats.py` gives, and the codes of the input, one byte each,
are what is kept for the backward pass. Between 9 and 16 bits operands are bf16 numbers instead of codes.

| product | bits that decide |
|---|---|
| forward | of weight and activation |
| input gradient | of weight and gradient |
| weight gradient | of activation and gradient |

In `native` execution a product takes the first kernel that can compute it, in `auto` execution the fastest
(`choice.py`).

Where that is not possible the caller simulates, and the reason is kept for the report (`obstacle`). What differs from
simulation: weights of 8 bits have a symmetric grid; the input gradient sees the weight rounded again, to 8 bits with
one scale; results of bf16 kernels have 8 significant bits. Not covered: `torch.compile`, several processes, autocast,
other inputs than float32, the published quantizer, tensor subclasses; second derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from trivet.precision.buffers import is_subclass
from trivet.precision.checks import MAX_BITS
from trivet.precision.choice import choice_key, choose
from trivet.precision.codes import Operand, encode, encode_anywhere, encode_weight
from trivet.precision.convproducts import ConvProducts
from trivet.precision.formats import cheapest, executable, support_of
from trivet.precision.layout import convolves_channels_last, in_memory_order
from trivet.precision.matproducts import MatrixProducts
from trivet.precision.noise import noise_like
from trivet.precision.plain import plain_grid, plain_range
from trivet.precision.rounding import finite_range, in_eager_cpu, make_grid, round_to_grid
from trivet.precision.sites import Pass, Site

Products = MatrixProducts | ConvProducts

CODE_BITS = 8
HALF_BITS = 16


def obstacle(module: nn.Module | None, x: torch.Tensor, weight: torch.Tensor, site: Site) -> str:
    """Why a layer cannot compute in another format than it was given, in words; empty when it can.

    Args:
        module: A Linear or Conv2d layer, or None for a call of `functional.linear`.
        x: Its input.
        weight: Its weight.
        site: Of the layer.
    """
    if site.published:
        return "the published quantizer"
    if site.state.ranks.size > 1:
        return "several processes, whose ranges are one"
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or torch.is_autocast_enabled(x.device.type):
        return "other numbers than float32, or autocast"
    if x.numel() == 0 or weight.numel() == 0:
        return "an empty batch"
    if is_subclass(x) or is_subclass(weight) or x.device.type not in ("cpu", "cuda"):
        return "a special kind of tensor"
    return "" if module is None or isinstance(module, nn.Linear) else _conv_obstacle(module, x)


def _conv_obstacle(module: nn.Module, x: torch.Tensor) -> str:
    if not isinstance(module, nn.Conv2d):
        return f"{type(module).__name__} has no integer kernel"
    if module.groups != 1:
        return "a grouped convolution"
    if module.dilation != (1, 1):
        return "a dilated convolution"
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        return "padding that is named or not with zeros"
    return "" if x.dim() == 4 else "images without a batch"


def products_of(module: nn.Module | None) -> Products:
    """How the products of a layer are computed."""
    if isinstance(module, nn.Conv2d):
        return _conv_products(module.stride, module.padding)
    return _LINEAR


_LINEAR = MatrixProducts()


@lru_cache(maxsize=256)
def _conv_products(stride: tuple[int, int], padding: tuple[int, int]) -> ConvProducts:
    return ConvProducts(stride, padding)


@dataclass(slots=True)
class Job:
    """One pass through a layer: operands, and what the backward pass has to know."""

    site: Site
    kind: Pass
    products: Products
    x: Operand
    w: Operand
    bits: tuple[int, int]
    """Of weight and activation."""
    weight_shape: torch.Size
    channels_last: bool
    """Whether the result may be laid out so."""
    offset: int | torch.Tensor = 0
    """Where the noise of the gradient begins."""

    def compute(self, product: str, first: Operand, second: Operand, bits: int, extra: Any) -> torch.Tensor:
        """A product by the kernel that execution and bits ask for."""
        device, shape = first.data.device, self.weight_shape
        formats = executable(bits, support_of(device).formats)
        if not (first.coded and second.coded):
            formats = tuple(name for name in formats if name in ("bf16", "fp32"))
        kernels = self.products.kernels(product, formats, first.data.shape, shape, device)
        work = getattr(self.products, product)

        def run(kernel: str) -> torch.Tensor:
            return work(kernel, first, second, extra)

        kernel = kernels[0]
        if self.site.state.execution == "auto":
            stride = getattr(self.products, "stride", "")
            key = choice_key(product, kernels, device, tuple(first.data.shape), tuple(shape), stride)
            kernel = choose(key, kernels, run)
        self.site.executed[product] = kernel
        return run(kernel)


def native_product(
    module: nn.Module | None, site: Site, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kind: Pass
) -> torch.Tensor | None:
    """What a layer computes, in the formats that hold its bits; None where it has to be simulated.

    Args:
        module: A plain layer, or None for a call of `functional.linear`.
        site: Of the product.
        x: Input.
        weight: Of the layer.
        bias: Of the layer.
        kind: Of this pass.
    """
    dials = site.dials
    weight_dial = dials.weight if kind.scheduled else dials.weight_evaluation
    input_dial = dials.activation if kind.scheduled else dials.activation_evaluation
    bits = weight_dial.bits, input_dial.bits
    if site.quantizer is None or max(bits) > HALF_BITS:
        site.executed = {}
        return None
    site.obstacle = obstacle(module, x, weight, site)
    if not site.obstacle and cheapest(max(bits), support_of(x.device).formats) == "fp32":
        site.obstacle = support_of(x.device).note
    operands = None if site.obstacle else _operands(site, x, weight, bits, kind, products_of(module))
    if operands is None:
        site.executed = {}
        return None
    channels_last = x.dim() == 4 and convolves_channels_last(x, weight)
    job = Job(site, kind, products_of(module), *operands, bits, weight.shape, channels_last)
    with torch.no_grad():
        _sample(site, kind, job, x, weight)
    y = _Native.apply(x, weight, bias, job)
    if kind.recorded:
        macs = y.numel() * (weight.numel() // weight.shape[0])
        site.count(macs, y.device)
    if kind.marked and y.requires_grad and not dials.gradient.exact:
        site.non_finite_gradients.move(y.device)
        job.offset = site._noise_offset(y.device, advance=kind.recorded)
    return y


@torch.no_grad()
def _operands(
    site: Site, x: torch.Tensor, weight: torch.Tensor, bits: tuple[int, int], kind: Pass, products: Products
) -> tuple[Operand, Operand] | None:
    """Input and weight, rounded; None when they hold numbers that are not finite."""
    w = encode_weight(weight, bits[0]) if bits[0] <= CODE_BITS else Operand(weight.to(torch.bfloat16))
    if w is None:
        return None
    if bits[1] > CODE_BITS:
        return Operand(x.to(torch.bfloat16)), w
    ranges, levels = site.range_of(0), float(2 ** bits[1] - 1)
    site.non_finite_inputs.move(x.device)
    if in_eager_cpu(x):
        x = _in_order(x)
        found = plain_range(x)
        if found is None:
            return None  # the simulation counts them and keeps them
        low, high = ranges.in_mode_plain(*found, kind.mode)
        grid = plain_grid(low, high, levels, within=kind.mode != "running")
        return encode(x, grid, unsigned=products.unsigned), w
    low, high, bad = finite_range(x)
    if bad is not None:
        site.non_finite_inputs.add(bad)
    low, high = ranges.in_mode(low, high, kind.mode)
    return encode_anywhere(x, make_grid(low, high, torch.tensor(levels, device=x.device)), bits[1], bad), w


def _in_order(x: torch.Tensor) -> torch.Tensor:
    return x if in_memory_order(x).is_contiguous() else x.contiguous()


def _sample(site: Site, kind: Pass, job: Job, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Note rounding errors, at the first pass at some bits."""
    if not kind.recorded:
        return
    for role, dial, tensor, operand in (
        ("weight", site.dials.weight, weight, job.w),
        ("activation", site.dials.activation, x, job.x),
    ):
        if site._unsampled(role, dial):
            site.note_error(role, dial.bits, tensor, operand.values())


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, job: Job
    ) -> torch.Tensor:
        ctx.save_for_backward(job.x.data, job.w.data)
        ctx.shapes = x.shape, weight.shape
        ctx.job = job
        y = job.compute("forward", job.x, job.w, max(job.bits), bias)
        # Only the saved tensors hold the codes, so that activation checkpointing can drop them.
        job.x, job.w = (part._replace(data=part.data[:0]) for part in (job.x, job.w))
        return y if job.channels_last or y.dim() != 4 else y.contiguous()

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override]
        ctx: Any, *grads: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, None]:
        job: Job = ctx.job
        x_data, w_data = ctx.saved_tensors
        x, w = job.x._replace(data=x_data), job.w._replace(data=w_data)
        g, bits = _gradient(job, grads[0])
        needs = ctx.needs_input_grad
        dx = dw = None
        if needs[0]:
            dx = job.compute("input", g, w, max(bits, job.bits[0]), ctx.shapes[0])
            if dx.dim() == 4 and not job.channels_last:
                dx = dx.contiguous()
        if needs[1]:
            dw = job.compute("weight", g, x, max(bits, job.bits[1]), ctx.shapes[1])
        return dx, dw, job.products.bias(g) if needs[2] else None, None


def _gradient(job: Job, grad: torch.Tensor) -> tuple[Operand, int]:
    """The output gradient as an operand, rounded where that is asked for, and the bits that it has."""
    site = job.site
    dial = site.dials.gradient
    if not job.kind.marked or dial.bits > HALF_BITS:
        return Operand(grad), MAX_BITS
    if dial.bits > CODE_BITS:
        return Operand(grad.to(torch.bfloat16)), dial.bits
    grad = _in_order(grad)
    noise = noise_like(grad, job.offset)
    levels = dial.levels(grad.device)
    if in_eager_cpu(grad):
        found = plain_range(grad)
        if found is None:
            return Operand(_not_finite(site, grad, levels, noise)), MAX_BITS
        grid = plain_grid(*found, levels.item(), stochastic=True)
        g = encode(grad, grid, noise, unsigned=job.products.unsigned)
    else:
        low, high, bad = finite_range(grad)
        if bad is not None:
            site.non_finite_gradients.add(bad)
        g = encode_anywhere(grad, make_grid(low, high, levels, stochastic=True), dial.bits, bad, noise)
    if job.kind.recorded and site._unsampled("gradient", dial):
        site.note_error("gradient", dial.bits, grad, g.values())
    return g, dial.bits


def _not_finite(site: Site, grad: torch.Tensor, levels: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """A gradient with elements that are not finite: these stay, the others are rounded."""
    low, high, bad = finite_range(grad)
    if bad is not None:
        site.non_finite_gradients.add(bad)
    return round_to_grid(grad, make_grid(low, high, levels, stochastic=True), noise, keep_non_finite=True)


def kernels_in_words(executed: dict[str, str], order: Sequence[str] = ("forward", "input", "weight")) -> str:
    """Kernels of the three products, as a report shows them.

    Examples:
        >>> kernels_in_words({"forward": "int8", "input": "int8", "weight": "bf16"})
        'int8 · int8 · bf16'
    """
    return " · ".join(executed[name] for name in order if name in executed)
