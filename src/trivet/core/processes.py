"""Processes that end with the one that started them.

Not covered: systems other than Linux, where a killed parent leaves its children.
"""

from __future__ import annotations

import signal
import sys


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask Linux to send this process a signal when its parent ends, so that nothing outlives what was killed.

    Call it in the child, between its start and its program (`preexec_fn` of `subprocess.Popen`).

    Args:
        number: The signal; SIGTERM lets a run write a checkpoint.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG
