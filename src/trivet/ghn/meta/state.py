"""Where a meta-training run stands: parameters, their running mean, optimiser, counters; saved and taken up again."""

from __future__ import annotations

import copy
import logging
import time
from typing import Any

import torch
from torch import nn

from trivet.core.errors import RunFolderError
from trivet.ghn.meta.config import MetaTrainingConfig
from trivet.ghn.meta.optimizer import MetaOptimizer
from trivet.training.checkpoint import Checkpoints

logger = logging.getLogger(__name__)


class MetaState:
    """Everything that a resumed run needs.

    Args:
        module: The hypernetwork.
        config: How it is trained.

    Examples:
        >>> state = MetaState(nn.Linear(1, 1), MetaTrainingConfig(steps=2, warmup_steps=0))
        >>> state.step, state.done(), state.averaged is state.module
        (0, 0.0, False)
    """

    def __init__(self, module: nn.Module, config: MetaTrainingConfig) -> None:
        self.module = module
        self.config = config
        self.optimizer = MetaOptimizer(module, config)
        self.averaged = copy.deepcopy(module) if config.ema else module
        """The hypernetwork with the running mean of the parameters, the one to evaluate and keep."""
        self.step = 0
        self.skipped = 0
        self.cpu_seconds = 0.0
        self.seconds = 0.0
        self.last_row = 0
        self.sums: dict[str, float] = {}
        """Sums over the steps since the last row."""
        self._cpu_mark = self._mark = 0.0

    def start_clock(self) -> None:
        """Training steps begin, or go on."""
        self._cpu_mark, self._mark = time.process_time(), time.perf_counter()

    def stop_clock(self) -> None:
        """Add the time since the last mark, and go on from here."""
        cpu, now = time.process_time(), time.perf_counter()
        self.cpu_seconds += cpu - self._cpu_mark
        self.seconds += now - self._mark
        self._cpu_mark, self._mark = cpu, now

    def done(self) -> float:
        """Share of the run that is done: of its steps, or of its time if that is further."""
        parts = [
            (self.step, self.config.steps),
            (self.cpu_seconds, self.config.cpu_seconds),
            (self.seconds, self.config.seconds),
        ]
        return min(1.0, max(spent / budget for spent, budget in parts if budget))

    @torch.no_grad()
    def average(self) -> None:
        """Take the parameters into the running mean; its decay rises to `ema` over the first steps."""
        if self.averaged is self.module:
            return
        decay = min(self.config.ema, (1 + self.step) / (10 + self.step))
        for mean, value in zip(self.averaged.parameters(), self.module.parameters(), strict=True):
            mean.lerp_(value, 1 - decay)
        for mean, value in zip(self.averaged.buffers(), self.module.buffers(), strict=True):
            mean.copy_(value)

    def save(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "averaged": self.averaged.state_dict() if self.averaged is not self.module else {},
            **{name: getattr(self, name) for name in _COUNTERS},
        }
        checkpoints.save(self.step, self.module.state_dict(), state)

    def resume(self, checkpoints: Checkpoints) -> bool:
        """Take up the newest usable checkpoint; False when there is none.

        Raises:
            RunFolderError: It does not fit the hypernetwork.
        """
        found = checkpoints.load()
        if found is None:
            return False
        try:
            self.module.load_state_dict(found.model)
            self.optimizer.load_state_dict(found.state["optimizer"])
            if self.averaged is not self.module:
                self.averaged.load_state_dict(found.state["averaged"])
            for name in _COUNTERS:
                setattr(self, name, found.state[name])
        except (RuntimeError, ValueError, KeyError) as error:
            raise RunFolderError(
                f"{checkpoints.folder}: the checkpoint of step {found.step} does not fit this hypernetwork ({error}); "
                "the code has changed since; remove the folder to start anew"
            ) from error
        logger.info("resumed at step %d of %d", self.step, self.config.steps)
        return True


_COUNTERS = ("step", "skipped", "cpu_seconds", "seconds", "last_row", "sums")
