"""Moves a quantized model along its precision schedule, counts what that costs, and resumes exactly.

    ctl = PrecisionController(model, schedule, grad_bits=8)
    for batch in batches:
        loss = …; loss.backward(); optimizer.step(); ctl.step()     # once per optimizer step, not per micro-batch
    with ctl.at(8):                                                 # or simply model.eval(): evaluation bits
        evaluate(model)

Weights, activations and gradients may follow schedules of their own (`roles`), and layers may differ (`overrides`):

    PrecisionController(model, schedule, roles={"gradient": other}, overrides={"layer1.*": 8, "head": {"weight": 4}})

Which bits a forward pass uses: in training mode the schedule's, in evaluation mode the evaluation bits (q_max unless
declared), and inside `at(bits)` those bits in either mode. Evaluation never runs at whatever bits the schedule is at.

How low precision is executed is a choice: `simulated` rounds in floating point, which saves BitOPs on paper and no
time; `native` computes each product in the cheapest number format of the device that holds its bits, and `auto` in the
fastest one that does, measured once (`native.py`). `seconds` shows what each level really takes.

Not covered: other execution than simulated under `torch.compile`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from trivet.core.errors import TrivetError, unknown_name
from trivet.precision.base import Schedule
from trivet.precision.buffers import keep_freed_memory
from trivet.precision.checks import EXECUTIONS, check_bits, check_choice, check_whole
from trivet.precision.choice import chosen, take_over
from trivet.precision.discover import is_layer
from trivet.precision.formats import support_of
from trivet.precision.inject import Cover, covers, is_chosen, state_of
from trivet.precision.layerreport import LayerReport, layer_report
from trivet.precision.levelclock import LevelClock, LevelTime
from trivet.precision.plan import Bits, Override, RolePlan
from trivet.precision.roles import RoleSchedules
from trivet.precision.scope import ScopedForward
from trivet.precision.sites import Site
from trivet.training.ranks import Ranks

_log = logging.getLogger(__name__)

FORMAT = 2
"""Version of the controller's state."""


