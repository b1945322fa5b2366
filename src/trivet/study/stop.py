"""Stopping a study: signals that ask for it, and the errors that say it was stopped.

The first SIGINT (Ctrl-C), SIGTERM or SIGHUP asks for an orderly stop: no new run is started, running ones are told to
write their checkpoint. The second one kills them. Nothing is lost either way: the same command resumes.
"""

from __future__ import annotations

import errno
import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from trivet.core.errors import TrivetError

if TYPE_CHECKING:
    from trivet.study.results import Results

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk, or a quota, that is full."""


class StudyStopped(TrivetError):
    """A study that stopped launching because of something outside it, such as a full disk; it can be resumed.

    Examples:
        >>> StudyStopped("the disk is full").exit_code
        1
    """

    def __init__(self, message: str, results: Results | None = None) -> None:
        super().__init__(message)
        self.results = results
        """What was there when it stopped."""


class StudyInterrupted(KeyboardInterrupt):
    """A study stopped in order by a signal; it is a `KeyboardInterrupt`, so a script ends as Ctrl-C ends it.

    Examples:
        >>> StudyInterrupted("stopped", signal.SIGINT).exit_code
        130
    """

    def __init__(self, message: str, number: int, results: Results | None = None) -> None:
        super().__init__(message)
        self.exit_code = 128 + number
        """130 for Ctrl-C, 143 for SIGTERM."""
        self.results = results
        """What was there when it stopped."""


class StopSignals:
    """Counts the signals that ask for a stop while its `with` block runs; elsewhere they do what they did before.

    Outside the main thread nothing is caught, because Python allows handlers only there.

    Examples:
        >>> with StopSignals() as signals:
        ...     signals.count
        0
    """

    def __init__(self) -> None:
        self.count = 0
        """Signals received."""
        self.number = int(signal.SIGINT)
        """The first one received."""
        self._old: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._old[number] = signal.signal(number, self._received)
        return self

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self.count == 0:
            self.number = number
        self.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
