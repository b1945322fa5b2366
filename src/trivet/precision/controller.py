"""Moves a quantized model along its precision schedule, counts what that costs, and resumes exactly.

    ctl = PrecisionController(model, schedule, grad_bits=8)
    for batch in batches:
        loss = …; loss.backward(); optimizer.step(); ctl.step()     # once per optimizer step, not per micro-batch
    with ctl.at(8):                                                 # or simply model.eval(): evaluation bits
        evaluate(model)

Which bits a forward pass uses: in training mode the schedule's, in evaluation mode the evaluation bits (q_max unless
declared), and inside `at(bits)` those bits in either mode. Evaluation never runs at whatever bits the schedule is at.

Not covered: execution in number formats that run faster (`execution="native"`): precision is simulated, so BitOPs are
counted, and time is not saved.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from trivet.core.errors import TrivetError
from trivet.precision.base import Schedule
from trivet.precision.checks import check_bits, check_whole
from trivet.precision.inject import sites
from trivet.precision.layerreport import LayerReport, layer_report, site_bitops

_log = logging.getLogger(__name__)

FORMAT = 1
"""Version of the controller's state."""


class PrecisionController:
    """Steps a quantized model along a schedule, like a learning-rate scheduler.

    Example:
        >>> from trivet.precision import PrecisionSchedule, quantize_
        >>> model = quantize_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
        >>> schedule = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=10)
        >>> ctl = PrecisionController(model, schedule)
        >>> for _ in range(9):
        ...     model(torch.ones(5, 4)).sum().backward()
        ...     ctl.step()
        >>> ctl.bits, ctl.report()[0].calls
        (8, 9)
    """

    def __init__(
        self,
        model: nn.Module,
        schedule: Schedule,
        grad_bits: int = 8,
        execution: str = "simulated",
        *,
        evaluate_bits: int = 0,
        seed: int = 0,
        rank: int = -1,
    ) -> None:
        """Take over a quantized model, from another controller if need be, and set it to the bits of step 0.

        Args:
            model: A model that `quantize_` has been called on, possibly wrapped since.
            schedule: Bits of the forward pass per optimizer step.
            grad_bits: Bits of the gradients, at every step.
            execution: Only "simulated" so far: quantized values, computed in floating point.
            evaluate_bits: Bits in evaluation mode; 0 stands for the most bits of the schedule.
            seed: Seed of the stochastic rounding of gradients.
            rank: Rank of this process, so that each rounds differently; −1 asks torch.distributed.

        Raises:
            TrivetError: The model is not quantized.
            ValueError: Bits outside [1, 32], or an execution that does not exist yet.
        """
        check_bits("grad_bits", grad_bits)
        check_bits("evaluate_bits", evaluate_bits, low=0)
        check_whole("seed", seed)
        if seed < 0:
            raise ValueError(f"`seed={seed}` must be ≥ 0")
        if execution != "simulated":
            raise ValueError(
                f"`execution={execution!r}` must be 'simulated': formats that run faster are not implemented yet"
            )
        self.schedule = schedule
        """The schedule."""
        self.execution = execution
        """How low precision is executed."""
        self.last_step = 0
        """Optimizer steps done."""
        self._seed = seed
        self._rank = _own_rank() if rank < 0 else rank
        self._layers = {site.name: (site, module) for site, module in sites(model)}
        quantized = [site for site, _ in self._layers.values() if site.quantizer is not None]
        if not quantized:
            raise TrivetError("the model is not quantized; call quantize_(model) before making a PrecisionController")
        self._state = quantized[0].state
        self._state.claims += 1
        self._claim = self._state.claims
        for site, _ in self._layers.values():
            site.forget_counts()
        self._state.evaluation.set(evaluate_bits or schedule.q_max)
        self._set(schedule.bits(0), grad_bits)
        self._state.set_key(seed, 0, self._rank)

    @property
    def bits(self) -> int:
        """Bits of the forward pass that the schedule has in force."""
        return self._state.weight.bits

    @property
    def grad_bits(self) -> int:
        """Bits of the gradients."""
        return self._state.gradient.bits

    @property
    def evaluate_bits(self) -> int:
        """Bits of a forward pass in evaluation mode."""
        return self._state.evaluation.bits

    @property
    def cost(self) -> float:
        """BitOPs of the training so far, counted from the layers that ran.

        sum of MACs × (b_f² + 2 b_f b_g) over forward passes that trained; layers in full precision count at 32 bits.
        """
        return float(sum(site_bitops(site) for site, _ in self._layers.values()))

    def step(self) -> None:
        """Go to the next optimizer step; to be called once after `optimizer.step()`.

        After the last step of the schedule its last bits stay in force; going on is logged as a warning.

        Raises:
            TrivetError: The model has been dequantized or taken over by another controller.
        """
        self._check_claim()
        self.last_step += 1
        total = self.schedule.total_steps
        if self.last_step == total + 1:
            _log.warning(
                "training goes on after the %d steps the precision schedule was made for; staying at %d bits",
                total,
                self.bits,
            )
        self._set(self.schedule.bits(min(self.last_step, total - 1)), self.grad_bits)
        self._state.set_key(self._seed, self.last_step, self._rank)
        for site, _ in self._layers.values():
            site.begin_step()

    @contextmanager
    def at(self, bits: int = 0) -> Generator[None]:
        """Compute at declared bits inside a `with` block, for evaluation.

        Nothing is counted, no running range learns, and gradients are not quantized. Leaves the schedule where it is.

        Args:
            bits: Bits of weights and activations; 0 stands for the evaluation bits.

        Raises:
            ValueError: Bits outside [1, 32].
            TrivetError: As for `step`.
        """
        check_bits("bits", bits, low=0)
        self._check_claim()
        evaluation, recording = self._state.evaluation.bits, self._state.recording
        try:
            self._state.recording = False
            if bits:
                self._state.evaluation.set(bits)
            yield
        finally:
            self._state.evaluation.set(evaluation)
            self._state.recording = recording

    def report(self) -> list[LayerReport]:
        """What was quantized, layer by layer, in the order of the model.

        Raises:
            TrivetError: A layer that was to be quantized has never run in training.
        """
        never = [site.name for site, _ in self._layers.values() if site.quantizer is not None and int(site.calls) == 0]
        if never:
            raise TrivetError(
                f"never quantized, though chosen: {', '.join(never)}; these layers have not run in training mode with "
                "gradients. Leave them out with filter_fn, or train before asking"
            )
        return [layer_report(site, module) for site, module in self._layers.values()]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly: step, running ranges, counts. Plain values and tensors only."""
        return {
            "format": FORMAT,
            "schedule": self.schedule.to_dict(),
            "step": self.last_step,
            "seed": self._seed,
            "grad_bits": self.grad_bits,
            "evaluate_bits": self.evaluate_bits,
            "layers": {name: site.state_dict() for name, (site, _) in self._layers.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            ValueError: Another schedule, other layers, or a version this trivet does not know.
            TrivetError: As for `step`.
        """
        self._check_claim()
        if state.get("format") != FORMAT:
            raise ValueError(f"`format={state.get('format')!r}` must be {FORMAT}; written by another trivet version?")
        if state["schedule"] != self.schedule.to_dict():
            raise ValueError("the state belongs to another precision schedule; make the controller with that one")
        if set(state["layers"]) != set(self._layers):
            odd = sorted(set(state["layers"]) ^ set(self._layers))
            raise ValueError(f"the state belongs to other layers; in one of the two only: {', '.join(odd)}")
        self.last_step = int(state["step"])
        self._seed = int(state["seed"])
        self._state.evaluation.set(int(state["evaluate_bits"]))
        step = min(self.last_step, self.schedule.total_steps - 1)
        self._set(self.schedule.bits(step), int(state["grad_bits"]))
        self._state.set_key(self._seed, self.last_step, self._rank)
        for name, (site, _) in self._layers.items():
            site.load_state_dict(state["layers"][name])

    def _check_claim(self) -> None:
        if self._state.claims != self._claim:
            raise TrivetError(
                "this controller no longer moves the model: it was dequantized, or another controller took it over; "
                "use the new controller, or make one after quantize_(model)"
            )

    def _set(self, bits: int, grad_bits: int) -> None:
        if (bits, grad_bits) == (self._state.weight.bits, self._state.gradient.bits):
            return
        for site, _ in self._layers.values():
            site.settle()
        self._state.weight.set(bits)
        self._state.activation.set(bits)
        self._state.gradient.set(grad_bits)


def _own_rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
