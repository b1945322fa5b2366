"""A warm process that has imported torch once and forks every run: isolation without seconds of import for each.

It speaks one JSON object a line: requests `{"run": DIR, "env": {…}}`, `{"terminate": DIR}`, `{"kill": DIR}` on its
standard input; `{"ready": pid}`, `{"run": DIR, "pid": n}`, `{"run": DIR, "exit": code}` on its standard output. When
its input closes, because the parent ended in whatever way, it stops its children and ends.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from trivet.study.executors.base import child_environment

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Forked:
    """One run as the server reports it."""

    pid: int = 0
    started: float = 0.0
    code: int | None = None
    ended: float = 0.0


class WarmServer:
    """One server process with one set of environment variables.

    Not thread-safe except for what the reader threads do.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], wake: queue.SimpleQueue[None]) -> None:
        """Start the process; it gets ready while requests are already taken.

        Raises:
            OSError: It cannot be started.
        """
        self.created = time.monotonic()
        self.ready_at = 0.0
        self.forked: dict[str, Forked] = {}
        self.dead = False
        self._wake = wake
        self._tail: collections.deque[str] = collections.deque(maxlen=40)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=child_environment(variables),
            start_new_session=True,
        )
        self._threads = [
            threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def ready(self) -> bool:
        """Whether the server has ever said that it is ready."""
        return self.ready_at > 0

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    @property
    def start_seconds(self) -> float:
        """Seconds it took, or has taken so far, to get ready."""
        if self.ready:
            return self.ready_at - self.created
        return 0.0 if self.dead else time.monotonic() - self.created

    @property
    def error_text(self) -> str:
        """The last lines that the server wrote to its standard error."""
        return "\n".join(self._tail)

    def request(self, folder: str, variables: Mapping[str, str]) -> bool:
        """Ask for a run; False when the server cannot take it."""
        self.forked[folder] = Forked()
        return self._send({"run": folder, "env": dict(variables)})

    def stop(self, folder: str, *, force: bool) -> None:
        """SIGTERM or SIGKILL for the process group of a run."""
        self._send({"kill" if force else "terminate": folder})

    def kill(self) -> None:
        """End the server without ceremony; its children die with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, grace: float = 15.0) -> None:
        """Close the server's input, wait for its end, and kill it when that does not come."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(1.0)
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def _send(self, message: Mapping[str, object]) -> bool:
        if self.dead or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            try:
                message = json.loads(line)
                self._note(message)
            except (ValueError, TypeError, KeyError):
                _log.debug("the warm server said: %s", line.rstrip())
            self._wake.put(None)
        self._process.wait()
        self.dead = True
        self._wake.put(None)

    def _note(self, message: Mapping[str, object]) -> None:
        now = time.monotonic()
        if "ready" in message:
            self.ready_at = now
            return
        entry = self.forked.setdefault(str(message["run"]), Forked())
        if "pid" in message:
            entry.pid, entry.started = int(str(message["pid"])), now
        if "exit" in message:
            entry.ended = now
            entry.code = int(str(message["exit"]))

    def _read_errors(self, stream: IO[str]) -> None:
        for line in stream:
            self._tail.append(line.rstrip())
