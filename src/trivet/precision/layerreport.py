"""What happened to each layer of a quantized model: the proof that quantization took place, and what it cost.

Not covered: the error of activations and gradients, which would have to be measured while training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from trivet.precision.bitops import bitops_per_mac
from trivet.precision.layers import Site


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReport:
    """What happened to one layer so far."""

    name: str
    """Qualified name when the model was quantized."""
    quantised: bool
    """False for a layer in full precision, which is only counted."""
    calls: int
    """Forward passes that trained."""
    bits: int
    """Bits of the forward pass now in force; 32 for a layer in full precision."""
    grad_bits: int
    """Bits of its output gradients."""
    weight_error: float
    """‖w − ŵ‖ / ‖w‖ of the weight rounded to the bits now in force."""
    activation_range: tuple[float, float]
    """Running range of its input."""
    non_finite_inputs: int
    """Input elements that were NaN or infinite."""
    non_finite_gradients: int
    """Output gradient elements that were NaN or infinite."""
    bitops: int
    """BitOPs of its training so far."""


def site_bitops(site: Site) -> int:
    """BitOPs of the forward passes that trained: sum of MACs × (b_f² + 2 b_f b_g)."""
    return sum(count * bitops_per_mac(*bits) for bits, count in site.macs_by_bits().items())


def layer_report(site: Site, module: nn.Module) -> LayerReport:
    """The report of one layer.

    Args:
        site: Its site.
        module: The layer itself.
    """
    bits, grad_bits = site.bits
    low, high = site.ranges.bounds.tolist()
    return LayerReport(
        name=site.name,
        quantised=site.quantizer is not None,
        calls=int(site.calls),
        bits=bits,
        grad_bits=grad_bits,
        weight_error=_weight_error(site, module),
        activation_range=(low, high),
        non_finite_inputs=int(site.non_finite_inputs),
        non_finite_gradients=int(site.non_finite_gradients),
        bitops=site_bitops(site),
    )


@torch.no_grad()
def _weight_error(site: Site, module: nn.Module) -> float:
    weight = module.weight
    if site.quantizer is None or site.state.weight.exact or not isinstance(weight, torch.Tensor) or not weight.numel():
        return 0.0
    rounded = site.quantizer.rows(weight, site.state.weight.levels(weight.device))
    size = float(weight.norm())
    return float((weight - rounded).norm()) / size if size > 0 else 0.0
