"""What a built-in task is: a function that turns a run's configuration into a `Job` for the training loop.

One task is one file. To add one: write `build_job` in `trivet/tasks/<name>.py`, add its line to `BUILDERS` and its
name to `TaskConfig.name`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from trivet.core.errors import unknown_name

if TYPE_CHECKING:
    import torch

    from trivet.tasks.config import RunConfig
    from trivet.training.loop import Job

BUILDERS = {"image-classification": "trivet.tasks.image_classification"}
"""Task → module with its `build_job`."""


class JobBuilder(Protocol):
    """The one function of a task's file."""

    def __call__(self, run: RunConfig, device: torch.device) -> Job:
        """Load the data, build the model, and say how to train and evaluate it."""
        ...


def job_builder(name: str) -> JobBuilder:
    """The `build_job` of a task.

    Args:
        name: Name of the task.

    Raises:
        ValueError: There is no such task.

    Examples:
        >>> job_builder("image-classification").__module__
        'trivet.tasks.image_classification'
    """
    if name not in BUILDERS:
        raise ValueError(unknown_name("task", name, BUILDERS))
    return importlib.import_module(BUILDERS[name]).build_job
