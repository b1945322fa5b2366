"""A precision schedule in the `Trainer` of PyTorch Lightning, as a callback, for either of its two package names.

    config = PrecisionConfig(schedule="RR", q_min=3, q_max=8, num_cycles=8)
    trainer = Trainer(max_epochs=10, callbacks=[PrecisionCallback(config)])
    trainer.fit(module, loader)                    # or trainer.fit(module, loader, ckpt_path="last.ckpt")

When fitting begins the LightningModule is quantized in place; the schedule then moves once per optimizer step
(`trainer.global_step`), however many batches are accumulated, and spans the whole training
(`trainer.estimated_stepping_batches`). Validation and testing run at the evaluation bits (the most bits of the schedule
unless declared). Checkpoints hold the state, so that a resumed training gives the same bits as one that was never
interrupted. `bits` (of the step done last) and `bitops` (so far) are logged every `log_every_n_steps`; as Lightning
keeps metrics in float32, `callback.controller.cost` is the exact number.

Manual optimization: every step of the optimizer counts, and with several optimizers those of the one that `optimizer`
names. Lightning cannot know how many steps that will be, so the schedule's length has to be given.

After fitting the module stays quantized at the evaluation bits, so that `trainer.test(module)` measures what was
trained; checkpoints are ordinary ones. Say `dequantize=True` to get the module back as it was.

Not covered: products that `training_step` itself computes by calling functions (`x @ self.weight`) rather than in a
module's `forward`; Fabric, which needs no callback; DeepSpeed.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from trivet.core.errors import MissingExtraError, TrivetError
from trivet.integrations.steering import Settings, Steering
from trivet.precision import PrecisionConfig, RoleSchedules, Schedule
from trivet.precision.controller import PrecisionController
from trivet.precision.inject import Filter, covers
from trivet.precision.layerreport import LayerReport
from trivet.precision.plan import Bits, Override

_NAMESPACES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
"""Package to look for → module that holds its Trainer and its Callback."""

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    _found = [module for package, module in _NAMESPACES.items() if importlib.util.find_spec(package) is not None]
    if not _found:
        raise MissingExtraError("lightning", "lightning")
    # One callback for both: each package's Trainer takes instances of its own Callback only.
    Callback = type("Callback", tuple(importlib.import_module(module).Callback for module in _found), {})


class PrecisionCallback(Callback):
    """Trains at few bits, on a schedule.

    Examples:
        >>> from trivet.precision import PrecisionSchedule
        >>> schedule = PrecisionSchedule.named("CR", q_min=3, q_max=8, num_cycles=8, total_steps=1_000)
        >>> callback = PrecisionCallback(schedule, grad_bits=8)    # Trainer(…, callbacks=[callback])
        >>> callback.controller
        Traceback (most recent call last):
        ...
        trivet.core.errors.TrivetError: no training has begun with this PrecisionCallback...
    """

    def __init__(
        self,
        schedule: Schedule | RoleSchedules | PrecisionConfig,
        *,
        grad_bits: int = 0,
        evaluate_bits: int = 0,
        total_steps: int = 0,
        seed: int = 0,
        roles: Mapping[str, Bits] | None = None,
        overrides: Mapping[str, Override] | None = None,
        filter_fn: Filter | None = None,
        quantizer: str = "",
        dequantize: bool = False,
        optimizer: int = -1,
    ) -> None:
        """Keep what the training will need; nothing is changed before it begins.

        Args:
            schedule: A schedule as long as the training, or a `PrecisionConfig`, which fits any length; one without
                a schedule counts BitOPs at full precision.
            grad_bits: Bits of the gradients; 0 stands for 8, or for what the configuration says.
            evaluate_bits: Bits of validation and testing; 0 stands for the most bits of the schedule.
            total_steps: Optimizer steps that the schedule spans; 0 takes those of the training.
            seed: Seed of the stochastic rounding of gradients.
            roles: As for `PrecisionController`.
            overrides: As for `PrecisionController`.
            filter_fn: As for `quantize_`; names are those of the LightningModule.
            quantizer: As for `quantize_`.
            dequantize: Whether the module is what it was again when fitting ends.
            optimizer: Under manual optimization with several optimizers, the index of the one whose steps count.

        Raises:
            ValueError: Bits outside their range, or an option that the configuration has already.
            TypeError: `schedule` is none.
        """
        super().__init__()
        self._steering = Steering(
            Settings(
                schedule=schedule,
                total_steps=total_steps,
                grad_bits=grad_bits,
                evaluate_bits=evaluate_bits,
                seed=seed,
                roles=roles,
                overrides=overrides,
                filter_fn=filter_fn,
                quantizer=quantizer,
                dequantize=dequantize,
            )
        )
        self._optimizer = optimizer
        self._pending: Mapping[str, Any] | None = None
        self._hook: Any = None

    @property
    def controller(self) -> PrecisionController:
        """The controller of the training that runs, or that ran last: `bits`, `cost`, `at(bits)`.

        Raises:
            TrivetError: No training has begun with this callback.
        """
        return self._steering.controller

    def report(self) -> list[LayerReport]:
        """What was quantized, layer by layer: `PrecisionController.report`."""
        return self._steering.report()

    def quantize(self, model: nn.Module) -> nn.Module:
        """Quantize a model in place for evaluation without training, at the bits that training would evaluate it at.

        The ranges of activations are those of the checkpoint in `trainer.test(model, ckpt_path=...)`, or else those
        of each batch.

        Raises:
            TrivetError: The model is quantized already.
        """
        return self._steering.quantize(model)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning keeps in its checkpoints."""
        return {"controller": self._steering.saved()} if self._steering.begun else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of a checkpoint until the module is quantized."""
        self._pending = state_dict.get("controller")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Quantize the module, before the first (sanity) validation.

        Raises:
            ValueError: Options contradict a module that is quantized already.
        """
        if self._pending is None and trainer.global_step and self._steering.is_steering(pl_module):
            self._pending = self._steering.saved()  # fit() once more goes on where the last one ended
        self._steering.prepare(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the schedule, or go on with it; only now are data and checkpoint loaded, whatever the strategy.

        Raises:
            TrivetError: The number of optimizer steps cannot be known, it is unclear whose steps count, or the
                checkpoint has no state of precision.
            ValueError: The schedule does not fit the training.
        """
        if trainer.global_step and self._pending is None:
            raise TrivetError(
                f"the checkpoint of step {trainer.global_step} has no state of a PrecisionCallback: it was saved "
                "without one; resume from a checkpoint that was saved with this callback, or train from the start"
            )
        if pl_module.automatic_optimization:
            self._steering.begin(pl_module, self._training_steps(trainer), self._pending)
        else:
            counting = trainer.optimizers[self._counting_optimizer(len(trainer.optimizers))]
            self._steering.begin(pl_module, self._given_steps(), self._pending)
            self._unhook()
            self._hook = counting.register_step_post_hook(self._after_step)
        self._pending = None

    def _training_steps(self, trainer: Trainer) -> int:
        """Optimizer steps of the whole training."""
        settings = self._steering.settings
        if settings.total_steps:
            return settings.total_steps
        found = trainer.estimated_stepping_batches
        if not math.isfinite(found) or found < 1:
            raise TrivetError(
                f"Lightning cannot tell how many optimizer steps this training takes (it says {found}), so that no "
                "schedule can span it; set Trainer(max_steps=...), or give PrecisionCallback(..., total_steps=...)"
            )
        if not trainer.fast_dev_run:  # pyrefly: ignore[missing-attribute]
            return int(found)
        # A few steps of a schedule, to see that it runs.
        return 1_000 if isinstance(settings.schedule, PrecisionConfig) else settings.schedule.total_steps

    def _given_steps(self) -> int:
        """Optimizer steps as declared, for manual optimization."""
        settings = self._steering.settings
        if not isinstance(settings.schedule, PrecisionConfig):
            return settings.schedule.total_steps
        if not settings.total_steps:
            raise TrivetError(
                "under manual optimization Lightning cannot tell how many optimizer steps a training takes; give "
                "PrecisionCallback(..., total_steps=...), counting the steps of the optimizer"
            )
        return settings.total_steps

    def _counting_optimizer(self, number: int) -> int:
        if number == 1 and self._optimizer in (-1, 0):
            return 0
        if not 0 <= self._optimizer < number:
            raise TrivetError(
                f"`optimizer={self._optimizer}` must name one of the {number} optimizers, 0 to {number - 1}: the one "
                "whose steps move the precision schedule; give PrecisionCallback(..., optimizer=0, total_steps=...)"
            )
        return self._optimizer

    def _after_step(self, *_: Any) -> None:
        self._steering.advance(self.controller.last_step + 1)

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move on, if this batch ended an optimizer step, and log."""
        before = self.controller.last_step
        every = int(trainer.log_every_n_steps)  # pyrefly: ignore[missing-attribute]
        if pl_module.automatic_optimization:
            self._steering.advance(trainer.global_step)
            due = every and self.controller.last_step > before and trainer.global_step % every == 0
        else:
            due = every and (trainer.fit_loop.epoch_loop.total_batch_idx + 1) % every == 0
        if due and self.controller.last_step:
            now = {"bits": float(self._steering.bits), "bitops": self.controller.cost}
            pl_module.log_dict(now, on_step=True, on_epoch=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop counting steps."""
        self._unhook()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop counting steps."""
        self._unhook()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the module as declared."""
        self._steering.end()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Outside fitting: take the ranges of the checkpoint that was loaded."""
        if trainer.state.fn != "fit":
            self._evaluate(pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the ranges of the checkpoint that was loaded."""
        self._evaluate(pl_module)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the ranges of the checkpoint that was loaded."""
        self._evaluate(pl_module)

    def _evaluate(self, pl_module: LightningModule) -> None:
        pending, self._pending = self._pending, None
        if not covers(pl_module):
            self._steering.warn_full_precision()
        elif pending is not None and self._steering.is_steering(pl_module):
            self._steering.restore_ranges(pending)
