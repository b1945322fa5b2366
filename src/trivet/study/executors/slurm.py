"""Runs as jobs of a Slurm cluster, each placed by submitit: one `sbatch` a run.

Slurm grants cores, GPUs and nodes, requeues what it preempts (the run writes its checkpoint first), and holds what does
not fit yet; trivet submits the command line of the run and reads its folder. What the batch job leaves in `.slurm/` of
the study folder is submitit's: batch file, logs, and the pickled call, which only the job itself reads back.

Not covered: which GPU Slurm grants. Arms are shuffled inside each seed, so that devices fall on all alike by chance,
and the device of each run is recorded; they are not blocked as on one machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.core.io import FileLock
from trivet.core.runfolder import RunFolder
from trivet.study.executors.base import Exit, Job, WorkerError, run_words
from trivet.study.executors.placed import RENDEZVOUS_PORT, Placed, read_report, report_path, stop_running
from trivet.study.resources import Machine

MINUTES = 24 * 60
"""Time limit of a run when the study sets none."""

LOOK_SECONDS = 0.5
"""Between two looks at the same job."""

SINFO_SECONDS = 60
"""Longest wait for `sinfo`."""

ELSEWHERE = "run trivet on a login node of Slurm, or with `--executor local`"


class SlurmCall(Placed):
    """The command of a run inside its job; unlike elsewhere it leaves its report in the run folder."""

    def __call__(self) -> Any:
        """Run it; of several nodes the first one reports."""
        import submitit

        here = submitit.JobEnvironment()
        port = RENDEZVOUS_PORT + int(here.job_id.split("_")[0]) % 1000
        self.head = f"{here.hostnames[0]}:{port}"
        report = Placed.__call__(self)
        if here.global_rank == 0:
            report.write(self.folder)

    def checkpoint(self) -> Any:
        """Asked by submitit before the machine is taken away: what to do when the job is started again."""
        import submitit

        stop_running()
        return submitit.helpers.DelayedSubmission(SlurmCall(self.words, self.folder, self.variables, self.version))


@dataclass(slots=True)
class SlurmHandle:
    """One submitted job."""

    job: Job
    submitted: Any
    requested: float
    looked: float = 0.0
    exit: Exit | None = None


class SlurmExecutor:
    """Submits runs with `sbatch`; `cluster="local"` starts submitit's own processes on this machine instead."""

    def __init__(self, folder: Path, *, options: Mapping[str, str | int] | None = None, cluster: str = "slurm") -> None:
        """Args: folder: for submitit's files; options: of sbatch, such as partition; cluster: slurm or local.

        Raises:
            WorkerError: There is no Slurm here.
        """
        import submitit

        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise WorkerError("executor slurm: there is no sbatch on this machine; run trivet on a login node of Slurm")
        self._submitit = submitit.AutoExecutor(folder=folder.absolute(), cluster=cluster)
        self._options = {name.replace("_", "-"): value for name, value in (options or {}).items()}
        self._cluster = cluster

    @property
    def start_seconds(self) -> float:
        """Nothing is kept warm."""
        return 0.0

    def largest(self) -> Machine:
        """What `sinfo` says of the partition, or this machine in local mode."""
        if self._cluster != "slurm":
            from trivet.study.capacity import count_cores, find_gpus

            return Machine(name="this machine", cores=count_cores(), gpus=len(find_gpus(os.environ)))
        words = ["sinfo", "--noheader", "--format=%c %G"]
        words += [f"--partition={self._options['partition']}"] if "partition" in self._options else []
        try:
            listing = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SINFO_SECONDS)
        except subprocess.TimeoutExpired:
            raise WorkerError(f"executor slurm: {unanswered(f'sinfo gave no answer in {SINFO_SECONDS} s')}") from None
        except OSError as error:
            raise WorkerError(f"executor slurm: sinfo cannot be started ({error.strerror}); {ELSEWHERE}") from error
        if listing.returncode:
            raise WorkerError(f"executor slurm: {unanswered(listing.stderr)}")
        return largest_of(listing.stdout)

    def command(self, job: Job) -> list[str]:
        """See `Executor`."""
        return run_words(job)

    def start(self, job: Job) -> SlurmHandle:
        """See `Executor`; a refused submission is an `OSError`."""
        from submitit.core.utils import FailedJobError

        asked = job.resources
        extra: dict[str, Any] = {**self._options, **({"gres": f"gpu:{job.gpus}"} if job.gpus else {})}
        limits: dict[str, Any] = {"timeout_min": asked.minutes or MINUTES, "cpus_per_task": job.threads}
        limits |= {"mem_gb": asked.memory_gb} if asked.memory_gb else {}
        self._submitit.update_parameters(
            name=f"trivet-{job.run.run_id}",
            nodes=asked.nodes,
            tasks_per_node=1,
            slurm_additional_parameters=extra,
            local_gpus_per_node=job.gpus,
            **limits,
        )
        report_path(job.folder).unlink(missing_ok=True)
        try:
            submitted = self._submitit.submit(SlurmCall.of(job))
        except FailedJobError as error:
            raise OSError(f"sbatch: {str(error).strip()}") from error
        return SlurmHandle(job, submitted, time.time())

    def poll(self, handle: SlurmHandle) -> Exit | None:
        """See `Executor`; a job that ended without a report counts as killed, so it is submitted once more.

        Raises:
            WorkerError: The job's machine cannot run the study.
        """
        now = time.time()
        if handle.exit is None and now - handle.looked > LOOK_SECONDS:
            handle.looked = now
            # Slurm is slow to say that a job has ended; its report is there at once.
            if (self._cluster == "local" or read_report(handle.job.folder) is None) and not handle.submitted.done():
                return None
            report = read_report(handle.job.folder)
            if report is None:
                said = _last_words(handle.submitted)
                if "No module named" in said or "No such file" in said:
                    raise WorkerError(f"the job {handle.submitted.job_id} cannot run trivet: {said}")
                handle.exit = Exit(code=-signal.SIGKILL, waited=now - handle.requested, ran=0.0)
            elif report.refused:
                raise WorkerError(report.refused)
            else:
                waited = max(0.0, report.started - handle.requested)
                handle.exit = Exit(code=report.code, waited=waited, ran=report.seconds)
        return handle.exit

    def cancel(self, handle: SlurmHandle, *, force: bool) -> None:
        """See `Executor`; `scancel` sends SIGTERM and, after Slurm's KillWait, SIGKILL."""
        if handle.exit is not None:
            return
        if self._cluster == "slurm":
            handle.submitted.cancel(check=False)
            return
        holder = FileLock.holder(RunFolder(handle.job.folder).lock_path)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if holder:
                os.kill(holder, signal.SIGKILL if force else signal.SIGTERM)
        if force:
            handle.submitted.cancel(check=False)

    def wait(self, seconds: float) -> None:
        """See `Executor`."""
        time.sleep(seconds)

    def close(self) -> None:
        """See `Executor`; nothing of it lives on."""


