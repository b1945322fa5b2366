"""A warm process that forks one child a run, because importing torch anew costs every run seconds.

`python -m trivet.tasks --serve`, started with the variables of one environment, imports what a run needs, once, without
starting threads or CUDA, and then reads one JSON object a line:

    {"run": "/abs/RUN_DIR", "env": {"CUDA_VISIBLE_DEVICES": "0"}}   fork a child
    {"terminate": "/abs/RUN_DIR"}                                   SIGTERM to the child's process group
    {"kill": "/abs/RUN_DIR"}                                        SIGKILL to it

The child does what `python -m trivet.tasks RUN_DIR` does, in its own session, with /dev/null as input and `log.txt` as
output, and dies with the server. Written, one JSON object a line:

    {"ready": 17}                          the imports are done
    {"run": "/abs/RUN_DIR", "pid": 18}     forked
    {"run": "/abs/RUN_DIR", "exit": 0}     ended; minus the signal's number when one ended it
    {"error": "not a request: …"}          a line that is no use

End of input or SIGTERM: the children get SIGTERM, ten seconds later SIGKILL.

POSIX only. A forked run computes the same bits as a fresh process: nothing random or threaded happens before the fork.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import selectors
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""How long children may take to write a checkpoint when the server ends."""

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

PRELOADED = (
    "pydantic",
    "torch",
    "torch.optim",
    "torch._dynamo",
    "safetensors.torch",
    "trivet.tasks.run",
    "trivet.tasks.image_classification",
    "trivet.tasks.language_model",
    "trivet.tasks.video_prediction",
    "trivet.tasks.autoencoding",
    "trivet.training.environment",
)
"""Imported before the first fork; a run must not find anything else slow to import."""


_PREPARED: set[str] = set()
"""Tasks whose libraries the server has imported, or tried to."""


class Server:
    """Forks a child for each request and reports when it ends.

    Args:
        run: What a child does; its return value is the exit code.
        write: Takes one message for the other side.

    Examples:
        >>> server = Server(run=lambda folder: 0, write=print)
        >>> server.handle('{"run": 5}')
        {'error': 'not a request: {"run": 5}'}
    """

    def __init__(
        self,
        *,
        run: Callable[[str], int],
        write: Callable[[Mapping[str, Any]], None],
        prepare: Callable[[str], None] = lambda folder: None,
    ) -> None:
        """Args: see the class; prepare: what is done in the server itself before a run is forked."""
        self._run = run
        self._write = write
        self._prepare = prepare
        self.children: dict[int, str] = {}

    def handle(self, line: str) -> None:
        """Do what one line of input asks."""
        try:
            request = json.loads(line)
        except ValueError:
            request = None
        match request:
            case {"run": str(folder), **rest}:
                environment = rest.get("env") or {}
                self._fork(folder, {str(name): str(value) for name, value in dict(environment).items()})
            case {"terminate": str(folder)}:
                self.signal(signal.SIGTERM, folder)
            case {"kill": str(folder)}:
                self.signal(signal.SIGKILL, folder)
            case _:
                self._write({"error": f"not a request: {line.strip()[:200]}"})

    def _fork(self, folder: str, environment: Mapping[str, str]) -> None:
        if folder in self.children.values():
            self._write({"error": f"{folder} is running already"})
            return
        self._prepare(folder)
        server = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python 3.12 warns when it sees OpenBLAS's idle threads; OpenBLAS itself is safe to fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            # A signal that comes before the child has its own handlers waits; the server's would swallow it.
            old = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
            pid = os.fork()
            if pid == 0:
                _be_child(folder, environment, self._run, server)
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
        self.children[pid] = folder
        self._write({"run": folder, "pid": pid})

    def signal(self, number: int, folder: str | None = None) -> None:
        """Send a signal to the process group of one run, or of all."""
        for pid, running in self.children.items():
            if folder in (None, running):
                try:
                    os.killpg(pid, number)
                except ProcessLookupError:  # the child has not made its own group yet
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)

    def reap(self) -> None:
        """Report every child that has ended."""
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            folder = self.children.pop(pid, None)
            if folder is not None:
                self._write({"run": folder, "exit": os.waitstatus_to_exitcode(status)})

    def close(self) -> None:
        """Ask all children to stop, wait for them, then kill what is left."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while self.children and time.monotonic() < deadline:
            time.sleep(0.02)
            self.reap()
        self.signal(signal.SIGKILL)
        while self.children:
            time.sleep(0.02)
            self.reap()


def import_libraries(folder: str) -> None:
    """Import what the task of a run takes long to import, once for all runs; what fails is left to the run to report.

    Examples:
        >>> import_libraries("no/such/folder")
    """
    with contextlib.suppress(Exception):
        from trivet.core.config import load_yaml
        from trivet.tasks.task_config import TASKS

        stem = TASKS[load_yaml(Path(folder) / "config.yaml")["task"]["name"]][0]
        if stem not in _PREPARED:
            _PREPARED.add(stem)
            getattr(importlib.import_module(f"trivet.tasks.{stem}"), "import_libraries", lambda: None)()


def _be_child(folder: str, environment: Mapping[str, str], run: Callable[[str], int], server: int) -> None:
    """What the forked process does; it never returns."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        _die_with_parent(server)
        _redirect(folder)
        os.environ.update(environment)
        code = run(folder)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_with_parent(parent: int) -> None:
    from trivet.tasks.command import die_with_parent

    die_with_parent()
    if os.getppid() != parent:  # it ended between the fork and the call
        os._exit(1)


def _redirect(folder: str) -> None:
    """Input from /dev/null; output to the run's log.txt; the server's own pipes are closed."""
    empty = os.open(os.devnull, os.O_RDONLY)
    log = os.open(Path(folder) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(empty, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 256)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)


def serve() -> int:
    """Serve standard input until it ends.

    Returns:
        0.
    """
    # Lets torch look for CUDA without starting it: a process that has started CUDA cannot be forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    for name in PRELOADED:
        importlib.import_module(name)
    from trivet.tasks.run import run_task

    protocol = os.dup(1)  # whatever prints later goes to standard error, never between two messages
    os.dup2(2, 1)

    def write(message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(protocol, (json.dumps(message) + "\n").encode())

    server = Server(run=run_task, write=write, prepare=import_libraries)
    ended: list[int] = []
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    selector = selectors.SelectSelector()  # epoll takes no regular file as input
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    write({"ready": os.getpid()})
    rest = b""
    while not ended:
        ready = [key.fd for key, _ in selector.select()]
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            server.reap()
        if 0 in ready:
            part = os.read(0, 65536)
            if not part:
                break
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line.strip():
                    server.handle(line.decode("utf-8", errors="replace"))
    server.close()
    return 0