class PrecisionController:
    """Steps a quantized model along a schedule, like a learning-rate scheduler.

    Examples:
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
        schedule: Schedule | RoleSchedules,
        grad_bits: int = 8,
        execution: str = "simulated",
        *,
        evaluate_bits: int = 0,
        seed: int = 0,
        rank: int = -1,
        roles: Mapping[str, Bits] | None = None,
        overrides: Mapping[str, Override] | None = None,
    ) -> None:
        """Take over a quantized model, from another controller if need be, and set it to the bits of step 0.

        Args:
            model: A model that `quantize_` has been called on, possibly wrapped since.
            schedule: Bits of the forward pass per optimizer step, or a schedule for each role.
            grad_bits: Bits of the gradients, at every step, unless `schedule` or `roles` says otherwise.
            execution: "simulated": quantized values, computed in floating point; "native": in the cheapest number
                format of the device that holds the bits; "auto": in the fastest one. See `native.py`.
            evaluate_bits: Bits in evaluation mode; 0 stands for the most bits of the schedule.
            seed: Seed of the stochastic rounding of gradients.
            rank: Rank of this process, so that each rounds differently; −1 asks torch.distributed.
            roles: Role ("weight", "activation", "gradient") → a schedule or constant bits, in place of `schedule` and
                `grad_bits`.
            overrides: Pattern of layer names → bits of these layers: a schedule or constant bits for weight and
                activation, or a mapping from roles. The last pattern that matches counts. These layers are evaluated
                at the most bits of their own.

        Raises:
            TrivetError: The model is not quantized.
            ValueError: Bits outside [1, 32], an execution that does not exist, an unknown role, or a pattern that
                matches no quantized layer.
        """
        grad_bits = check_bits("grad_bits", grad_bits)
        evaluate_bits = check_bits("evaluate_bits", evaluate_bits, low=0)
        seed = check_whole("seed", seed)
        if seed < 0:
            raise ValueError(f"`seed={seed}` must be ≥ 0")
        check_choice("execution", execution, EXECUTIONS)
        self.schedule = schedule
        """The schedule."""
        self.execution = execution
        """How low precision is executed."""
        self.last_step = 0
        """Optimizer steps done."""
        self._clock = LevelClock()
        self._seed = seed
        self._rank = _own_rank() if rank < 0 else rank
        self._covers: dict[str, Cover] = covers(model)
        self._chosen = [name for name, cover in self._covers.items() if is_chosen(cover)]
        if not self._chosen:
            raise TrivetError("the model is not quantized; call quantize_(model) before making a PrecisionController")
        plan = RolePlan.of(schedule, grad_bits).changed(roles or {}, "roles")
        self._plans = {"*": plan}
        for pattern, change in (overrides or {}).items():
            self._check_pattern(pattern)
            self._plans[pattern] = plan.changed(change, f"overrides[{pattern!r}]")
        self._take_over(evaluate_bits)

    def _take_over(self, evaluate_bits: int) -> None:
        """Become the one that moves the model, and set it to step 0."""
        self._state = state_of(self._covers[self._chosen[0]])
        self._state.execution = self.execution
        if self.execution != "simulated":
            keep_freed_memory()
            for device in self._state.devices:
                support_of(device)  # so that nothing is tried out in the first step
        self._state.claims += 1
        self._claim = self._state.claims
        self._state.set_groups(pattern for pattern in self._plans if pattern != "*")
        for site in self._sites():
            site.forget_counts()
            site.find_dials()
        for pattern, plan in self._plans.items():
            most = (evaluate_bits, evaluate_bits) if pattern == "*" and evaluate_bits else plan.most()
            self._state.groups[pattern].set_evaluation(most)
        self._set(0)
        self._state.set_key(self._seed, 0, self._rank)

    def share(self, ranks: Ranks) -> None:
        """Say that the processes of a training see equal parts of one batch, cut along the first dimension.

        Then ranges are those of the whole batch, and gradients are rounded with the noise that one process would give
        them, so that N processes take the steps of one. Every process must call it, and make the same passes.

        Args:
            ranks: Which process this is.
        """
        self._rank = 0 if ranks.size > 1 else self._rank
        self._state.ranks = ranks
        self._state.set_key(self._seed, self.last_step, self._rank)

    def _sites(self) -> list[Site]:
        return [site for cover in self._covers.values() for site in cover.sites.values()]

    def _check_pattern(self, pattern: str) -> None:
        names = [name for name in self._chosen for name in (name, *self._labels(name))]
        if pattern == "*" or (":" not in pattern and not any(fnmatchcase(name, pattern) for name in names)):
            raise ValueError(unknown_name("pattern of quantized layers in `overrides`", pattern, self._chosen[:40]))

    def _labels(self, name: str) -> list[str]:
        return [site.name for site in self._covers[name].sites.values()]

    @property
    def bits(self) -> int:
        """Bits of the forward pass (of its weights, where roles differ) that the schedule has in force."""
        return self._state.base.weight.bits

    @property
    def grad_bits(self) -> int:
        """Bits of the gradients in force."""
        return self._state.base.gradient.bits

    @property
    def evaluate_bits(self) -> int:
        """Bits of a forward pass in evaluation mode."""
        return self._state.base.weight_evaluation.bits

    @property
    def cost(self) -> float:
        """BitOPs of the training so far, counted from the layers that ran.

        sum of MACs × (b_f² + 2 b_f b_g) over forward passes that trained, or b_w b_a + b_w b_g + b_a b_g where roles
        differ; layers in full precision count at 32 bits.
        """
        return float(sum(site.bitops for site in self._sites()))

    @property
    def seconds(self) -> dict[int, LevelTime]:
        """Bits of the forward pass → steps timed so far in this process and their mean wall time."""
        return self._clock.times()

    def step(self) -> None:
        """Go to the next optimizer step; to be called once after `optimizer.step()`.

        After the last step of the schedule its last bits stay in force; going on is logged as a warning.

        Raises:
            TrivetError: The model has been dequantized or taken over by another controller.
        """
        self._check_claim()
        self._clock.book(self.bits)
        self.last_step += 1
        total = self.schedule.total_steps
        if self.last_step == total + 1:
            _log.warning(
                "training goes on after the %d steps the precision schedule was made for; staying at %d bits",
                total,
                self.bits,
            )
        self._set(self.last_step)
        self._state.set_key(self._seed, self.last_step, self._rank)
        for site in self._sites():
            site.begin_step()

    @contextmanager
    def at(self, bits: int = 0) -> Generator[None]:
        """Compute at declared bits inside a `with` block, for evaluation.

        Nothing is counted, no running range learns, and gradients are not quantized. Leaves the schedule where it is.

        Args:
            bits: Bits of weights and activations; 0 stands for the evaluation bits.

        Raises:
            ValueError: Bits outside [1, 32] and not 0.
            TrivetError: As for `step`.
        """
        bits = check_bits("bits", bits, low=0)
        self._check_claim()
        self._clock.skip()
        recording = self._state.recording
        groups = self._state.groups.values()
        evaluation = [dials.evaluation_bits() for dials in groups]
        try:
            self._state.recording = False
            if bits:
                for dials in groups:
                    dials.set_evaluation((bits, bits))
            yield
        finally:
            for dials, before in zip(groups, evaluation, strict=True):
                dials.set_evaluation(before)
            self._state.recording = recording

    def report(self) -> list[LayerReport]:
        """What was quantized, layer by layer, in the order of the model.

        Raises:
            TrivetError: A layer that was to be quantized has never run in training.
        """
        never = [name for name in self._chosen if self._never_ran(self._covers[name])]
        if never:
            raise TrivetError(
                f"never quantized, though chosen: {', '.join(never)}; these layers have not run in training mode with "
                "gradients. Leave them out with filter_fn, or train before asking"
            )
        return [layer_report(site, cover.module) for cover in self._covers.values() for site in self._shown(cover)]

    def _never_ran(self, cover: Cover) -> bool:
        return is_layer(cover.module) and not any(site.calls.value for site in cover.sites.values())

    def _shown(self, cover: Cover) -> list[Site]:
        """Sites to report: of a module that is watched, those that were used."""
        return [site for site in cover.sites.values() if not isinstance(cover, ScopedForward) or site.calls.value]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly: step, running ranges, counts. Plain values and tensors only."""
        native = self.execution != "simulated"
        return {
            "format": FORMAT,
            **({"execution": self.execution, "choices": chosen()} if native else {}),
            "schedule": self.schedule.to_dict(),
            "plans": {pattern: plan.to_dict() for pattern, plan in self._plans.items()},
            "step": self.last_step,
            "seed": self._seed,
            "evaluate_bits": {pattern: list(dials.evaluation_bits()) for pattern, dials in self._state.groups.items()},
            "layers": {
                name: {label: site.state_dict() for label, site in cover.sites.items()}
                for name, cover in self._covers.items()
            },
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
        if state["plans"] != {pattern: plan.to_dict() for pattern, plan in self._plans.items()}:
            raise ValueError("the state belongs to other `grad_bits`, `roles` or `overrides`; give the same ones")
        if (execution := state.get("execution", "simulated")) != self.execution:
            raise ValueError(f"the state belongs to `execution={execution!r}`, not {self.execution!r}; give the same")
        if set(state["layers"]) != set(self._covers):
            odd = sorted(set(state["layers"]) ^ set(self._covers))
            raise ValueError(f"the state belongs to other layers; in one of the two only: {', '.join(odd)}")
        take_over(state.get("choices", {}))
        self.last_step = int(state["step"])
        self._seed = int(state["seed"])
        for pattern, (weight, activation) in state["evaluate_bits"].items():
            self._state.groups[pattern].set_evaluation((int(weight), int(activation)))
        for site in self._sites():
            site.forget_counts()
        self._set(self.last_step)
        self._state.set_key(self._seed, self.last_step, self._rank)
        for name, cover in self._covers.items():
            for label, saved in state["layers"][name].items():
                site = cover.sites.get(label) or (cover.add_site(label) if isinstance(cover, ScopedForward) else None)
                if site is not None:
                    site.load_state_dict(saved)

    def _check_claim(self) -> None:
        if self._state.claims != self._claim:
            raise TrivetError(
                "this controller no longer moves the model: it was dequantized, or another controller took it over; "
                "use the new controller, or make one after quantize_(model)"
            )

    def _set(self, step: int) -> None:
        """Set every group to its bits of a step."""
        wanted = {pattern: plan.bits(step) for pattern, plan in self._plans.items()}
        groups = self._state.groups
        if all(groups[pattern].training_bits() == bits for pattern, bits in wanted.items()):
            return
        for site in self._sites():
            site.settle()
        for pattern, bits in wanted.items():
            groups[pattern].set_training(bits)


def _own_rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
