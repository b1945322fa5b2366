"""Which jobs Slurm still has.

Slurm's accounting says how a job ended; a cluster without it (`sacct` fails) says nothing, and a job that was
cancelled by hand or lost with its node would be waited for without end. `squeue` knows at least whether it is there.
"""

from __future__ import annotations

import os
import subprocess

LOOK_SECONDS = 20.0
"""Between two calls of `squeue`, which answers for all jobs."""

GONE_SECONDS = 60.0
"""A job that has been missing for so long, and left no report, has ended."""

ANSWER_SECONDS = 60


class SlurmQueue:
    """What `squeue` lists of this user's jobs, asked now and then.

    Examples:
        >>> queue = SlurmQueue()
        >>> queue.note({"7"}, now=0.0)
        >>> queue.gone("7", now=100.0), queue.gone("8", now=1.0), queue.gone("8", now=70.0)
        (False, False, True)
    """

    def __init__(self) -> None:
        self._jobs: set[str] | None = None
        self._asked = float("-inf")
        self._missing_since: dict[str, float] = {}

    def look(self, now: float) -> None:
        """Ask again, if that is long ago; an answer that does not come changes nothing."""
        if now - self._asked < LOOK_SECONDS:
            return
        self._asked = now
        words = ["squeue", "--noheader", "--format=%A", f"--user={os.getuid()}"]
        try:
            listing = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self.note(None, now)
            return
        self.note(set(listing.stdout.split()) if listing.returncode == 0 else None, now)

    def note(self, jobs: set[str] | None, now: float) -> None:
        """Take over which jobs there are; None when that is unknown."""
        self._jobs = jobs
        if jobs is None:
            self._missing_since.clear()

    def gone(self, job: str, now: float) -> bool:
        """Whether a job has been missing for `GONE_SECONDS`."""
        if self._jobs is None or job in self._jobs:
            self._missing_since.pop(job, None)
            return False
        return now - self._missing_since.setdefault(job, now) >= GONE_SECONDS
