"""What an executor is: something that takes one run's command line, says when it ended, and can stop it.

An executor only *places* the command; what runs, and how it is isolated, is the same everywhere. To add one, write a
class with these methods in a file beside this one and name it in `trivet.study.executors.make`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from trivet.core.errors import TrivetError
from trivet.study.plan import PlannedRun
from trivet.study.resources import Machine, ResourcesSpec

RUN_COMMAND = (sys.executable, "-m", "trivet.tasks")
"""What runs a run folder, given as the next argument."""

H = TypeVar("H")


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run with its place."""

    run: PlannedRun
    """What runs."""
    folder: Path
    """Its run folder, with config.yaml in it; absolute."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that must be set before the process imports torch."""
    gpu: str = ""
    """The GPU it may see, or several with commas between them; empty: no restriction."""
    gpus: int = 0
    """GPUs of each node that an engine shall give it."""
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    """What the study says of devices, nodes and limits."""

    @property
    def is_command(self) -> bool:
        """Whether the run is a command of the user's, which needs no torch."""
        return bool(self.run.config["task"].get("command"))

    @property
    def is_split(self) -> bool:
        """Whether torchrun starts several processes of this run."""
        return self.resources.processes > 1 and not self.is_command

    @property
    def threads(self) -> int:
        """CPU cores that it uses on each node."""
        return int(self.run.config["environment"]["threads"]) * self.resources.devices

    @property
    def device_variables(self) -> dict[str, str]:
        """Variables that differ from run to run."""
        return {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """How a process ended."""

    code: int
    """Exit code; −n when signal n ended it."""
    waited: float
    """Seconds between the request and the start of the process."""
    ran: float
    """Seconds the process lived."""


class WorkerError(TrivetError):
    """What the engine gave a run cannot run it, such as a worker without trivet; the study stops before more is tried.

    Examples:
        >>> WorkerError("no trivet there").exit_code
        2
    """

    exit_code = 2


class Executor(Protocol[H]):
    """Runs jobs; every method returns at once."""

    def command(self, job: Job) -> list[str]:
        """The command line of a job, without its variables."""
        ...

    def start(self, job: Job) -> H:
        """Start a job.

        Raises:
            OSError: The process cannot be started.
        """
        ...

    def poll(self, handle: H) -> Exit | None:
        """How a job ended, or None while it goes on."""
        ...

    def cancel(self, handle: H, *, force: bool) -> None:
        """Ask a job to checkpoint and end (SIGTERM), or end it (SIGKILL)."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until something may have ended, at most so long."""
        ...

    def close(self) -> None:
        """End what the executor itself keeps running."""
        ...

    @property
    def start_seconds(self) -> float:
        """Seconds spent so far on getting ready, such as importing torch once."""
        ...


@runtime_checkable
class Engine(Protocol):
    """An executor that asks somebody else for machines has this too."""

    def largest(self) -> Machine:
        """The largest machine that a run can get."""
        ...


HEAD = "{head}"
"""Stands in a command of several nodes for host and port of the first one."""


def run_words(job: Job, command: Sequence[str] = RUN_COMMAND) -> list[str]:
    """The command line of a job: `command` and its folder, started by torchrun where a run has several processes."""
    words = [*command, str(job.folder)]
    if not job.is_split:
        return words
    asked = job.resources
    meeting = ["--standalone"]
    if asked.nodes > 1:
        meeting = [f"--nnodes={asked.nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={HEAD}"]
        meeting += [f"--rdzv-id={job.run.run_id}"]
    launcher = ["-m", "torch.distributed.run", *meeting, f"--nproc-per-node={asked.devices}"]
    return [words[0], *launcher, *words[1:]]


def shell_line(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """A command as one line for a shell, variables first.

    Examples:
        >>> shell_line(["python", "-m", "trivet.tasks", "a b"], {"OMP_NUM_THREADS": "1"})
        "OMP_NUM_THREADS=1 python -m trivet.tasks 'a b'"
    """
    setting = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*setting, shlex.join(command)])


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with `variables` over it."""
    return {**os.environ, **variables}
