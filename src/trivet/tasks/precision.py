"""The precision of a run of any task: quantizes its model where the configuration asks for it, and counts BitOPs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from trivet.core.seeding import derive
from trivet.precision.bitops import training_bitops
from trivet.precision.controller import PrecisionController
from trivet.precision.cost import layer_macs
from trivet.precision.inject import Filter, quantize_
from trivet.tasks.config import RunConfig
from trivet.training.job import Stepper
from trivet.training.ranks import current

FULL_PRECISION = 32


class RunPrecision:
    """What a task hands to the training loop so that a run computes at its precision.

    Args:
        run: The run; its model is quantized in place unless it is of full precision.
        model: The model.
        example: One example as the model takes it, for counting; the first dimension counts the examples.
        filter_fn: Which layers are quantized, as in `quantize_`.
    """

    def __init__(self, run: RunConfig, model: nn.Module, example: Any, filter_fn: Filter | None = None) -> None:
        config, training = run.precision, run.training
        if training is None:
            raise ValueError("`training` is missing; give at least `steps`")
        self.schedule = config.build_roles(training.steps)
        self.grad_bits = config.backward_bits
        self.batch_size = training.batch_size
        self.controller: PrecisionController | None = None
        if self.schedule is not None:
            quantize_(model, filter_fn, quantizer=config.quantizer)
            self.controller = PrecisionController(
                model,
                self.schedule,
                grad_bits=self.grad_bits,
                execution=config.execution,
                evaluate_bits=config.evaluation_bits,
                seed=derive(run.seed, "rounding"),
            )
            self.controller.share(current())
        self.layers = layer_macs(model, example)

    @property
    def steppers(self) -> Mapping[str, Stepper]:
        """The controller, when there is one."""
        return {} if self.controller is None else {"precision": self.controller}

    def evaluation(self) -> AbstractContextManager[object]:
        """Inside the `with` block the model computes at the declared bits of evaluation."""
        return nullcontext() if self.controller is None else self.controller.at()

    def observe(self, step: int) -> Mapping[str, float]:
        """Bits (of the weights) of the step just done, and bit operations of all steps so far."""
        bits = FULL_PRECISION if self.schedule is None else self.schedule.bits(step - 1)
        return {
            "bits": bits[0] if isinstance(bits, tuple) else bits,
            "bitops": training_bitops(self.layers, self.schedule, self.grad_bits, self.batch_size, step),
        }
