"""How a single layer is made to compute at few bits, without changing what it is.

The layer keeps its class, parameters, buffers and hooks; only its `forward` is covered by an attribute of the instance,
a plain picklable object that holds the `Site` of the layer: its running range and its counters. Removing the
attribute restores the layer exactly.

This is the short way, for Linear, Conv1d, Conv2d and Conv3d and subclasses that keep their forward. Everything else
that multiplies is covered by a `ScopedForward` (`scope.py`).

Not covered: `torch.nn.DataParallel` (use DistributedDataParallel).
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from trivet.precision.native import native_product
from trivet.precision.quantizer import Quantizer
from trivet.precision.sites import Pass, Site, pass_of
from trivet.precision.state import ModelState

PlainLayer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d

_FORWARDS = (nn.Linear.forward, nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)


def is_plain(module: nn.Module) -> bool:
    """Whether the layer computes exactly what Linear, Conv1d, Conv2d or Conv3d computes.

    Examples:
        >>> is_plain(nn.Linear(2, 2)), is_plain(nn.ReLU())
        (True, False)
    """
    return isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)) and type(module).forward in _FORWARDS


def make_site(
    layer: str, label: str, module: nn.Module, state: ModelState, quantizer: Quantizer | None, device: torch.device
) -> Site:
    """A site, whose tensors can be changed later also when it is made under inference mode."""
    with torch.inference_mode(False):
        return Site(layer, label, type(module).__name__, state, quantizer, device)


class PlainForward:
    """Forward of a plain layer with quantized weight, input and output gradient; or one that only counts."""

    def __init__(self, module: PlainLayer, site: Site) -> None:
        self.module = module
        self.site = site

    @property
    def sites(self) -> dict[str, Site]:
        """Its sites by label: one."""
        return {"": self.site}

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        """Quantize, multiply, count, and mark the output so that its gradient will be quantized."""
        module, site = self.module, self.site
        state = site.state
        scope = state.scope
        state.scope = None  # so that nothing in here is taken for a functional call of the module around it
        try:
            kind = pass_of(module, state, published=site.published)
            return self.product(input, module.weight, module.bias, kind)
        finally:
            state.scope = scope

    def product(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kind: Pass) -> torch.Tensor:
        """What the layer computes, at this site."""
        module, site = self.module, self.site
        if site.state.execution != "simulated" and not torch.compiler.is_compiling():
            found = native_product(module, site, x, weight, bias, kind)
            if found is not None:
                return found
        bias = site.round_bias(bias, kind)
        macs = math.prod(weight.shape[1:])
        weight = site.round_weight(weight, tuple(range(1, weight.dim())), kind)
        x = site.round_input(x, kind)
        if isinstance(module, nn.Linear):
            y = functional.linear(x, weight, bias)
            return site.finish(y, math.prod(y.shape) * macs, kind, by_position=y.dim() > 2)
        y = module._conv_forward(x, weight, bias)
        return site.finish(y, math.prod(y.shape) * macs, kind)


def device_of(module: nn.Module) -> torch.device:
    """Where a layer's weights are; the CPU when it has none."""
    tensor = next(module.parameters(), None)
    return torch.device("cpu") if tensor is None else tensor.device
