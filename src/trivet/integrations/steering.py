"""What the callbacks for other libraries have in common: one controller, steered along one training.

A library calls `begin` when training begins and the number of optimizer steps is known, `advance` after each optimizer
step, and keeps what `saved` gives in its checkpoints. Everything else is the `PrecisionController`'s.

Not covered: anything about a particular library.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from trivet.core.errors import TrivetError
from trivet.precision import (
    PrecisionConfig,
    PrecisionController,
    PrecisionSchedule,
    RoleSchedules,
    Schedule,
    dequantize_,
    quantize_,
)
from trivet.precision.checks import check_bits, check_choice, plain_ints
from trivet.precision.config import QUANTIZERS
from trivet.precision.inject import Filter, covers, is_chosen
from trivet.precision.layerreport import LayerReport
from trivet.precision.plan import Bits, Override

_log = logging.getLogger(__name__)

GRAD_BITS = 8
"""Bits of the gradients beside a schedule, where nothing is given; a configuration has its own default."""

_ANY_LENGTH = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How a training is steered; what a callback is made from.

    Raises:
        ValueError: Bits outside their range, or an option that the configuration has already.
        TypeError: `schedule` is none.

    Examples:
        >>> Settings(schedule=PrecisionConfig(schedule="RR", num_cycles=2)).resolved(100).total_steps
        100
    """

    schedule: Schedule | RoleSchedules | PrecisionConfig
    """A schedule of fixed length, or a configuration, which fits the length of any training."""
    total_steps: int = 0
    """Optimizer steps that the schedule spans; 0 takes those of the training."""
    grad_bits: int = 0
    """Bits of the gradients; 0 stands for 8, or for what the configuration says."""
    evaluate_bits: int = 0
    """Bits of evaluation; 0 stands for the most bits of the schedule, or for what the configuration says."""
    seed: int = 0
    """Seed of the stochastic rounding."""
    roles: Mapping[str, Bits] | None = None
    """As for `PrecisionController`."""
    overrides: Mapping[str, Override] | None = None
    """As for `PrecisionController`."""
    filter_fn: Filter | None = None
    """As for `quantize_`."""
    quantizer: str = ""
    """As for `quantize_`; empty stands for its default, or for what the configuration says."""
    dequantize: bool = False
    """Whether the model is what it was again when training ends, rather than quantized at the bits of evaluation."""

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, (Schedule, RoleSchedules, PrecisionConfig)):
            raise TypeError(
                f"`schedule` must be a PrecisionSchedule, another schedule of trivet.precision or a PrecisionConfig; "
                f"got {type(self.schedule).__name__}. For example PrecisionConfig(schedule='RR', q_min=3, q_max=8)"
            )
        plain_ints(self, "total_steps", "grad_bits", "evaluate_bits")
        if self.total_steps < 0:
            raise ValueError(f"`total_steps={self.total_steps}` must be ≥ 0; 0 takes the length of the training")
        check_bits("grad_bits", self.grad_bits, low=0)
        check_bits("evaluate_bits", self.evaluate_bits, low=0)
        if self.quantizer:
            check_choice("quantizer", self.quantizer, QUANTIZERS)
        if isinstance(self.schedule, PrecisionConfig):
            for name in ("grad_bits", "evaluate_bits", "quantizer"):
                if getattr(self, name):
                    raise ValueError(
                        f"`{name}={getattr(self, name)}` has no effect beside a PrecisionConfig; say "
                        f"PrecisionConfig(..., {name}=...) instead"
                    )
        elif self.total_steps and self.total_steps != self.schedule.total_steps:
            raise ValueError(
                f"`total_steps={self.total_steps}` must be that of the schedule, {self.schedule.total_steps}; make the "
                "schedule for as many steps, or give a PrecisionConfig"
            )

    def resolved(self, training_steps: int) -> Schedule | RoleSchedules:
        """The schedule of a training of that many optimizer steps; 32 bits throughout for an empty configuration.

        Raises:
            ValueError: The schedule was made for another number of steps, or does not fit into so few.
        """
        if isinstance(self.schedule, PrecisionConfig):
            steps = self.total_steps or training_steps
            return self.schedule.build_roles(steps) or PrecisionSchedule.static(32, total_steps=steps)
        made = self.schedule.total_steps
        if self.total_steps or made == training_steps:
            return self.schedule
        raise ValueError(
            f"the schedule was made for total_steps={made}, but this training takes {training_steps} optimizer steps; "
            f"make it with total_steps={training_steps}, give a PrecisionConfig, which fits any length, or say "
            f"total_steps={made} here too if you mean it"
        )

    def controller(self, model: nn.Module, schedule: Schedule | RoleSchedules) -> PrecisionController:
        """A controller of a quantized model."""
        config = self.schedule if isinstance(self.schedule, PrecisionConfig) else None
        return PrecisionController(
            model,
            schedule,
            grad_bits=config.backward_bits if config else self.grad_bits or GRAD_BITS,
            evaluate_bits=config.evaluation_bits if config else self.evaluate_bits,
            seed=self.seed,
            roles=self.roles,
            overrides=self.overrides,
        )

    @property
    def rounding(self) -> str:
        """The quantizer, with the default resolved."""
        return self.schedule.quantizer if isinstance(self.schedule, PrecisionConfig) else self.quantizer or "default"


