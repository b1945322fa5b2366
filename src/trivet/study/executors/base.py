"""What an executor is: something that takes one run's command line, says when it ended, and can stop it.

An executor only *places* the command; what runs, and how it is isolated, is the same everywhere. To add one, write a
class with these methods in a file beside this one and name it in `trivet.study.study.make_executor`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from trivet.study.plan import PlannedRun

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
    """The one GPU it may see; empty: no restriction."""

    @property
    def is_command(self) -> bool:
        """Whether the run is a command of the user's, which needs no torch."""
        return bool(self.run.config["task"].get("command"))

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