def unanswered(said: str) -> str:
    r"""What the complaints of a Slurm client mean, in one line.

    Examples:
        >>> unanswered("sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: no configuration source\n")
        'the Slurm client here has no configuration; name its slurm.conf in SLURM_CONF, run trivet on a login node ...'
        >>> unanswered("slurm_load_partitions: Unable to contact slurm controller (connect failure)")
        'Slurm does not answer (Unable to contact slurm controller (connect failure)); is slurmctld running? ...'
    """
    if re.search(r"fetch_config|configuration source|slurm\.conf|resolve_ctls", said):
        return f"the Slurm client here has no configuration; name its slurm.conf in SLURM_CONF, {ELSEWHERE}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = re.sub(r"^(?:[\w-]+: )+", "", lines[-1])[:200] if lines else "it said nothing"
    return f"Slurm does not answer ({last}); is slurmctld running? {ELSEWHERE}"


def largest_of(listing: str) -> Machine:
    r"""The largest machine in lines of cores and generic resources, as `sinfo --format="%c %G"` prints them.

    Examples:
        >>> largest_of("64 gpu:a100:4(S:0-1)\n128+ (null)\n")
        Machine(name='the largest Slurm node', cores=128, gpus=4)
    """
    cores, gpus = 0, 0
    for line in listing.splitlines():
        count, _, resources = line.strip().partition(" ")
        cores = max(cores, int(digits) if (digits := count.rstrip("+")).isdecimal() else 0)
        for part in resources.split(","):
            words = part.partition("(")[0].split(":")
            if words[0] == "gpu" and words[-1].isdigit():
                gpus = max(gpus, int(words[-1]))
    return Machine(name="the largest Slurm node", cores=cores, gpus=gpus)


def _last_words(submitted: Any) -> str:
    lines = [line.strip() for line in (submitted.stderr() or "").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
