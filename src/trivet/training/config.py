"""How to train: the `training` section of a run. Torch-free, so that a study file is checked before anything starts.

Not covered: what is trained and on what (the `task` section), at which precision (`precision`) and on which hardware
(`environment`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

MAX_STEPS = 10**9
"""Most optimiser steps of a run; more is a slip of the pen."""


def _at_least(name: str, value: float, least: float, advice: str) -> None:
    if not (math.isfinite(value) and value >= least):
        raise ValueError(f"`{name}={value}` must be ≥ {least:g}; {advice}")


def _fraction(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"`{name}={value}` must lie in [0, 1); 0.9 is common")


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """Which optimiser, and its constants; the rate is `lr` times the factor of the learning-rate schedule.

    Examples:
        >>> OptimizerConfig(name="sgd", lr=0.1, momentum=0.9).momentum
        0.9
        >>> OptimizerConfig(name="adam", lr=-1)
        Traceback (most recent call last):
        ...
        ValueError: `lr=-1` must be > 0; 0.1 is usual for sgd, 0.001 for adam and adamw
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    """`sgd` (with momentum), `adam` (weight decay added to the gradient) or `adamw` (decoupled weight decay)."""
    lr: float = 0.1
    """Learning rate after warm-up."""
    momentum: float = 0.0
    """Momentum of `sgd`."""
    nesterov: bool = False
    """Nesterov's form of momentum, `sgd` only."""
    weight_decay: float = 0.0
    """Weight decay of every parameter."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the two running means of `adam` and `adamw`."""
    eps: float = 1e-8
    """Added to the denominator of `adam` and `adamw`."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"`lr={self.lr}` must be > 0; 0.1 is usual for sgd, 0.001 for adam and adamw")
        _fraction("momentum", self.momentum)
        _at_least("weight_decay", self.weight_decay, 0, "use 0 for none")
        for index, beta in enumerate(self.betas):
            _fraction(f"betas[{index}]", beta)
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"`eps={self.eps}` must be > 0; 1e-8 is usual")
        if self.name != "sgd" and (self.momentum or self.nesterov):
            raise ValueError(f"`momentum` and `nesterov` have no effect with {self.name}; remove them or set `betas`")
        if self.nesterov and not self.momentum:
            raise ValueError("`nesterov=True` needs `momentum` > 0; set `momentum`, 0.9 is common")


@dataclass(frozen=True, kw_only=True, slots=True)
class LRScheduleConfig:
    """How the learning rate changes over the run; see `trivet.training.optim.lr_factor` for the formulas.

    Examples:
        >>> LRScheduleConfig(name="step").milestones
        (0.5, 0.75)
    """

    name: Literal["constant", "cosine", "linear", "step", "plateau"] = "constant"
    """`constant`, half a `cosine` or `linear` from 1 to `final`, `step`: times `gamma` at each milestone, or `plateau`:
    times `gamma` whenever an evaluation finds no lower `valid_loss` than all before."""
    warmup_steps: int = 0
    """Steps over which the rate grows linearly from lr / warmup_steps to lr."""
    milestones: tuple[float, ...] = (0.5, 0.75)
    """Where `step` lowers the rate, as fractions of all steps, growing."""
    gamma: float = 0.1
    """By what `step` and `plateau` multiply the rate."""
    hold_steps: int = 0
    """Steps at the start whose evaluations do not count for `plateau`, such as those of a learning deficit."""
    final: float = 0.0
    """Fraction of the rate at which `cosine` and `linear` would arrive one step after the last."""

    def __post_init__(self) -> None:
        _at_least("warmup_steps", self.warmup_steps, 0, "use 0 for none")
        _at_least("hold_steps", self.hold_steps, 0, "use 0 for none")
        if any(not 0 < point < 1 for point in self.milestones) or list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(
                f"`milestones={list(self.milestones)}` must be growing fractions in (0, 1); such as [0.5, 0.75]"
            )
        if not 0 < self.gamma <= 1:
            raise ValueError(f"`gamma={self.gamma}` must lie in (0, 1]; 0.1 is common")
        if not 0 <= self.final <= 1:
            raise ValueError(f"`final={self.final}` must lie in [0, 1]; 0 lets the rate fall to nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """The `training` section of a run.

    Examples:
        >>> TrainingConfig(steps=100, batch_size=32).optimizer.name
        'sgd'
    """

    steps: int
    """Optimiser steps."""
    batch_size: int = 128
    """Examples a step; every batch is full, an epoch's rest is filled up from the next epoch."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimiser and its constants."""
    schedule: LRScheduleConfig = field(default_factory=LRScheduleConfig)
    """Learning rate over the run."""
    evaluate_every: int = 0
    """Steps between evaluations; 0 evaluates once, at the end."""
    log_every: int = 50
    """Steps between logged rows; the last step is always logged."""
    checkpoint_every: int = 1000
    """Steps between checkpoints; 0 writes one at the end and one when the run is asked to stop."""
    compile: bool = False
    """Run the model through `torch.compile`: faster steps after a start that takes a minute."""
    autocast: Literal["none", "bf16"] = "none"
    """`bf16` computes matrix products and convolutions in bfloat16."""
    channels_last: bool = False
    """Keep images with the channels innermost; often faster convolutions, last bits may differ."""
    clip_norm: float = 0.0
    """Largest 2-norm of the gradient of all parameters together; 0 does not clip."""

    def __post_init__(self) -> None:
        _at_least("steps", self.steps, 1, "give the number of optimiser steps")
        if self.steps > MAX_STEPS:
            raise ValueError(f"`steps={self.steps}` must be ≤ {MAX_STEPS}; lower `steps`")
        _at_least("batch_size", self.batch_size, 1, "128 is common")
        _at_least("evaluate_every", self.evaluate_every, 0, "0 evaluates only at the end")
        _at_least("log_every", self.log_every, 1, "50 is the default")
        _at_least("checkpoint_every", self.checkpoint_every, 0, "0 writes a checkpoint only at the end")
        _at_least("clip_norm", self.clip_norm, 0, "0 does not clip")
        if self.schedule.name == "plateau" and not self.evaluate_every:
            raise ValueError("`schedule.name=plateau` needs `evaluate_every` > 0; such as once a pass over the data")
        if self.schedule.warmup_steps >= self.steps and self.schedule.warmup_steps > 0:
            raise ValueError(
                f"`schedule.warmup_steps={self.schedule.warmup_steps}` must be < steps={self.steps}; "
                "shorten the warm-up or train longer"
            )
