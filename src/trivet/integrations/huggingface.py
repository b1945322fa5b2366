"""A precision schedule in the `Trainer` of Hugging Face transformers, as a callback.

    config = PrecisionConfig(schedule="RR", q_min=3, q_max=8, num_cycles=8)
    trainer = Trainer(model, arguments, train_dataset=…, callbacks=[PrecisionCallback(config)])
    trainer.train()                                # or trainer.train(resume_from_checkpoint=True)

When training begins the model is quantized in place; the schedule then moves once per optimizer step (`global_step`),
however many batches are accumulated, and spans the whole training. Evaluation runs at the evaluation bits (the most
bits of the schedule unless declared). `trainer_state.json` of every checkpoint holds the state, so that a resumed
training gives the same bits as one that was never interrupted.

Logs gain `bits` (of the step done last) and `bitops` (so far), those of an evaluation `<prefix>_bits`. The Trainer
shows them to callbacks that come after this one (its printer or progress bar) and keeps them in `log_history`; for
TensorBoard or W&B, which it puts first, move this callback to the front of `trainer.callback_handler.callbacks`.

After training the model stays quantized at the evaluation bits, so that `trainer.evaluate()` measures what was trained;
saved models are ordinary ones. Say `dequantize=True` to get the model back as it was.

Not covered: `torch.nn.DataParallel` (several GPUs without torchrun), which is refused; DeepSpeed. Running ranges of
activations in a checkpoint are those of the first process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from trivet.core.errors import MissingExtraError, TrivetError
from trivet.integrations.plainstate import from_json, implied_settings, to_json
from trivet.integrations.steering import Settings, Steering
from trivet.precision import PrecisionConfig, RoleSchedules, Schedule
from trivet.precision.controller import PrecisionController
from trivet.precision.inject import Filter, covers
from trivet.precision.layerreport import LayerReport
from trivet.precision.plan import Bits, Override

try:
    import accelerate  # noqa: F401  (the Trainer needs it)
    import transformers  # noqa: F401
    from transformers.trainer_callback import ExportableState, TrainerCallback, TrainerControl, TrainerState
    from transformers.training_args import ParallelMode, TrainingArguments
except ModuleNotFoundError as error:
    if error.name not in ("transformers", "accelerate"):
        raise
    raise MissingExtraError(error.name, "huggingface") from error

STATE_FILE = "trainer_state.json"
"""File of a checkpoint that holds the state of its callbacks."""


class PrecisionCallback(TrainerCallback, ExportableState):
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
        schedule: Schedule | RoleSchedules | PrecisionConfig | Mapping[str, Any],
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
    ) -> None:
        """Keep what the training will need; nothing is changed before it begins.

        Args:
            schedule: A schedule as long as the training, or a `PrecisionConfig`, which fits any length; one without
                a schedule counts BitOPs at full precision. (A mapping is what `state` wrote.)
            grad_bits: Bits of the gradients; 0 stands for 8, or for what the configuration says.
            evaluate_bits: Bits of evaluation; 0 stands for the most bits of the schedule.
            total_steps: Optimizer steps that the schedule spans; 0 takes those of the training.
            seed: Seed of the stochastic rounding of gradients.
            roles: As for `PrecisionController`.
            overrides: As for `PrecisionController`.
            filter_fn: As for `quantize_`.
            quantizer: As for `quantize_`.
            dequantize: Whether the model is what it was again when training ends.

        Raises:
            ValueError: Bits outside their range, or an option that the configuration has already.
            TypeError: `schedule` is none.
        """
        if isinstance(schedule, Mapping) and "controller" in schedule:
            settings = implied_settings(
                from_json(schedule["controller"]),
                schedule["chosen"],
                total_steps=schedule["total_steps"],
                quantizer=schedule["quantizer"],
                dequantize=schedule["dequantize"],
            )
        else:
            settings = Settings(
                schedule=schedule,  # pyrefly: ignore[bad-argument-type]
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
        self._steering = Steering(settings)

    @property
    def controller(self) -> PrecisionController:
        """The controller of the training that runs, or that ran last: `bits`, `cost`, `at(bits)`.

        Raises:
            TrivetError: No training has begun with this callback. With `restore_callback_states_from_checkpoint` the
                Trainer makes a new one from the checkpoint: `trainer.pop_callback(PrecisionCallback)`.
        """
        return self._steering.controller

    def report(self) -> list[LayerReport]:
        """What was quantized, layer by layer: `PrecisionController.report`."""
        return self._steering.report()

    def quantize(self, model: nn.Module, checkpoint: str | Path = "") -> nn.Module:
        """Quantize a model in place for evaluation without training, at the bits that training would evaluate it at.

        Args:
            model: A model that is not quantized, such as one loaded with `from_pretrained(checkpoint)`.
            checkpoint: Folder of the checkpoint that it was loaded from, for the ranges of its activations; empty:
                those of each batch.

        Returns:
            The same model.

        Raises:
            TrivetError: The model is quantized already, or the checkpoint was saved without this callback.
        """
        saved = self._saved_in(TrainerState.load_from_json(str(Path(checkpoint, STATE_FILE)))) if checkpoint else None
        self._steering.quantize(model)
        if saved is not None:
            self._steering.restore_ranges(saved)
        return model

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in `trainer_state.json`."""
        if not self._steering.begun:
            return {"args": {"schedule": {}}, "attributes": {}}
        settings = self._steering.settings
        kept = {
            "controller": to_json(self._steering.saved()),
            "chosen": self._steering.chosen,
            "total_steps": settings.total_steps,
            "quantizer": settings.rounding,
            "dequantize": settings.dequantize,
        }
        return {"args": {"schedule": kept}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Quantize the model and begin the schedule, or go on with it.

        Raises:
            TrivetError: The checkpoint has no state of precision; or several GPUs without torchrun.
            ValueError: The schedule does not fit the training.
        """
        if args.parallel_mode == ParallelMode.NOT_DISTRIBUTED:
            raise TrivetError(
                f"the Trainer would copy the model to {args.n_gpu} GPUs with torch.nn.DataParallel, which quantized "
                "models do not survive; start it with torchrun, or show it one GPU (CUDA_VISIBLE_DEVICES=0)"
            )
        saved = self._saved_in(state) if state.global_step else None
        self._steering.begin(kwargs["model"], state.max_steps, saved)

    def _saved_in(self, state: TrainerState) -> dict[str, Any]:
        name = type(self).__name__
        found = state.stateful_callbacks.get(name) if isinstance(state.stateful_callbacks, dict) else None
        kept = found.get("args", {}).get("schedule") if isinstance(found, dict) else None
        if not kept:
            raise TrivetError(
                f"the checkpoint of step {state.global_step} has no state of one {name}: it was saved without, or with "
                "several; resume from a checkpoint that was saved with this callback, or train from the start"
            )
        saved: dict[str, Any] = from_json(kept["controller"])
        return saved

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move on, after an optimizer step."""
        self._steering.advance(state.global_step)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add bits and BitOPs to the logs, and the bits of an evaluation to its metrics."""
        logs = kwargs.get("logs")
        if logs is None or not self._steering.begun:
            return
        added: dict[str, float] = {}
        prefix = next((key.removesuffix("_runtime") for key in logs if key.endswith("_runtime")), "")
        if prefix == "train":
            added["bitops"] = self.controller.cost
        elif prefix:
            added[f"{prefix}_bits"] = self.controller.evaluate_bits
        elif self.controller.last_step:
            added = {"bits": self._steering.bits, "bitops": self.controller.cost}
        logs.update(added)
        if state.log_history:
            state.log_history[-1].update(added)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Warn once where a model is evaluated in full precision because it was not trained here."""
        if not self._steering.begun and not covers(kwargs["model"]):
            self._steering.warn_full_precision()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model as declared; where the best weights have been loaded, with the ranges they had."""
        best = state.best_model_checkpoint
        if args.load_best_model_at_end and best is not None:
            file = Path(best, STATE_FILE)
            if file.is_file():
                self._steering.restore_ranges(self._saved_in(TrainerState.load_from_json(str(file))))
        self._steering.end()
