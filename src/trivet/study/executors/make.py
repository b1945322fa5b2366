"""From the name of an executor to the executor, and what a study may use of it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from trivet.core.errors import ConfigError, MissingExtraError, Problem, unknown_name
from trivet.study.capacity import Capacity, count_cores, find_gpus, measure_capacity
from trivet.study.executors.base import Engine, Executor
from trivet.study.executors.local import LocalExecutor
from trivet.study.resources import Machine, ResourcesSpec

EXECUTORS = ("local", "slurm", "ray")
"""Names that `Study.run` takes."""

IN_THE_QUEUE = 256
"""Runs that are handed to an engine at a time when the study does not say how many."""

RAY_OPTIONS = ("address", "working_dir")
"""What `resources.options` may hold for Ray."""

_PACKAGES = {"slurm": "submitit", "ray": "ray"}


def make_executor(
    executor: str | Executor[Any], resources: ResourcesSpec | None = None, folder: Path | None = None
) -> Executor[Any]:
    """The executor of a name, or the object itself.

    Args:
        executor: One of `EXECUTORS`, or an object that places runs.
        resources: Options for the engine.
        folder: Of the study; the engine's own files go there.

    Raises:
        ValueError: There is no executor of that name.
        MissingExtraError: Its package is not installed.
        ConfigError: Ray knows no such option.
        WorkerError: Its engine cannot be reached.

    Examples:
        >>> type(make_executor("local")).__name__
        'LocalExecutor'
    """
    if not isinstance(executor, str):
        return executor
    if executor == "local":
        return LocalExecutor()
    if executor not in EXECUTORS:
        raise ValueError(unknown_name("executor", executor, EXECUTORS))
    package = _PACKAGES[executor]
    try:
        importlib.import_module(package)
    except ImportError as error:
        if error.name != package:
            raise
        raise MissingExtraError(package, executor) from None
    asked = resources or ResourcesSpec()
    if executor == "slurm":
        from trivet.study.executors.slurm import SlurmExecutor

        return SlurmExecutor((folder or Path()) / ".slurm", options=asked.options)
    from trivet.study.executors.ray import RayExecutor

    options = {name: str(value) for name, value in asked.options.items()}
    unknown = next((name for name in options if name not in RAY_OPTIONS), None)
    if unknown:
        raise ConfigError([Problem("", "resources.options", repr(unknown), ", ".join(RAY_OPTIONS), "these are Ray's")])
    return RayExecutor(**options)


def machine_of(place: Executor[Any]) -> Machine:
    """The largest machine a run can get: this one, or the engine's."""
    import os

    if isinstance(place, Engine):
        return place.largest()
    return Machine(name="this machine", cores=count_cores(), gpus=len(find_gpus(os.environ)))


def capacity_of(place: Executor[Any], slots: int, resources: ResourcesSpec, runs: int) -> Capacity:
    """How many runs go on at a time: what fits here, or so many in the queue of an engine."""
    if isinstance(place, Engine):
        waiting = min(slots or IN_THE_QUEUE, max(runs, 1))
        return Capacity(cores=waiting, slots=waiting, gpus=(), devices=resources.devices)
    return measure_capacity(slots, devices=resources.devices)
