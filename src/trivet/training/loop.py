"""The training loop: one function, `fit`, that reads from top to bottom.

It knows a `Job` (a model, the loss of a step, an evaluation) and nothing of data, tasks or precision. Whatever
must advance with the optimiser, such as a precision controller, is a `Stepper`.

Guarantees: a resumed run does exactly the steps that an uninterrupted one would have done, with the same bits; a loss that
is not finite ends the run as "diverged", at the same step on every device; asked to stop, it writes a checkpoint first.

Not covered: several processes, gradient accumulation, early stopping.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from trivet.core.errors import RunFolderError
from trivet.training.checkpoint import Checkpoints, rng_state, set_rng_state
from trivet.training.config import TrainingConfig
from trivet.training.metrics import MetricsLog
from trivet.training.optim import build_optimizer, lr_factor, set_lr

logger = logging.getLogger(__name__)

RECENT = 50
"""Steps whose mean loss is the final `train_loss`."""


class Stepper(Protocol):
    """Something that advances once an optimiser step, like a learning-rate scheduler."""

    def step(self) -> None:
        """Advance; called right after `optimizer.step()`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs: plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Take back what `state_dict` gave."""
        ...


def _observe_nothing(step: int) -> Mapping[str, float]:
    return {}


@dataclass(kw_only=True)
class Job:
    """What is trained."""

    model: nn.Module
    """On its device already."""
    loss: Callable[[nn.Module, int], Tensor]
    """Loss of the batch of one step, counted from 0; calls the module it is given (which may be compiled)."""
    evaluate: Callable[[], Mapping[str, float]]
    """Metrics on held-out data; called with the model in evaluation mode."""
    observe: Callable[[int], Mapping[str, float]] = _observe_nothing
    """What else a row shall show after so many steps, such as bits; a pure function."""
    steppers: Mapping[str, Stepper] = field(default_factory=dict)
    """What advances with the optimiser, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """How training ended."""

    outcome: Literal["finished", "diverged", "stopped"]
    """`stopped`: asked to, a checkpoint is written, call again to go on."""
    step: int
    """Steps done; for `diverged` the step whose loss was not finite."""
    metrics: dict[str, float]
    """Final metrics, all finite; empty unless finished."""
    train_seconds: float
    """Wall seconds of training steps over all attempts, without evaluation and checkpoints."""
    resumed_seconds: float = 0.0
    """The part of `train_seconds` that earlier attempts spent."""


def fit(
    job: Job,
    config: TrainingConfig,
    *,
    device: torch.device,
    log: MetricsLog,
    checkpoints: Checkpoints,
    should_stop: Callable[[], bool] = lambda: False,
) -> Fit:
    """Train, resuming from the newest usable checkpoint.

    Args:
        job: What is trained.
        config: How.
        device: Where the model is.
        log: Gets one row every `log_every` steps, at evaluations and at the end.
        checkpoints: Where to resume from and save to.
        should_stop: Asked before every step.

    Returns:
        Outcome, step, final metrics: those of `evaluate` and `train_loss`, the mean loss of the last ≤ 50 steps.

    Raises:
        OSError: A checkpoint or row could not be written.
        RunFolderError: The checkpoint does not fit the model.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from trivet.training.config import OptimizerConfig
        >>> folder, x = Path(tempfile.mkdtemp()), torch.eye(4)
        >>> job = Job(
        ...     model=nn.Linear(4, 1),
        ...     loss=lambda model, step: (model(x) - 1).square().mean(),
        ...     evaluate=lambda: {},
        ... )
        >>> config = TrainingConfig(steps=200, optimizer=OptimizerConfig(lr=0.5))
        >>> end = fit(
        ...     job, config, device=torch.device("cpu"), log=MetricsLog(folder / "m.jsonl"), checkpoints=Checkpoints(folder)
        ... )
        >>> end.outcome, end.step, end.metrics["train_loss"] < 1e-3
        ('finished', 200, True)
    """
    if config.channels_last:
        job.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    run = _Progress(job, config, log, checkpoints)
    run.resume()
    forward: Any = torch.compile(job.model) if config.compile else job.model
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=config.autocast == "bf16")
    parameters = [parameter for parameter in job.model.parameters() if parameter.requires_grad]
    job.model.train()
    run.start_clock()

    while run.step < config.steps:
        if should_stop():
            return run.end("stopped") if run.settle() else run.end("diverged")

        set_lr(run.optimizer, config.optimizer.lr * lr_factor(config.schedule, run.step, config.steps))
        run.optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = job.loss(forward, run.step)
        loss.backward()
        if config.clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        run.optimizer.step()
        for stepper in job.steppers.values():
            stepper.step()
        run.step_done(loss)

        last = run.step == config.steps
        evaluates = last or _is_due(run.step, config.evaluate_every)
        logs = evaluates or _is_due(run.step, config.log_every)
        saves = last or _is_due(run.step, config.checkpoint_every)
        if not (logs or saves):
            continue
        if not run.losses_are_finite():
            return run.end("diverged")
        if logs:
            run.write_row(run.evaluate() if evaluates else {})
        if saves:
            run.save()
        run.start_clock()

    metrics = dict(run.last_evaluation or run.evaluate())
    metrics["train_loss"] = fmean(list(run.recent)[-RECENT:])
    if not all(math.isfinite(value) for value in metrics.values()):
        return run.end("diverged")
    return run.end("finished", metrics)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


