"""How a single layer is made to compute at few bits, without changing what it is.

The layer keeps its class, parameters, buffers and hooks; only its `forward` is covered by an attribute of the instance,
a plain picklable object that holds a `Site`: the layer's name, its running range and its counters. Removing the
attribute restores the layer exactly.

A site also counts: every forward pass that trains (training mode, gradients enabled) adds its multiply-accumulates to
the bits then in force. Layers that stay in full precision get a counting site, so that the cost of the model is whole.

Not covered: layers whose class replaces the forward of Linear or Conv2d, functional calls, attention, recurrent layers,
`torch.nn.DataParallel` (use DistributedDataParallel).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trivet.precision.checks import MAX_BITS
from trivet.precision.noise import layer_salt, stream_offset
from trivet.precision.quantizer import Quantizer, RunningRange, quantize_output_gradient
from trivet.precision.state import ModelState

COUNTED = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
"""Layers whose multiply-accumulates are counted."""


def can_quantize(module: nn.Module) -> bool:
    """Whether the layer computes exactly what Linear or Conv2d computes, so that it can be quantized.

    Example:
        >>> can_quantize(nn.Linear(2, 2)), can_quantize(nn.ReLU())
        (True, False)
    """
    forward = type(module).forward
    return (isinstance(module, nn.Linear) and forward is nn.Linear.forward) or (
        isinstance(module, nn.Conv2d) and forward is nn.Conv2d.forward
    )


def count_macs(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> int:
    """Multiply-accumulates of one forward pass of a layer in `COUNTED`.

    Args:
        module: The layer.
        x: Its input.
        y: Its output.

    Example:
        >>> layer = nn.Conv2d(3, 4, 3, padding=1)
        >>> x = torch.zeros(2, 3, 8, 8)
        >>> count_macs(layer, x, layer(x))
        13824
    """
    weight = module.weight
    if not isinstance(weight, torch.Tensor):
        raise TypeError(f"the weight of {type(module).__name__} must be a tensor, not {type(weight).__name__}")
    # A transposed convolution multiplies every input element, the others make every output element, with one slice
    # of the weight; `math.prod` keeps sizes whole numbers under torch.compile.
    moved = x if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)) else y
    return math.prod(moved.shape) * math.prod(weight.shape[1:])


class Site:
    """A place in a model where quantization or counting happens: one layer."""

    def __init__(
        self,
        name: str,
        state: ModelState,
        quantizer: Quantizer | None,
        device: torch.device,
    ) -> None:
        self.name = name
        """Qualified name of the layer when it was quantized."""
        self.state = state
        """What all sites of the model share."""
        self.quantizer = quantizer
        """None for a site that only counts."""
        self.salt = layer_salt(name)
        self.ranges = RunningRange(device, from_zero=quantizer is not None and quantizer.from_zero)
        self.calls = torch.zeros((), dtype=torch.int64, device=device)
        """Forward passes that trained, at any bits."""
        self.macs = torch.zeros((), dtype=torch.int64, device=device)
        """Multiply-accumulates of them since the bits last changed."""
        self.macs_before: dict[tuple[int, int], torch.Tensor] = {}
        """The same for bits that were in force before: (forward, gradient) → count."""
        self.non_finite_inputs = torch.zeros((), dtype=torch.int64, device=device)
        self.non_finite_gradients = torch.zeros((), dtype=torch.int64, device=device)
        self.call_in_step = 0
        """Calls in this optimizer step, which key the noise; eager code's own count."""
        self.compiled_call_in_step = torch.zeros((), dtype=torch.int64, device=device)
        """The same for compiled code, which must not depend on a Python number."""

    @property
    def bits(self) -> tuple[int, int]:
        """Bits of the forward pass and of the gradients in force for training."""
        if self.quantizer is None:
            return MAX_BITS, MAX_BITS
        return self.state.weight.bits, self.state.gradient.bits

    def count(self, macs: int) -> None:
        """Add a forward pass that trains."""
        self.calls.add_(1)
        self.macs.add_(macs)

    def settle(self) -> None:
        """Book the count under the bits in force; to be called before these change."""
        before = self.macs_before.get(self.bits)
        self.macs_before[self.bits] = self.macs.clone() if before is None else before.to(self.macs.device) + self.macs
        self.macs.zero_()

    def macs_by_bits(self) -> dict[tuple[int, int], int]:
        """Multiply-accumulates so far: (forward, gradient) bits → count."""
        counts = {bits: int(count) for bits, count in self.macs_before.items()}
        counts[self.bits] = counts.get(self.bits, 0) + int(self.macs)
        return {bits: count for bits, count in sorted(counts.items()) if count}

    def begin_step(self) -> None:
        """Start a new optimizer step."""
        self.call_in_step = 0
        self.compiled_call_in_step.zero_()

    def noise_offset(self, device: torch.device) -> int | torch.Tensor:
        """Where the noise of the next gradient begins."""
        if torch.compiler.is_compiling():
            call = self.compiled_call_in_step.clone()
            self.compiled_call_in_step.add_(1)
            return stream_offset(self.state.key(device), self.salt, call)
        call_in_step = self.call_in_step
        self.call_in_step += 1
        return stream_offset(self.state.key_value, self.salt, call_in_step)

    def forget_counts(self) -> None:
        """Count from zero; the running range stays."""
        self.macs_before.clear()
        self.call_in_step = 0
        for counter in (self.calls, self.macs, self.non_finite_inputs, self.non_finite_gradients):
            counter.zero_()
        self.compiled_call_in_step.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Running range and counts, as plain values and tensors."""
        return {
            "range": self.ranges.bounds.cpu().clone(),
            "blend": self.ranges.blend.cpu().clone(),
            "calls": int(self.calls),
            "macs": [[*bits, count] for bits, count in self.macs_by_bits().items()],
            "non_finite": [int(self.non_finite_inputs), int(self.non_finite_gradients)],
            "call_in_step": [self.call_in_step, int(self.compiled_call_in_step)],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; the bits in force are set before."""
        self.ranges.bounds.copy_(state["range"])
        self.ranges.blend.copy_(state["blend"])
        self.calls.fill_(state["calls"])
        self.macs.zero_()
        self.macs_before = {
            (forward, gradient): torch.tensor(count, dtype=torch.int64, device=self.macs.device)
            for forward, gradient, count in state["macs"]
        }
        self.non_finite_inputs.fill_(state["non_finite"][0])
        self.non_finite_gradients.fill_(state["non_finite"][1])
        self.call_in_step = int(state["call_in_step"][0])
        self.compiled_call_in_step.fill_(state["call_in_step"][1])

    def move(self, device: torch.device) -> None:
        """Bring the counters to the device of the layer."""
        if self.calls.device != device:
            self.calls, self.macs = self.calls.to(device), self.macs.to(device)
            self.non_finite_inputs = self.non_finite_inputs.to(device)
            self.non_finite_gradients = self.non_finite_gradients.to(device)
            self.compiled_call_in_step = self.compiled_call_in_step.to(device)