class Steering:
    """Moves the model of one training after another along a schedule."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._controller: PrecisionController | None = None
        self._model: nn.Module | None = None
        self._mine = False
        self._prepared = False
        self._warned = False
        self._bits_done = 0

    @property
    def controller(self) -> PrecisionController:
        """The controller of the training that runs, or that ran last.

        Raises:
            TrivetError: No training has begun with this callback.
        """
        if self._controller is None:
            raise TrivetError(
                "no training has begun with this PrecisionCallback, so that it has no controller; hand it to a "
                "Trainer and train first"
            )
        return self._controller

    @property
    def begun(self) -> bool:
        """Whether a training has begun."""
        return self._controller is not None

    def report(self) -> list[LayerReport]:
        """What was quantized, layer by layer: `PrecisionController.report`."""
        return self.controller.report()

    def quantize(self, model: nn.Module) -> nn.Module:
        """Quantize a model in place for evaluation alone, at the bits that a training would evaluate it at.

        A trained model that is loaded anew is in full precision; evaluate it like this to measure what was trained.
        Ranges of activations are those of each batch, until ranges are restored.

        Args:
            model: A model that is not quantized.

        Returns:
            The same model.

        Raises:
            TrivetError: The model is quantized already.
        """
        if covers(model):
            raise TrivetError("the model is quantized already; call dequantize_(model) first")
        self.prepare(model)
        return model

    def prepare(self, model: nn.Module) -> None:
        """Quantize a model unless it is already, and evaluate it as declared, before the length of a training is known.

        Raises:
            ValueError: Options contradict a model that is quantized already.
        """
        if self._mine and model is self._model and covers(model):
            dequantize_(model)  # so that running ranges of a training before this one play no part
        self._mine = not covers(model)
        if self._mine:
            quantize_(model, self.settings.filter_fn, quantizer=self.settings.rounding)
        else:
            self._check_quantized(model)
        given = self.settings.schedule
        # The length does not matter to evaluation; one that any number of cycles and any window fits into does.
        schedule = self.settings.resolved(_ANY_LENGTH) if isinstance(given, PrecisionConfig) else given
        self._model, self._prepared = model, True
        self._controller = self.settings.controller(model, schedule)

    def begin(self, model: nn.Module, training_steps: int, saved: Mapping[str, Any] | None = None) -> None:
        """Begin a training, or go on with one.

        Args:
            model: The model; prepared here unless it is already.
            training_steps: Optimizer steps of the whole training.
            saved: What `saved` gave when the training was interrupted.

        Raises:
            ValueError: The schedule does not fit the training, options contradict a model that is quantized already,
                or `saved` belongs to another schedule or model.
        """
        schedule = self.settings.resolved(training_steps)
        if not (self._prepared and self.is_steering(model)):
            self.prepare(model)
        self._prepared = False
        self._controller = self.settings.controller(model, schedule)
        if saved is not None:
            self.restore(saved)
        self._note_bits()

    def _check_quantized(self, model: nn.Module) -> None:
        for name in ("filter_fn", "quantizer"):
            if getattr(self.settings, name):
                raise ValueError(
                    f"`{name}` has no effect: the model is quantized already; leave out `{name}`, or do not call "
                    "quantize_(model) yourself"
                )

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on where `saved` was taken."""
        self.controller.load_state_dict(saved)
        self._note_bits()

    def restore_ranges(self, saved: Mapping[str, Any]) -> None:
        """Take over the running ranges of a checkpoint whose weights have been loaded, and nothing else."""
        controller = self.controller
        state = controller.state_dict()
        for name, parts in state["layers"].items():
            for label, other in saved["layers"].get(name, {}).items():
                # A product that has not run here yet is one without counts.
                parts[label] = {**parts.get(label, _without_counts(other)), "ranges": other["ranges"]}
        controller.load_state_dict(state)

    @property
    def chosen(self) -> list[str]:
        """Names of the layers that are quantized."""
        found = covers(self._model) if self._model is not None else {}
        return [name for name, cover in found.items() if is_chosen(cover)]

    def is_steering(self, model: nn.Module) -> bool:
        """Whether the training that runs, or ran last, is that of this model."""
        return self._model is model

    def warn_full_precision(self) -> None:
        """Say once that a model which this callback has not trained is evaluated in full precision."""
        if not self._warned:
            self._warned = True
            _log.warning(
                "evaluating a model in full precision, as this PrecisionCallback has not trained it; "
                "callback.quantize(model) before evaluating makes it compute at the bits of evaluation"
            )

    def saved(self) -> dict[str, Any]:
        """What a checkpoint must keep: the state of the controller."""
        return self.controller.state_dict()

    def advance(self, steps_done: int) -> None:
        """Follow the training to so many optimizer steps done.

        Raises:
            TrivetError: After the first step: nothing ran at the bits of the schedule.
        """
        controller = self.controller
        first = controller.last_step == 0
        while controller.last_step < steps_done:
            self._bits_done = controller.bits
            controller.step()
        if first and controller.last_step and not controller.cost:
            raise TrivetError(
                "nothing of the quantized model ran in the first optimizer step: its layers were in evaluation mode, "
                "or a copy of it was trained (torch.nn.DataParallel does that); put the model in training mode, and "
                "use torchrun for several devices"
            )

    def end(self) -> None:
        """End the training; the model stays quantized, at the bits of evaluation, unless declared otherwise."""
        controller = self.controller
        if controller.last_step:
            try:
                controller.report()
            except TrivetError as error:
                _log.warning("%s", error)
        if self.settings.dequantize and self._model is not None and covers(self._model):
            dequantize_(self._model)

    @property
    def bits(self) -> int:
        """Bits of the forward pass in the optimizer step that was done last."""
        return self._bits_done

    def _note_bits(self) -> None:
        """The bits of the step before this one, which a restored controller no longer knows."""
        controller = self.controller
        before = controller.schedule.bits(min(max(controller.last_step - 1, 0), controller.schedule.total_steps - 1))
        self._bits_done = before if isinstance(before, int) else before[0]


def _without_counts(site: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {"macs": [], "errors": {}, "counters": [[0, 0] for _ in site["counters"]]}
    return {**site, **counts}
