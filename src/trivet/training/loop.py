"""The training loop: one function, `fit`, that reads from top to bottom.

It knows a `Job` (a model, the loss of a step, an evaluation) and nothing of data, tasks or precision. Whatever
must advance with the optimiser, such as a precision controller, is a `Stepper`.

Guarantees: a resumed run does exactly the steps that an uninterrupted one would have done, with the same bits; a
loss that is not finite ends the run as "diverged", at the same step on every device; asked to stop, it writes a
checkpoint first.

Under torchrun the batch of each step is split over the processes (`ranks.py`): they stop, diverge and evaluate
together, and the checkpoint of N processes is that of one.

Not covered: gradient accumulation, early stopping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from trivet.training.checkpoint import Checkpoints
from trivet.training.config import TrainingConfig
from trivet.training.job import Job, Stepper
from trivet.training.layout import to_channels_last
from trivet.training.metrics import MetricsLog
from trivet.training.progress import Progress
from trivet.training.ranks import Ranks

__all__ = ["Fit", "Job", "Stepper", "fit"]


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
    ranks: Ranks | None = None,
) -> Fit:
    """Train, resuming from the newest usable checkpoint.

    Args:
        job: What is trained.
        config: How.
        device: Where the model is.
        log: Gets one row every `log_every` steps, at the job's `log_at`, at evaluations and at the end.
        checkpoints: Where to resume from and save to.
        should_stop: Asked before every step.
        ranks: The processes that share the run; this one alone by default.

    Returns:
        Outcome, step, final metrics: those of `evaluate` and `train_loss`, the mean loss of the last ≤ 50 steps.

    Raises:
        OSError: A checkpoint or row could not be written.
        RunFolderError: The checkpoint does not fit the model.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from trivet.training.config import OptimizerConfig
        >>> from torch import nn
        >>> folder, x = Path(tempfile.mkdtemp()), torch.eye(4)
        >>> job = Job(
        ...     model=nn.Linear(4, 1),
        ...     loss=lambda model, step: (model(x) - 1).square().mean(),
        ...     evaluate=lambda: {},
        ... )
        >>> config = TrainingConfig(steps=200, optimizer=OptimizerConfig(lr=0.5))
        >>> end = fit(
        ...     job,
        ...     config,
        ...     device=torch.device("cpu"),
        ...     log=MetricsLog(folder / "m.jsonl"),
        ...     checkpoints=Checkpoints(folder),
        ... )
        >>> end.outcome, end.step, end.metrics["train_loss"] < 1e-3
        ('finished', 200, True)
    """
    if config.channels_last:
        to_channels_last(job.model, device)
    ranks = ranks or Ranks()
    forward: Any = ranks.wrap(job.model)  # what the loss calls
    run = Progress(job, config, log, checkpoints, ranks)
    run.resume()
    if config.compile:
        forward = torch.compile(forward)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=config.autocast == "bf16")
    parameters = [parameter for parameter in job.model.parameters() if parameter.requires_grad]
    job.model.train()
    run.start_clock()

    while run.step < config.steps:
        if ranks.any(should_stop()):
            return _end(run, "stopped" if run.settle() else "diverged")

        run.set_rate()
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
        logs = evaluates or run.step in job.log_at or _is_due(run.step, config.log_every)
        saves = last or _is_due(run.step, config.checkpoint_every)
        if not (logs or saves):
            continue
        if not run.losses_are_finite():
            return _end(run, "diverged")
        if logs:
            run.write_row(run.evaluate() if evaluates else {})
        if saves:
            run.save()
        run.start_clock()

    metrics = dict(run.last_evaluation or run.evaluate())
    metrics["train_loss"] = run.final_train_loss()
    if not all(math.isfinite(value) for value in metrics.values()):
        return _end(run, "diverged")
    return _end(run, "finished", metrics)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _end(
    run: Progress, outcome: Literal["finished", "diverged", "stopped"], metrics: dict[str, float] | None = None
) -> Fit:
    return Fit(
        outcome=outcome,
        step=run.step,
        metrics=metrics or {},
        train_seconds=run.seconds,
        resumed_seconds=run.resumed_seconds,
    )