class CountedForward:
    """Forward of a layer in full precision that counts its multiply-accumulates."""

    def __init__(self, module: nn.Module, site: Site) -> None:
        self.module = module
        self.site = site

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the layer as its class says, and count."""
        module, site = self.module, self.site
        y = type(module).forward(module, *args, **kwargs)
        if module.training and site.state.recording and torch.is_grad_enabled():
            x = args[0] if args else next(iter(kwargs.values()))
            site.move(y.device)
            site.count(count_macs(module, x, y))
        return y


class QuantizedForward:
    """Forward of a Linear or Conv2d layer with quantized weight, input and output gradient."""

    def __init__(self, module: nn.Linear | nn.Conv2d, quantizer: Quantizer, site: Site) -> None:
        self.module = module
        self.quantizer = quantizer
        self.site = site

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        """Quantize, multiply, and mark the output so that its gradient will be quantized."""
        module, site = self.module, self.site
        state = site.state
        site.move(input.device)
        scheduled = module.training and state.recording
        recorded = scheduled and torch.is_grad_enabled()
        x, weight, bias = self._operands(input, scheduled)
        if isinstance(module, nn.Linear):
            y = functional.linear(x, weight, bias)
        else:
            y = module._conv_forward(x, weight, bias)
        if recorded:
            site.count(count_macs(module, input, y))
            if y.requires_grad and not state.gradient.exact:
                levels = state.gradient.levels(y.device)
                offset = site.noise_offset(y.device)
                published = self.quantizer.published
                by_position = published and isinstance(module, nn.Linear) and y.dim() > 2
                counter = site.non_finite_gradients
                y = quantize_output_gradient(y, levels, offset, counter, published=published, by_position=by_position)
        return y

    def _operands(self, x: torch.Tensor, scheduled: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Input, weight and bias, rounded to the bits in force."""
        module, site, quantizer = self.module, self.site, self.quantizer
        state = site.state
        weight, bias = module.weight, module.bias
        dial = state.weight if scheduled else state.evaluation
        if not dial.exact and weight.numel() > 0:
            levels = dial.levels(weight.device)
            weight = quantizer.rows(weight, levels)
            if bias is not None and quantizer.quantizes_bias:
                bias = quantizer.whole(bias, levels)
        dial = state.activation if scheduled else state.evaluation
        if not dial.exact and x.numel() > 0:
            mode = self._range_mode(scheduled)
            levels = dial.levels(x.device)
            x = quantizer.activation(x, levels, site.ranges, site.non_finite_inputs, mode=mode)
        return x, weight, bias

    def _range_mode(self, scheduled: bool) -> str:
        """Whether the range of the input is the batch's own, and whether the running range learns from it."""
        if not scheduled:
            return "current" if self.module.training else "running"
        # The reference code updates its ranges in training mode even without gradients.
        return "update" if torch.is_grad_enabled() or self.quantizer.published else "current"
