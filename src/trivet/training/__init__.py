"""One readable training loop, with checkpoints that resume bit-exactly. Importing the package loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.training.batches import BatchOrder, augment
    from trivet.training.checkpoint import Checkpoints
    from trivet.training.config import LRScheduleConfig, OptimizerConfig, TrainingConfig
    from trivet.training.job import Job, Stepper
    from trivet.training.loop import Fit, fit
    from trivet.training.metrics import MetricsLog
    from trivet.training.optim import build_optimizer, lr_factor

__all__ = [
    "BatchOrder",
    "Checkpoints",
    "Fit",
    "Job",
    "LRScheduleConfig",
    "MetricsLog",
    "OptimizerConfig",
    "Stepper",
    "TrainingConfig",
    "augment",
    "build_optimizer",
    "fit",
    "lr_factor",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "BatchOrder": ".batches",
        "Checkpoints": ".checkpoint",
        "Fit": ".loop",
        "Job": ".job",
        "LRScheduleConfig": ".config",
        "MetricsLog": ".metrics",
        "OptimizerConfig": ".config",
        "Stepper": ".job",
        "TrainingConfig": ".config",
        "augment": ".batches",
        "build_optimizer": ".optim",
        "fit": ".loop",
        "lr_factor": ".optim",
    },
)
