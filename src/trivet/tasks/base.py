"""What a built-in task is: a module whose `build_job` turns a run's configuration into a `Job` for the training loop.

One task is one file, `trivet/tasks/<name>.py`, with its options beside it in `<name>_config.py`. To add one: write
both, and add its row to `TASKS` in `task_config.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from trivet.core.errors import unknown_name
from trivet.core.seeding import derive
from trivet.tasks.task_config import COMMAND, TASKS

if TYPE_CHECKING:
    import torch

    from trivet.tasks.config import RunConfig
    from trivet.training.loop import Job


class TaskModule(Protocol):
    """What a task's file holds."""

    @property
    def quantizes(self) -> Callable[[torch.nn.Module, str], bool] | None:
        """Which layers compute at few bits, as in `quantize_`; None for its default."""
        ...

    def build_job(self, run: RunConfig, device: torch.device) -> Job:
        """Load the data, build the model, and say how to train and evaluate it."""
        ...

    def counted(self, run: RunConfig) -> tuple[torch.nn.Module, Any]:
        """The model of a run and one example of its input, for counting multiply-accumulates."""
        ...


def task_module(name: str) -> TaskModule:
    """The module of a built-in task.

    Args:
        name: Name of the task.

    Raises:
        ValueError: There is no such task.

    Examples:
        >>> task_module("image-classification").__name__
        'trivet.tasks.image_classification'
    """
    if name not in TASKS or name == COMMAND:
        raise ValueError(unknown_name("task", name, [task for task in TASKS if task != COMMAND]))
    return cast("TaskModule", importlib.import_module(f"trivet.tasks.{TASKS[name][0]}"))


def build_job(run: RunConfig, device: torch.device) -> Job:
    """The job of a run of any built-in task, disturbed and measured as its `noise` and `curvature` sections say."""
    job = task_module(run.task.name).build_job(run, device)
    if run.environment.backend == "jax":
        from trivet.tasks.backend import with_jax

        job = with_jax(job, device.type)
    if not run.noise.is_silent:
        from trivet.audit.noise import Noise

        noise = Noise(job.model, run.noise, derive(run.seed, "noise"))
        job = replace(job, steppers={**job.steppers, "noise": noise})
    if not run.curvature.is_off:
        from trivet.tasks.curvature import with_curvature

        job = with_curvature(job, run, device)
    return job
