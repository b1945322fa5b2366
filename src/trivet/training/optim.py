"""Optimisers from configuration, and learning rates as pure functions of the step.

A learning rate that depends on nothing but the step has no state to save: a resumed run reads the same rate. The one
exception is `plateau`, which remembers the best evaluation (`Plateau`).
Every parameter is in one group; per-layer rates and no-decay groups are not covered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch

from trivet.training.config import LRScheduleConfig, OptimizerConfig

WATCHED = "valid_loss"
"""Metric that `plateau` watches."""


def build_optimizer(parameters: Iterable[torch.nn.Parameter], config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimiser that `config` names, over `parameters`.

    Args:
        parameters: What is trained; those with `requires_grad=False` are left out.
        config: Name and constants.

    Raises:
        ValueError: No parameter needs a gradient.

    Examples:
        >>> layer = torch.nn.Linear(2, 1)
        >>> type(build_optimizer(layer.parameters(), OptimizerConfig(name="adamw", lr=1e-3))).__name__
        'AdamW'
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        raise ValueError("the model has no parameter that needs a gradient; unfreeze some")
    if config.name == "sgd":
        return torch.optim.SGD(
            trained,
            lr=config.lr,
            momentum=config.momentum,
            nesterov=config.nesterov,
            weight_decay=config.weight_decay,
        )
    kind = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
    return kind(trained, lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)


def lr_factor(config: LRScheduleConfig, step: int, total_steps: int) -> float:
    """What the learning rate is multiplied by at `step` (counted from 0).

    With w warm-up steps and T steps in all:

    - warm-up, step < w: (step + 1) / w;
    - constant, and plateau before its first reduction: 1;
    - cosine: final + (1 - final) · (1 + cos(π · (step - w) / (T - w))) / 2;
    - linear: final + (1 - final) · (T - step) / (T - w);
    - step: gamma to the power of how many milestones m have step ≥ round(m · T).

    Args:
        config: Which schedule.
        step: The step about to be done, in [0, total_steps).
        total_steps: Steps of the whole run.

    Raises:
        ValueError: `step` lies outside the run.

    Examples:
        >>> [lr_factor(LRScheduleConfig(name="step", gamma=0.5), step, 8) for step in (0, 4, 6)]
        [1.0, 0.5, 0.25]
    """
    if not 0 <= step < total_steps:
        raise ValueError(f"`step={step}` must lie in [0, total_steps={total_steps})")
    warmup = config.warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    if config.name == "cosine":
        done = (step - warmup) / (total_steps - warmup)
        return config.final + (1 - config.final) * (1 + math.cos(math.pi * done)) / 2
    if config.name == "linear":
        return config.final + (1 - config.final) * (total_steps - step) / (total_steps - warmup)
    if config.name == "step":
        passed = sum(step >= round(point * total_steps) for point in config.milestones)
        return config.gamma**passed
    return 1.0


class Plateau:
    """The factor of the learning rate that falls by `gamma` whenever an evaluation is not better than all before.

    Examples:
        >>> plateau = Plateau(LRScheduleConfig(name="plateau", gamma=0.25))
        >>> for step, loss in enumerate([5.0, 4.0, 4.5, 3.9], 1):
        ...     plateau.see({"valid_loss": loss}, step)
        >>> plateau.factor, plateau.best
        (0.25, 3.9)
    """

    def __init__(self, config: LRScheduleConfig) -> None:
        self.config = config
        self.factor = 1.0
        self.best = math.inf

    def see(self, evaluation: Mapping[str, float], step: int) -> None:
        """Take note of an evaluation after so many steps; does nothing unless the schedule is `plateau`."""
        if self.config.name != "plateau" or step <= self.config.hold_steps:
            return
        loss = evaluation[WATCHED]
        if not loss < self.best:
            self.factor *= self.config.gamma
        self.best = min(self.best, loss)

    def state_dict(self) -> dict[str, float]:
        """Factor and best loss."""
        return {"factor": self.factor, "best": self.best}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take back what `state_dict` gave."""
        self.factor, self.best = state["factor"], state["best"]


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every parameter group the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr
