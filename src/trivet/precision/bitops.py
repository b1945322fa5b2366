"""Cost of training in BitOPs, in closed form.

A multiply-accumulate of a-bit with b-bit numbers counts a × b BitOPs. One training step multiplies once forward
(b_f × b_f) and twice backward (b_f × b_g, for the gradient of the input and of the weight), so per
multiply-accumulate (MAC) and step it costs b_f² + 2 b_f b_g, the formula of arXiv 2101.09868 and 2403.02243. Every
layer counts both backward products, as published, also the first layer, whose input needs no gradient.

BitOPs are not seconds: on a CPU or GPU of today nothing below 8 bits runs faster. Not covered: memory traffic, norms,
activations, optimizer; evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trivet.precision.checks import MAX_BITS, check_bits, check_whole
from trivet.precision.runs import RoleRuns, Schedule


def bitops_per_mac(forward_bits: int, grad_bits: int) -> int:
    """BitOPs of one multiply-accumulate in one training step: b_f² + 2 b_f b_g.

    Examples:
        >>> bitops_per_mac(8, 8), bitops_per_mac(32, 32)
        (192, 3072)
    """
    return forward_bits * forward_bits + 2 * forward_bits * grad_bits


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost:
    """Multiply-accumulates of one layer."""

    name: str
    """Qualified name inside the model."""
    kind: str
    """Class of the layer, such as Conv2d."""
    macs: int
    """Multiply-accumulates of one forward pass of one example."""
    quantised: bool
    """Whether the layer computes at the schedule's bits; otherwise it counts at 32."""


def training_bitops(
    layers: Iterable[LayerCost],
    schedule: Schedule | RoleRuns | None,
    grad_bits: int = 8,
    batch_size: int = 1,
    steps: int | None = None,
) -> float:
    """BitOPs of a training run, before it is run.

    sum over layers and steps of MACs × batch_size × (b_f² + 2 b_f b_g); layers that are not quantized, and all layers
    when there is no schedule, count at 32 bits throughout. Equal to what `PrecisionController.cost` counts.

    Args:
        layers: From `layer_macs`.
        schedule: Bits per step, a schedule for each role, or None for full precision.
        grad_bits: Bits of the gradients of quantized layers, unless the schedule says otherwise.
        batch_size: Examples per optimizer step.
        steps: Optimizer steps done; all steps of the schedule when left out.

    Raises:
        ValueError: Steps that the schedule does not have, or none given where there is no schedule.

    Examples:
        >>> layer = LayerCost(name="conv", kind="Conv2d", macs=1000, quantised=True)
        >>> training_bitops([layer], None, batch_size=2, steps=10)
        61440000.0
    """
    parts = layer_bitops(layers, schedule, grad_bits, batch_size, steps)
    return float(sum(part.total for part in parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerBitops:
    """BitOPs that the training of one layer costs, by what is multiplied: the breakdown of an energy estimate."""

    name: str
    """Qualified name inside the model."""
    forward: int
    """Activations × weights, b_f² each."""
    backward_input: int
    """Output gradients × weights, b_f b_g each, for the gradient of the layer's input."""
    backward_weight: int
    """Output gradients × activations, b_f b_g each, for the gradient of the weights."""

    @property
    def total(self) -> int:
        """Sum of the three."""
        return self.forward + self.backward_input + self.backward_weight


def layer_bitops(
    layers: Iterable[LayerCost],
    schedule: Schedule | RoleRuns | None,
    grad_bits: int = 8,
    batch_size: int = 1,
    steps: int | None = None,
) -> list[LayerBitops]:
    """BitOPs of a training run, layer by layer; arguments and errors as for `training_bitops`, which is their sum.

    Examples:
        >>> layer = LayerCost(name="conv", kind="Conv2d", macs=1000, quantised=True)
        >>> [(part.forward, part.backward_input) for part in layer_bitops([layer], None, steps=1)]
        [(1024000, 1024000)]
    """
    grad_bits = check_bits("grad_bits", grad_bits)
    batch_size = check_whole("batch_size", batch_size)
    if batch_size < 1:
        raise ValueError(f"`batch_size={batch_size}` must be ≥ 1")
    if steps is None and schedule is None:
        raise ValueError("`steps` must be given where there is no schedule that knows them")
    total = schedule.total_steps if schedule else steps or 0
    steps = total if steps is None else steps
    steps = check_whole("steps", steps)
    if not 0 <= steps <= total:
        raise ValueError(f"`steps={steps}` must lie in [0, {total}]; the schedule has {total} steps")
    full = (steps * MAX_BITS**2,) * 3
    scheduled = full if schedule is None else _scheduled(schedule, grad_bits, steps)
    found: list[LayerBitops] = []
    for layer in layers:
        count = layer.macs * batch_size
        forward, by_input, by_weight = scheduled if layer.quantised else full
        found.append(
            LayerBitops(
                name=layer.name,
                forward=count * forward,
                backward_input=count * by_input,
                backward_weight=count * by_weight,
            )
        )
    return found


def _scheduled(schedule: Schedule | RoleRuns, grad_bits: int, steps: int) -> tuple[int, int, int]:
    """Sums over the first steps of b_w b_a, b_g b_w and b_g b_a, in whole numbers."""
    forward = by_input = by_weight = 0
    for start, length, bits in schedule.runs():
        weight, activation, gradient = bits if isinstance(bits, tuple) else (bits, bits, grad_bits)
        count = max(0, min(length, steps - start))
        forward += count * weight * activation
        by_input += count * gradient * weight
        by_weight += count * gradient * activation
    return forward, by_input, by_weight
