"""A site: one multiplication of a model, where operands and output gradient are rounded and work is counted.

A plain layer has one site; a layer or module with several products (attention, recurrence, functional calls) has one
for each. Layers that stay in full precision have sites that only count, so that the cost of the model is whole.

A pass is *scheduled* when the module trains: it uses the training bits. It is *recorded* when gradients are enabled as
well: then it is counted and running ranges learn. The recomputation of activation checkpointing repeats a recorded
pass without recording it again; its noise is that of the first time.

Not covered: recomputation by other means than `torch.utils.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from trivet.precision.checks import MAX_BITS
from trivet.precision.counters import Counter
from trivet.precision.noise import layer_salt, stream_offset
from trivet.precision.quantizer import ALONE, Quantizer, RunningRange, quantize_output_gradient
from trivet.precision.state import Dial, ModelState


class Pass(NamedTuple):
    """What kind of forward pass this is."""

    scheduled: bool
    """Training bits, not evaluation bits."""
    recorded: bool
    """Counted, and running ranges learn."""
    marked: bool
    """The gradient of the output will be rounded."""
    mode: str
    """Range of activations: update, current or running."""


def is_recomputed() -> bool:
    """Whether `torch.utils.checkpoint` is repeating a forward pass that has been recorded already.

    Reentrant checkpoints run the first pass without gradients, so that theirs is recorded when it is repeated.
    """
    if torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:
        return False
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return hooks is not None and hooks[0].__qualname__.startswith("_recomputation_hook")


def pass_of(module: nn.Module, state: ModelState, *, published: bool) -> Pass:
    """What kind of pass a module is in.

    Args:
        module: Whose training flag decides.
        state: Of its model.
        published: Whether ranges learn in training mode even without gradients, as in the reference code.
    """
    scheduled = module.training and state.recording
    gradients = torch.is_grad_enabled()
    repeated = scheduled and gradients and is_recomputed()
    recorded = (scheduled and gradients and not repeated) or state.counting
    if not scheduled:
        mode = "current" if module.training else "running"
    else:
        mode = "update" if recorded or (published and not repeated) else "current"
    return Pass(scheduled, recorded, scheduled and gradients, mode)


class Site:
    """A place in a model where quantization or counting happens: one product."""

    def __init__(
        self, layer: str, label: str, kind: str, state: ModelState, quantizer: Quantizer | None, device: torch.device
    ) -> None:
        self.layer = layer
        """Qualified name of the layer when it was quantized."""
        self.label = label
        """Which of the products of the layer; empty for the only one."""
        self.kind = kind
        """Class of the layer."""
        self.state = state
        """What all sites of the model share."""
        self.quantizer = quantizer
        """None for a site that only counts."""
        self.dials = state.dials_for(layer, self.name)
        """Bits of its roles."""
        self.weighted = True
        """Whether one operand is a weight; False for products of activations, such as attention scores."""
        self.salt = layer_salt(self.name)
        self.ranges: list[RunningRange] = []
        """Running ranges, one for each operand that is an activation."""
        self.device = device
        self.calls = Counter(device)
        """Forward passes that trained, at any bits."""
        self.macs = Counter(device)
        """Multiply-accumulates of them since the bits last changed."""
        self.macs_before: dict[tuple[int, int, int], int] = {}
        """The same for bits that were in force before: (operand, operand, gradient) → count."""
        self.non_finite_inputs = Counter(device)
        self.non_finite_gradients = Counter(device)
        self.calls_in_step = Counter(device)
        """Calls in this optimizer step, which key the noise."""
        self.errors: dict[str, tuple[int, float]] = {}
        """Role → bits and relative rounding error, sampled at the first pass at those bits."""
        self.executed: dict[str, str] = {}
        """Product (forward, input, weight) → kernel that computed it last; empty where it was simulated."""
        self.obstacle = ""
        """Why it was simulated though other formats were asked for."""
        self.range_of(0)

    @property
    def name(self) -> str:
        """Name of layer and product, such as `encoder.0.attention:qk`."""
        return f"{self.layer}:{self.label}" if self.label else self.layer

    @property
    def exact(self) -> bool:
        """Whether training rounds nothing here."""
        dials = self.dials
        return self.quantizer is None or (dials.weight.exact and dials.activation.exact and dials.gradient.exact)

    @property
    def published(self) -> bool:
        """Whether rounding follows the reference code."""
        return self.quantizer is not None and self.quantizer.published

    @property
    def bits(self) -> tuple[int, int, int]:
        """Bits of the two operands and of the gradient in force for training."""
        if self.quantizer is None:
            return MAX_BITS, MAX_BITS, MAX_BITS
        weight, activation, gradient = self.dials.training_bits()
        return (weight if self.weighted else activation), activation, gradient

    def range_of(self, operand: int) -> RunningRange:
        """The running range of an operand."""
        while len(self.ranges) <= operand:
            self.ranges.append(RunningRange(self.device, from_zero=self.published))
        return self.ranges[operand]

    def round_weight(self, weight: torch.Tensor, dims: tuple[int, ...], kind: Pass) -> torch.Tensor:
        """A weight rounded with one range per channel.

        Args:
            weight: Any shape.
            dims: The dimensions that are summed over, so not those of the channels.
            kind: Of this pass.
        """
        dial = self.dials.weight if kind.scheduled else self.dials.weight_evaluation
        if self.quantizer is None or dial.exact or weight.numel() == 0:
            return weight
        rounded = self.quantizer.rows(weight, dial.levels(weight.device), dims)
        self._sample("weight", dial, weight, rounded, kind)
        return rounded

    def round_bias(self, bias: torch.Tensor | None, kind: Pass) -> torch.Tensor | None:
        """The bias, rounded where the quantizer does that."""
        dial = self.dials.weight if kind.scheduled else self.dials.weight_evaluation
        if bias is None or self.quantizer is None or dial.exact or not self.quantizer.quantizes_bias:
            return bias
        return self.quantizer.rows(bias, dial.levels(bias.device)) if bias.numel() else bias

    def round_input(
        self, x: torch.Tensor, kind: Pass, operand: int = 0, dims: tuple[int, ...] | None = None
    ) -> torch.Tensor:
        """An activation rounded with one range, or with one per row of this batch when `dims` are given."""
        dial = self.dials.activation if kind.scheduled else self.dials.activation_evaluation
        if self.quantizer is None or dial.exact or x.numel() == 0:
            return x
        levels = dial.levels(x.device)
        if dims is not None:
            rounded = self.quantizer.rows(x, levels, dims)
        else:
            counter = self.non_finite_inputs
            counter.move(x.device)
            rounded = self.quantizer.activation(
                x,
                levels,
                self.range_of(operand),
                counter,
                mode=kind.mode,
                buffers=self.state.buffers,
                ranks=self.state.ranks if kind.scheduled else ALONE,
            )
        self._sample("activation", dial, x, rounded, kind)
        return rounded

    def finish(
        self, y: torch.Tensor, macs: int, kind: Pass, *, by_position: bool = False, blocks: int = 1
    ) -> torch.Tensor:
        """Count the product, and mark its output so that the gradient will be rounded.

        Args:
            y: The output, owned by the caller: it is returned itself, not a copy.
            macs: Multiply-accumulates.
            kind: Of this pass.
            by_position: Whether the published ranges of the gradient are per position.
            blocks: Leading blocks of the output, such as time steps, that each hold all examples; 1: examples lead.
        """
        if kind.recorded:
            self.count(macs, y.device)
        dial = self.dials.gradient
        if not kind.marked or self.quantizer is None or dial.exact or not y.requires_grad:
            return y
        self.non_finite_gradients.move(y.device)
        offset = self._noise_offset(y.device, advance=kind.recorded)
        probe: Callable[[torch.Tensor, torch.Tensor], None] | None = None
        if kind.recorded and self._unsampled("gradient", dial):
            probe = GradientProbe(self, dial.bits)
        by_position = by_position and self.published
        levels, counter = dial.levels(y.device), self.non_finite_gradients
        return quantize_output_gradient(
            y,
            levels,
            offset,
            counter,
            published=self.published,
            by_position=by_position,
            probe=probe,
            ranks=self.state.ranks,
            blocks=blocks,
        )

    def count(self, macs: int, device: torch.device) -> None:
        """Add a forward pass that trains."""
        self.calls.move(device)
        self.macs.move(device)
        self.calls.add(1)
        self.macs.add(macs * self.state.ranks.size)  # every process makes such a pass

    def settle(self) -> None:
        """Book the count under the bits in force; to be called before these change."""
        if count := self.macs.value:
            self.macs_before[self.bits] = self.macs_before.get(self.bits, 0) + count
            self.macs.set(0)

    def macs_by_bits(self) -> dict[tuple[int, int, int], int]:
        """Multiply-accumulates so far: bits of the operands and of the gradient → count."""
        counts = dict(self.macs_before)
        counts[self.bits] = counts.get(self.bits, 0) + self.macs.value
        return {bits: count for bits, count in sorted(counts.items()) if count}

    @property
    def bitops(self) -> int:
        """BitOPs so far: sum of MACs × (pq + pg + qg) for operands of p and q bits and gradients of g bits."""
        return sum(n * (p * q + p * g + q * g) for (p, q, g), n in self.macs_by_bits().items())

    def begin_step(self) -> None:
        """Start a new optimizer step."""
        self.calls_in_step.set(0)

    def find_dials(self) -> None:
        """Look its dials up again, after the groups have changed."""
        self.dials = self.state.dials_for(self.layer, self.name)

    def forget_counts(self) -> None:
        """Count from zero; the running ranges stay."""
        self.macs_before.clear()
        self.errors.clear()
        for counter in self._counters():
            counter.set(0)

    def state_dict(self) -> dict[str, Any]:
        """Running ranges and counts, as plain values and tensors; equal for runs that were resumed and were not."""
        counters = [[0, 0] if counter is self.macs else counter.state() for counter in self._counters()]  # under "macs"
        return {
            "ranges": [[r.bounds.cpu().clone(), r.blend.cpu().clone()] for r in self.ranges],
            "macs": [[*bits, count] for bits, count in self.macs_by_bits().items()],
            "counters": counters,
            "weighted": self.weighted,
            "errors": {role: list(found) for role, found in self.errors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; the bits in force are set before."""
        for operand, (bounds, blend) in enumerate(state["ranges"]):
            self.range_of(operand).bounds.copy_(bounds)
            self.range_of(operand).blend.copy_(blend)
        self.macs_before = {(p, q, g): count for p, q, g, count in state["macs"]}
        for counter, value in zip(self._counters(), state["counters"], strict=True):
            counter.load(value)
        self.macs.set(0)
        self.weighted = bool(state["weighted"])
        self.errors = {role: (int(bits), float(error)) for role, (bits, error) in state["errors"].items()}

    def _counters(self) -> tuple[Counter, ...]:
        return (self.calls, self.macs, self.non_finite_inputs, self.non_finite_gradients, self.calls_in_step)

    def _noise_offset(self, device: torch.device, *, advance: bool) -> int | torch.Tensor:
        """Where the noise of the next gradient begins."""
        counter = self.calls_in_step
        if torch.compiler.is_compiling():
            counter.move(device)
            call = counter.tensor.clone()
            counter.add(1)
            return stream_offset(self.state.key(device), self.salt, call)
        call = counter.plain
        if advance:
            counter.add(1)
        return stream_offset(self.state.key_value, self.salt, call)

    def _unsampled(self, role: str, dial: Dial) -> bool:
        return not torch.compiler.is_compiling() and self.errors.get(role, (0, 0.0))[0] != dial.bits

    def _sample(self, role: str, dial: Dial, x: torch.Tensor, rounded: torch.Tensor, kind: Pass) -> None:
        if kind.recorded and self._unsampled(role, dial) and x.device.type != "meta":
            self.note_error(role, dial.bits, x.detach(), rounded.detach())

    def note_error(self, role: str, bits: int, x: torch.Tensor, rounded: torch.Tensor) -> None:
        """Keep the rounding error of a tensor, unless it is all zero, such as the first state of a recurrence."""
        error = relative_error(x, rounded)
        if error is not None:
            self.errors[role] = (bits, error)


class GradientProbe:
    """Notes the rounding error of the first gradient at some bits."""

    def __init__(self, site: Site, bits: int) -> None:
        self.site = site
        self.bits = bits

    def __call__(self, grad: torch.Tensor, rounded: torch.Tensor) -> None:
        """Note it."""
        self.site.note_error("gradient", self.bits, grad, rounded)


def relative_error(x: torch.Tensor, rounded: torch.Tensor) -> float | None:
    """‖x − x̂‖ / ‖x‖ over the finite elements; None for a tensor of zeros.

    Examples:
        >>> relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 5.0]))
        0.2
    """
    x, rounded = x.float(), rounded.float()
    size = float(torch.nan_to_num(x, 0.0, 0.0, 0.0).norm())
    return float(torch.nan_to_num(x - rounded, 0.0, 0.0, 0.0).norm()) / size if size > 0 else None
