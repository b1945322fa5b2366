"""Runs on this machine: by a warm server for each set of environment variables, or each in a process of its own.

A run whose task is a command of the user's needs no torch and gets a plain process, and so do torchrun and every run
when the server cannot start. A server that dies is started once more; the runs that died with it count as killed by a
signal. Every run leads a process group of its own, so that stopping it stops whatever it started.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trivet.core.runfolder import RunFolder
from trivet.study.executors.base import RUN_COMMAND, Exit, Job, child_environment, run_words
from trivet.study.executors.server import WarmServer

_log = logging.getLogger(__name__)

READY_SECONDS = 300.0
"""A server that is not ready after so long is given up."""

CLOSE_SECONDS = 10.0
"""How long processes that are still there when the executor closes have to end."""

MAX_RESTARTS = 1
"""How often a server that died is started again."""


@dataclass(slots=True)
class LocalHandle:
    """One started job: in a server, or in a process of its own."""

    job: Job
    requested: float
    server: WarmServer | None = None
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    exit: Exit | None = None


class LocalExecutor:
    """Places runs on this machine.

    Examples:
        >>> LocalExecutor(command=("python", "-m", "trivet.tasks")).start_seconds
        0.0
    """

    def __init__(self, *, command: Sequence[str] = RUN_COMMAND, warm: bool = True) -> None:
        """Args: command: runs a run folder, or serves with `--serve`; warm: whether to use servers."""
        self._command = list(command)
        self._warm = warm
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._servers: dict[tuple[tuple[str, str], ...], WarmServer] = {}
        self._started: dict[tuple[tuple[str, str], ...], int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._finished_start_seconds = 0.0

    @property
    def start_seconds(self) -> float:
        """Seconds that servers took to get ready, all together."""
        return self._finished_start_seconds + sum(server.start_seconds for server in self._servers.values())

    def command(self, job: Job) -> list[str]:
        """See `Executor`."""
        return run_words(job, self._command)

    def start(self, job: Job) -> LocalHandle:
        """See `Executor`."""
        handle = LocalHandle(job=job, requested=time.monotonic())
        self._place(handle)
        return handle

    def poll(self, handle: LocalHandle) -> Exit | None:
        """See `Executor`."""
        if handle.exit is None:
            handle.exit = self._poll_server(handle) if handle.server else self._poll_process(handle)
        return handle.exit

    def cancel(self, handle: LocalHandle, *, force: bool) -> None:
        """See `Executor`."""
        if handle.exit is not None:
            return
        if handle.server is not None:
            handle.server.stop(str(handle.job.folder), force=force)
        elif handle.process is not None:
            _signal_group(handle.process.pid, signal.SIGKILL if force else signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """See `Executor`; plain processes are looked at after 20 ms."""
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=min(seconds, 0.02))
            while True:
                self._wake.get_nowait()

    def close(self) -> None:
        """See `Executor`."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        running = [process for process in self._processes if process.poll() is None]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in running:
                _signal_group(process.pid, number)
            deadline = time.monotonic() + CLOSE_SECONDS
            while running and time.monotonic() < deadline:
                time.sleep(0.02)
                running = [process for process in running if process.poll() is None]
        self._processes.clear()

    def _place(self, handle: LocalHandle) -> None:
        """Hand the job to a living server, or start a process."""
        job = handle.job
        handle.server = None
        if self._warm and not job.is_command and not job.is_split:
            server = self._server(job)
            if server is not None and server.request(str(job.folder), job.device_variables):
                handle.server = server
                return
        handle.started = time.monotonic()
        handle.process = _start_process(self.command(job), job)
        self._processes = [process for process in self._processes if process.returncode is None]
        self._processes.append(handle.process)

    def _server(self, job: Job) -> WarmServer | None:
        """The living server of a job's variables; None when there can be none."""
        key = tuple(sorted(job.variables.items()))
        server = self._servers.get(key)
        if server is not None and not server.dead:
            return server
        if server is not None:
            self._bury(server)
            del self._servers[key]
            if not server.ready or self._started[key] > MAX_RESTARTS:
                self._started[key] = MAX_RESTARTS + 1
                return None
        if self._started.get(key, 0) > MAX_RESTARTS:
            return None
        self._started[key] = self._started.get(key, 0) + 1
        try:
            self._servers[key] = WarmServer([*self._command, "--serve"], job.variables, self._wake)
        except OSError as error:
            _log.warning("the warm server cannot be started (%s); each run gets its own process", error)
            self._started[key] = MAX_RESTARTS + 1
            return None
        return self._servers[key]

    def _bury(self, server: WarmServer) -> None:
        what = "died" if server.ready else "did not start"
        _log.warning("the warm server %s; last words: %s", what, server.error_text or "none")
        self._finished_start_seconds += server.start_seconds
        server.close()

    def _poll_server(self, handle: LocalHandle) -> Exit | None:
        server, folder = handle.server, str(handle.job.folder)
        if server is None:
            return None
        dead = server.dead  # before the entry: what the server said last is noted before it counts as dead
        entry = server.forked[folder]
        if entry.code is not None:
            return _exit(handle, entry.code, entry.started or entry.ended, entry.ended)
        if not server.ready and not dead and time.monotonic() - server.created > READY_SECONDS:
            server.kill()
        if not dead:
            return None
        if entry.pid == 0:
            self._place(handle)  # never begun: another server, or a process of its own
            return None
        _signal_group(entry.pid, signal.SIGKILL)
        return _exit(handle, -signal.SIGKILL, entry.started, time.monotonic())

    def _poll_process(self, handle: LocalHandle) -> Exit | None:
        process = handle.process
        code = process.poll() if process else None
        if process is None or code is None:
            return None
        _signal_group(process.pid, signal.SIGKILL)  # whatever the run left behind
        return _exit(handle, code, handle.started, time.monotonic())


def _exit(handle: LocalHandle, code: int, started: float, ended: float) -> Exit:
    return Exit(code=code, waited=max(0.0, started - handle.requested), ran=max(0.0, ended - started))


def _start_process(command: Sequence[str], job: Job) -> subprocess.Popen[bytes]:
    environment = child_environment({**job.variables, **job.device_variables})
    with open(RunFolder(job.folder).log_path, "ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