class _Progress:
    """Counters of a run, and everything that reads or writes them: rows, checkpoints, the clock."""

    def __init__(self, job: Job, config: TrainingConfig, log: MetricsLog, checkpoints: Checkpoints) -> None:
        self.job, self.config, self.log, self.checkpoints = job, config, log, checkpoints
        self.optimizer = build_optimizer(job.model.parameters(), config.optimizer)
        self.step = 0
        self.last_row = 0  # step of the newest row
        self.saved = -1  # step of the newest checkpoint
        self.seconds = 0.0
        self.resumed_seconds = 0.0
        self.recent: deque[float] = deque(maxlen=max(RECENT, config.log_every))
        self.pending: list[Tensor] = []  # losses still on the device: reading each would stall a GPU
        self.last_evaluation: Mapping[str, float] = {}
        self._mark = 0.0

    def start_clock(self) -> None:
        self._mark = time.perf_counter()

    def step_done(self, loss: Tensor) -> None:
        self.step += 1
        self.pending.append(loss.detach())

    def losses_are_finite(self) -> bool:
        """Fetch the losses since the last call and stop the clock; on a bad one, `step` becomes its step."""
        first = self.step - len(self.pending)
        losses = torch.stack(self.pending).float().tolist() if self.pending else []
        self.pending.clear()
        self.seconds += time.perf_counter() - self._mark
        for offset, loss in enumerate(losses):
            if not math.isfinite(loss):
                self.step = first + offset + 1
                logger.warning("step %d: the training loss is %s; the run has diverged", self.step, loss)
                return False
        self.recent.extend(losses)
        return True

    def settle(self) -> bool:
        """Save before stopping; False when the run has diverged meanwhile."""
        if not self.losses_are_finite():
            return False
        if self.saved != self.step:
            self.save()
        return True

    def evaluate(self) -> Mapping[str, float]:
        self.job.model.eval()
        with torch.no_grad():
            self.last_evaluation = dict(self.job.evaluate())
        self.job.model.train()
        return self.last_evaluation

    def write_row(self, evaluation: Mapping[str, float]) -> None:
        since = list(self.recent)[-(self.step - self.last_row) :]
        rate = self.config.optimizer.lr * lr_factor(self.config.schedule, self.step - 1, self.config.steps)
        row = {"train_loss": fmean(since), **evaluation, "lr": rate, **self.job.observe(self.step)}
        self.log.write(self.step, {**row, "seconds": round(self.seconds, 4)})
        self.last_row = self.step
        logger.info("step %d/%d: %s", self.step, self.config.steps, _short({"train_loss": fmean(since), **evaluation}))

    def save(self) -> None:
        state = {
            "optimizer": self.optimizer.state_dict(),
            "steppers": {name: stepper.state_dict() for name, stepper in self.job.steppers.items()},
            "rng": rng_state(),
            "last_row": self.last_row,
            "recent": list(self.recent),
            "seconds": self.seconds,
        }
        self.checkpoints.save(self.step, self.job.model.state_dict(), state)
        self.saved = self.step

    def resume(self) -> None:
        found = self.checkpoints.load()
        self.log.cut(found.step if found else 0)
        if found is None:
            return
        try:
            self.job.model.load_state_dict(found.model)
            self.optimizer.load_state_dict(found.state["optimizer"])
            for name, stepper in self.job.steppers.items():
                stepper.load_state_dict(found.state["steppers"][name])
        except (RuntimeError, ValueError, KeyError) as error:
            raise RunFolderError(
                f"{self.checkpoints.folder}: the checkpoint of step {found.step} does not fit this model "
                f"({error}); the code has changed since; remove the folder to start anew"
            ) from error
        set_rng_state(found.state["rng"])
        self.step = self.saved = found.step
        self.last_row = found.state["last_row"]
        self.seconds = self.resumed_seconds = found.state["seconds"]
        self.recent.extend(found.state["recent"])
        logger.info("resumed at step %d of %d", self.step, self.config.steps)

    def end(self, outcome: Literal["finished", "diverged", "stopped"], metrics: dict[str, float] | None = None) -> Fit:
        return Fit(
            outcome=outcome,
            step=self.step,
            metrics=metrics or {},
            train_seconds=self.seconds,
            resumed_seconds=self.resumed_seconds,
        )


def _short(values: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in values.items())
