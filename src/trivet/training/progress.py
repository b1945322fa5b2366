"""Where a training run stands: its counters, and what reads or writes them (rows, checkpoints, the clock)."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from trivet.core.errors import RunFolderError
from trivet.training.checkpoint import Checkpoints, rng_state, set_rng_state
from trivet.training.config import TrainingConfig
from trivet.training.job import Job
from trivet.training.metrics import MetricsLog
from trivet.training.optim import Plateau, build_optimizer, lr_factor, set_lr
from trivet.training.ranks import Ranks

logger = logging.getLogger(__name__)

RECENT = 50
"""Steps whose mean loss is the final `train_loss`."""


class Progress:
    """Counters of one run in training."""

    def __init__(
        self, job: Job, config: TrainingConfig, log: MetricsLog, checkpoints: Checkpoints, ranks: Ranks
    ) -> None:
        self.job, self.config, self.log, self.checkpoints, self.ranks = job, config, log, checkpoints, ranks
        self.optimizer = build_optimizer(job.model.parameters(), config.optimizer)
        self.plateau = Plateau(config.schedule)
        self.rate = config.optimizer.lr
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
        """Training steps begin, or go on."""
        self._mark = time.perf_counter()

    def set_rate(self) -> None:
        """Give the optimiser the learning rate of the step about to be done."""
        factor = lr_factor(self.config.schedule, self.step, self.config.steps) * self.plateau.factor
        self.rate = self.config.optimizer.lr * factor
        set_lr(self.optimizer, self.rate)

    def step_done(self, loss: Tensor) -> None:
        """Count one step; its loss is fetched later."""
        self.step += 1
        self.pending.append(loss.detach())

    def losses_are_finite(self) -> bool:
        """Fetch the losses since the last call and stop the clock; on a bad one, `step` becomes its step."""
        first = self.step - len(self.pending)
        losses = self.ranks.mean(torch.stack(self.pending).float()).tolist() if self.pending else []
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
        """Metrics of the model as it is, in evaluation mode."""
        self.job.model.eval()
        with torch.no_grad():
            found = dict(self.job.evaluate()) if self.ranks.evaluates else {}
        self.job.model.train()
        self.last_evaluation = self.ranks.from_first(found)
        self.plateau.see(self.last_evaluation, self.step)
        return self.last_evaluation

    def final_train_loss(self) -> float:
        """Mean loss of the last ≤ 50 steps."""
        return fmean(list(self.recent)[-RECENT:])

    def write_row(self, evaluation: Mapping[str, float]) -> None:
        """Log the mean loss since the last row, the evaluation, the rate and what the job observes."""
        since = list(self.recent)[-(self.step - self.last_row) :]
        row = {"train_loss": fmean(since), **evaluation, "lr": self.rate, **self.job.observe(self.step)}
        self.last_row = self.step
        if not self.ranks.is_first:
            return
        self.log.write(self.step, {**row, "seconds": round(self.seconds, 4)})
        logger.info("step %d/%d: %s", self.step, self.config.steps, _short({"train_loss": fmean(since), **evaluation}))

    def save(self) -> None:
        """Write a checkpoint of all that a resume needs; the processes gather it, the first one writes."""
        first, *others = self.ranks.all_of(rng_state())
        state = {
            "optimizer": self._whole(self.optimizer.state_dict()),
            "steppers": {name: stepper.state_dict() for name, stepper in self.job.steppers.items()},
            "rng": first,
            **({"rng_of_others": others} if others else {}),
            "plateau": self.plateau.state_dict(),
            "last_row": self.last_row,
            "recent": list(self.recent),
            "seconds": self.seconds,
        }
        model = self._whole(self.job.model.state_dict())
        if self.ranks.is_first:
            self.checkpoints.save(self.step, model, state)
        self.ranks.any(False)  # nobody ends before the checkpoint is written
        self.saved = self.step

    def _whole(self, value: Any) -> Any:
        """The value with the parts of all processes put together."""
        if not self.ranks.is_sharded:
            return value
        from trivet.training.sharded import in_one_piece

        return in_one_piece(value)

    def resume(self) -> None:
        """Go back to the newest usable checkpoint and cut the log to it; raises `RunFolderError` if it does not fit."""
        found = self.checkpoints.load()
        if self.ranks.is_first:
            self.log.cut(found.step if found else 0)
        if found is None:
            return
        try:
            if self.ranks.is_sharded:
                from trivet.training.sharded import load_model, load_optimizer

                load_model(self.job.model, found.model)
                load_optimizer(self.optimizer, found.state["optimizer"])
            else:
                self.job.model.load_state_dict(found.model)
                self.optimizer.load_state_dict(found.state["optimizer"])
            for name, stepper in self.job.steppers.items():
                stepper.load_state_dict(found.state["steppers"][name])
            self.plateau.load_state_dict(found.state["plateau"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise RunFolderError(
                f"{self.checkpoints.folder}: the checkpoint of step {found.step} does not fit this model "
                f"({error}); the code has changed since; remove the folder to start anew"
            ) from error
        self._take_rng(found.state)
        self.step = self.saved = found.step
        self.last_row = found.state["last_row"]
        self.seconds = self.resumed_seconds = found.state["seconds"]
        self.recent.extend(found.state["recent"])
        logger.info("resumed at step %d of %d", self.step, self.config.steps)

    def _take_rng(self, state: Mapping[str, Any]) -> None:
        """This process's generators as they were; after another number of processes, later ranks draw anew."""
        saved = [state["rng"], *state.get("rng_of_others", [])]
        if len(saved) == self.ranks.size:
            set_rng_state(saved[self.ranks.rank])
        elif self.ranks.is_first:
            set_rng_state({name: value for name, value in saved[0].items() if name != "cuda"})


def _short(values: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in values.items())
