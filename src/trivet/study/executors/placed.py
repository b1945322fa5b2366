"""What runs on a worker of an engine: the run's own command line, in a fresh process, watched until it ends.

Before the command is started, the worker is looked at: it must have the same trivet and see the run folder. What it
lacks is answered within moments, before time is spent. Storage that is not shared: see `copied.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import trivet
from trivet.core.io import write_json
from trivet.core.processes import die_with_parent
from trivet.core.runfolder import RunFolder
from trivet.study.executors.base import HEAD, Job, run_words

SEE_SECONDS = 10.0
"""A shared file system has so long to show a folder that has just been made."""

GRACE_SECONDS = 60.0
"""How long a command that was asked to end has for its checkpoint."""

RENDEZVOUS_PORT = 29_400
"""First of the ports at which processes of several nodes meet."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says of a run, or why it did not try."""

    code: int
    started: float
    seconds: float
    refused: str = ""

    def write(self, folder: str) -> None:
        """Leave it in the run folder, where it is."""
        if Path(folder).is_dir():
            write_json(report_path(Path(folder)), asdict(self))


def report_path(folder: Path) -> Path:
    """Where a worker leaves its report, for engines that hand back files only."""
    return folder / ".placed.json"


def read_report(folder: Path) -> Report | None:
    """The report of the last attempt, or None."""
    try:
        return Report(**json.loads(report_path(folder).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@dataclass(slots=True)
class Placed:
    """The command line of a run, to be called on a worker; calling it again goes on from the checkpoint.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "config.yaml").write_text("")
        >>> Placed(["python", "-c", "raise SystemExit(3)"], str(folder), {}, trivet.__version__)().code
        3
    """

    words: Sequence[str]
    folder: str
    variables: Mapping[str, str]
    version: str
    head: str = ""
    start: str = ""
    """Folder that the study was started from; commands run there where the worker sees it."""

    @classmethod
    def of(cls, job: Job) -> Self:
        """What places a job."""
        hidden = {} if job.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        variables = {**job.variables, **hidden}
        return cls(run_words(job), str(job.folder), variables, trivet.__version__, start=os.getcwd())

    def __call__(self) -> Report:
        """Run the command; SIGTERM, SIGINT and Ctrl-C are handed on to it."""
        started = time.time()
        refused = self._refused()
        if refused:
            return Report(2, started, 0.0, refused)
        command = [sys.executable, *(word.replace(HEAD, self.head) for word in self.words[1:])]
        with open(RunFolder(Path(self.folder)).log_path, "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.variables},
                cwd=self.start if os.path.isdir(self.start) else None,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        _running.append(process)
        try:
            code = _watch(process)
        finally:
            _running.remove(process)
        return Report(code, started, time.time() - started)

    def _refused(self) -> str:
        host = socket.gethostname()
        if trivet.__version__ != self.version:
            return f"{host} has trivet {trivet.__version__}, the study was started with {self.version}; install that"
        deadline = time.monotonic() + SEE_SECONDS
        while not RunFolder(Path(self.folder)).config_path.is_file():
            if time.monotonic() > deadline:
                shared = "put the study on storage that all machines share (--out)"
                return f"{host} does not see {self.folder}; {shared}, or with Ray set `resources.storage: copied`"
            time.sleep(0.2)
        return ""


_running: list[subprocess.Popen[bytes]] = []
"""The command of this worker, while there is one."""


def stop_running() -> None:
    """Let the command write its checkpoint and end; for engines that warn before they take the machine away."""
    for process in _running:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):  # not process.wait: this may run inside it, as a signal handler
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def _watch(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process; whatever asks this one to stop is passed on, and whatever is left is killed."""
    try:
        while True:  # in short waits: Ray's cancellation is seen between them only
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(0.5)
    except BaseException as stop:  # an engine's cancellation comes as KeyboardInterrupt or SystemExit
        _signal(process, signal.SIGTERM)
        try:
            code = process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            code = process.wait()
        if isinstance(stop, KeyboardInterrupt):
            return code
        raise
    finally:
        _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
