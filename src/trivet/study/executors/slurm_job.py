"""What runs inside a job of Slurm: one run, or the arms of a seed one after another, each in a process of its own.

submitit pickles these calls into the study folder and the job reads them back. A job that is started again after
preemption goes on with the run that was stopped; those that have ended are not run again.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trivet.core.runfolder import RunFolder
from trivet.study.executors.placed import RENDEZVOUS_PORT, Placed, Report, read_report, stop_running

STOPPED = tuple(code for number in (signal.SIGTERM, signal.SIGINT) for code in (128 + number, -number))
"""Codes of a run that was asked to end; what comes after it in the job is not begun."""


class SlurmCall(Placed):
    """The command of a run inside its job; unlike elsewhere it leaves its report in the run folder."""

    def __call__(self) -> Report:
        """Run it; of several nodes the first one reports."""
        import submitit

        here = submitit.JobEnvironment()
        port = RENDEZVOUS_PORT + int(here.job_id.split("_")[0]) % 1000
        self.head = f"{here.hostnames[0]}:{port}"
        report = Placed.__call__(self)
        if here.global_rank == 0:
            report.write(self.folder)
        return report


@dataclass(slots=True)
class SlurmCalls:
    """The runs of one job, in order, on what the job was granted."""

    calls: Sequence[SlurmCall]

    def __call__(self) -> None:
        """Do those that have not ended; the first one that is asked to stop is the last."""
        for call in self.calls:
            folder = Path(call.folder)
            has_ended = RunFolder(folder).result_path.exists() or read_report(folder) is not None
            if not has_ended and call().code in STOPPED:
                return

    def checkpoint(self) -> Any:
        """Asked by submitit before the machine is taken away: what to do when the job is started again."""
        import submitit

        stop_running()
        calls = [replace(call, head="") for call in self.calls]
        return submitit.helpers.DelayedSubmission(SlurmCalls(calls))
