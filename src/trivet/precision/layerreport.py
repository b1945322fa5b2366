"""What happened to each layer of a quantized model: the proof that quantization took place, and what it cost.

Rounding errors are ‖x − x̂‖ / ‖x‖, sampled at the first eager pass of training at each number of bits; they cost nothing
at other steps. Compiled code is not sampled.

Not covered: errors over time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from trivet.precision.layers import is_plain
from trivet.precision.native import kernels_in_words
from trivet.precision.sites import Site, relative_error


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReport:
    """What happened to one layer so far."""

    name: str
    """Qualified name when the model was quantized; with the product, as in `attention:qk`, if there are several."""
    kind: str
    """Class of the layer."""
    quantised: bool
    """False for a layer in full precision, which is only counted."""
    calls: int
    """Forward passes that trained."""
    bits: int
    """Bits of its weight, or of both operands where there is none, now in force; 32 for a layer in full precision."""
    activation_bits: int
    """Bits of its input."""
    grad_bits: int
    """Bits of its output gradients."""
    weight_error: float | None
    """Rounding error of the weight; None where there is none, or it was not sampled."""
    activation_error: float | None
    """Rounding error of the input (of the last operand, if there are two); None if it was not sampled."""
    gradient_error: float | None
    """Rounding error of the output gradient; None if it was not sampled."""
    activation_range: tuple[float, float]
    """Running range of its input."""
    non_finite_inputs: int
    """Input elements that were NaN or infinite."""
    non_finite_gradients: int
    """Output gradient elements that were NaN or infinite."""
    bitops: int
    """BitOPs of its training so far."""
    execution: str = "simulated"
    """Kernels that computed its products last: forward · input gradient · weight gradient; or that they were simulated,
    with the reason where other formats were asked for."""


def layer_report(site: Site, module: nn.Module) -> LayerReport:
    """The report of one site.

    Args:
        site: The site.
        module: The layer it belongs to.
    """
    bits, activation_bits, grad_bits = site.bits
    low, high = site.ranges[0].bounds.tolist()
    weight_error = _weight_error(site, module)
    return LayerReport(
        name=site.name,
        kind=site.kind,
        quantised=site.quantizer is not None,
        calls=site.calls.value,
        bits=bits,
        activation_bits=activation_bits,
        grad_bits=grad_bits,
        weight_error=_sampled(site, "weight") if weight_error is None else weight_error,
        activation_error=_sampled(site, "activation"),
        gradient_error=_sampled(site, "gradient"),
        activation_range=(low, high),
        non_finite_inputs=site.non_finite_inputs.value,
        non_finite_gradients=site.non_finite_gradients.value,
        bitops=site.bitops,
        execution=_execution(site),
    )


def _execution(site: Site) -> str:
    if site.executed:
        return kernels_in_words(site.executed)
    return f"simulated: {site.obstacle}" if site.obstacle else "simulated"


def _sampled(site: Site, role: str) -> float | None:
    return site.errors[role][1] if role in site.errors else None


@torch.no_grad()
def _weight_error(site: Site, module: nn.Module) -> float | None:
    """Error of a plain layer's weight at the bits now in force; None for anything else."""
    if not is_plain(module):
        return None if site.quantizer is not None else 0.0
    weight = module.weight
    if site.quantizer is None or site.dials.weight.exact or not isinstance(weight, torch.Tensor) or not weight.numel():
        return 0.0
    rounded = site.quantizer.rows(weight, site.dials.weight.levels(weight.device), tuple(range(1, weight.dim())))
    return relative_error(weight, rounded) or 0.0
