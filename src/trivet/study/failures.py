"""Why a process ended without a result: a signal, a full disk, or an error of its own."""

from __future__ import annotations

import os
import re
import signal

from trivet.core.runfolder import RunFolder
from trivet.study.stop import FULL_DISK

SIGNAL_CODES = (128 + signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGINT)
"""Exit codes by which a process says that a signal ended it; 143 is also a run's own answer to SIGTERM."""

DISK_WORDS = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]", "database or disk is full")

MIN_FREE_BYTES = 65_536
"""With less free space than this, a run that ended without a word is taken for a victim of the full disk."""

LOG_TAIL_BYTES = 4_000


def is_full_disk_error(error: OSError) -> bool:
    """Whether an error says that the disk, or the user's quota, is full.

    Examples:
        >>> import errno
        >>> is_full_disk_error(OSError(errno.ENOSPC, "No space left on device"))
        True
    """
    return error.errno in FULL_DISK


def is_disk_full(folder: RunFolder) -> bool:
    """Whether a run that left no result ran out of disk: by its error, its last words, or what is free now."""
    error = folder.read_error() or {}
    text = f"{error.get('message', '')}\n{error.get('traceback', '')}"
    if any(word in text for word in DISK_WORDS):
        return True
    if not error and any(word in log_tail(folder) for word in DISK_WORDS):
        return True
    try:
        free = os.statvfs(folder.path)
    except OSError:
        return False
    return free.f_bavail * free.f_frsize < MIN_FREE_BYTES


def command_signal(folder: RunFolder) -> str:
    """Name of the signal that ended a user's own command, such as the kernel's when memory runs out; else empty."""
    error = folder.read_error() or {}
    match = re.match(r"the command was ended by (SIG\w+)", str(error.get("message", "")))
    return match.group(1) if match and error.get("type") == "CommandFailed" else ""


def log_tail(folder: RunFolder, limit: int = LOG_TAIL_BYTES) -> str:
    """The end of a run's log; empty when there is none."""
    try:
        with open(folder.log_path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def describe_exit(code: int, folder: RunFolder) -> str:
    """One line on how a process without a result ended.

    Examples:
        >>> from pathlib import Path
        >>> describe_exit(-9, RunFolder(Path("nowhere")))
        'killed by SIGKILL'
        >>> describe_exit(3, RunFolder(Path("nowhere")))
        'ended with exit code 3 and no result'
    """
    number = -code if code < 0 else code - 128 if code in SIGNAL_CODES else 0
    if number:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    lines = [line.strip() for line in log_tail(folder).splitlines() if line.strip()]
    last = f"; last line of its log: {lines[-1][:200]}" if lines else ""
    return f"ended with exit code {code} and no result{last}"
