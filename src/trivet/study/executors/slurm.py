"""Runs as jobs of a Slurm cluster, placed by submitit: one `sbatch` a run, or one a seed.

Slurm grants cores, GPUs and nodes, requeues what it preempts (the run writes its checkpoint first), and holds what does
not fit yet; trivet submits the command line of the run and reads its folder. What the batch job leaves in `.slurm/` of
the study folder is submitit's: batch file, logs, and the pickled call, which only the job itself reads back.

With `block: seed` the arms of a seed are one job and share the GPU that Slurm grants it. Without, they are shuffled
inside each seed, so that devices fall on all alike by chance. The device of each run is recorded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.core.io import FileLock, write_json
from trivet.core.runfolder import RunFolder
from trivet.study.executors.base import Exit, Job, WorkerError, run_words
from trivet.study.executors.placed import Report, read_report, report_path
from trivet.study.executors.slurm_info import largest_machine
from trivet.study.executors.slurm_job import STOPPED, SlurmCall, SlurmCalls
from trivet.study.executors.slurm_queue import SlurmQueue
from trivet.study.failures import is_full_disk_error
from trivet.study.resources import Machine

MINUTES = 24 * 60
"""Time limit of a run when the study sets none."""

LOOK_SECONDS = 0.5
"""Between two looks at the same job."""

LOG_SECONDS = 10.0
"""A shared file system has so long to show the log of a job that failed."""


@dataclass(slots=True)
class SlurmHandle:
    """One run, and the job that it is in."""

    job: Job
    requested: float
    submitted: Any = None
    """The job; None while it waits for the other arms of its seed."""
    ahead: Sequence[SlurmHandle] = ()
    """Runs that come before it in the job."""
    cancelled: bool = False
    looked: float = 0.0
    log_missed: float = 0.0
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
        self._waiting: dict[int, list[SlurmHandle]] = {}
        self._queue = SlurmQueue()

    @property
    def start_seconds(self) -> float:
        """Nothing is kept warm."""
        return 0.0

    def largest(self) -> Machine:
        """What `sinfo` says of the partition, or this machine in local mode."""
        if self._cluster != "slurm":
            from trivet.study.capacity import count_cores, find_gpus

            return Machine(name="this machine", cores=count_cores(), gpus=len(find_gpus(os.environ)))
        return largest_machine(str(self._options.get("partition", "")))

    def command(self, job: Job) -> list[str]:
        """See `Executor`."""
        return run_words(job)

    def start(self, job: Job) -> SlurmHandle:
        """See `Executor`; a refused submission is an `OSError`. With `block: seed` it is submitted by `wait`."""
        handle = SlurmHandle(job, time.time())
        if job.resources.block == "seed":
            self._waiting.setdefault(job.run.block, []).append(handle)
        else:
            self._submit([handle])
        return handle

    def _submit(self, handles: Sequence[SlurmHandle]) -> None:
        """Submit one job, which does these runs one after another."""
        from submitit.core.utils import FailedJobError

        job, count = handles[0].job, len(handles)
        asked, gpus, threads = job.resources, max(h.job.gpus for h in handles), max(h.job.threads for h in handles)
        extra: dict[str, Any] = {**self._options, **({"gres": f"gpu:{gpus}"} if gpus else {})}
        limits: dict[str, Any] = {"timeout_min": count * (asked.minutes or MINUTES), "cpus_per_task": threads}
        limits |= {"mem_gb": asked.memory_gb} if asked.memory_gb else {}
        self._submitit.update_parameters(
            name=f"trivet-{job.run.run_id if count == 1 else f'seed-{job.run.seed}'}",
            nodes=asked.nodes,
            tasks_per_node=1,
            slurm_additional_parameters=extra,
            local_gpus_per_node=gpus,
            **limits,
        )
        for handle in handles:
            report_path(handle.job.folder).unlink(missing_ok=True)
        try:
            submitted = self._submitit.submit(SlurmCalls([SlurmCall.of(handle.job) for handle in handles]))
        except FailedJobError as error:
            raise OSError(f"sbatch: {str(error).strip()}") from error
        for place, handle in enumerate(handles):
            handle.submitted, handle.ahead = submitted, handles[:place]

    def poll(self, handle: SlurmHandle) -> Exit | None:
        """See `Executor`; a job that ended without a report counts as killed, so it is submitted once more.

        Raises:
            WorkerError: The job's machine cannot run the study.
        """
        now = time.time()
        if handle.exit is None and handle.submitted is not None and now - handle.looked > LOOK_SECONDS:
            handle.looked = now
            # Slurm is slow to say that a job has ended; its report is there at once.
            reported = self._cluster != "local" and read_report(handle.job.folder) is not None
            if not (reported or handle.submitted.done() or self._gone(handle, now)):
                return None
            handle.exit = self._ended(handle, read_report(handle.job.folder))
        return handle.exit

    def _gone(self, handle: SlurmHandle, now: float) -> bool:
        """Whether Slurm no longer has a job of whose end it says nothing, as without accounting."""
        if self._cluster != "slurm" or handle.submitted.state != "UNKNOWN":
            return False
        self._queue.look(now)
        return self._queue.gone(str(handle.submitted.job_id), now)

    def _ended(self, handle: SlurmHandle, report: Report | None) -> Exit | None:
        """How a run ended whose report is there, or whose job has ended; None when it goes into another job."""
        waited = time.time() - handle.requested
        if report is None:
            said = _last_words(handle.submitted)
            if "No module named" in said or "No such file" in said:
                raise WorkerError(f"the job {handle.submitted.job_id} cannot run trivet: {said}")
            if self._left_no_log(handle):
                return None
            before = [read_report(other.job.folder) for other in handle.ahead]
            if any(other is None or other.code in STOPPED for other in before) and not handle.cancelled:
                handle.submitted, handle.ahead = None, ()  # its turn never came
                self._waiting.setdefault(handle.job.run.block, []).append(handle)
                return None
            return Exit(code=-signal.SIGKILL, waited=waited, ran=0.0)
        if report.refused:
            raise WorkerError(report.refused)
        return Exit(code=report.code, waited=max(0.0, report.started - handle.requested), ran=report.seconds)

    def _left_no_log(self, handle: SlurmHandle) -> bool:
        """Whether a job failed and its log is not seen (yet); Slurm fails a job whose log it cannot open (0:53)."""
        job, now = handle.submitted, time.time()
        if handle.cancelled or job.state != "FAILED" or job.stdout() is not None or job.stderr() is not None:
            return False
        handle.log_missed = handle.log_missed or now
        if now - handle.log_missed > LOG_SECONDS:
            shared = "put the study on storage that all machines share (--out)"
            raise WorkerError(f"the job {job.job_id} failed and left no log in {job.paths.folder}; {shared}")
        return True

    def cancel(self, handle: SlurmHandle, *, force: bool) -> None:
        """See `Executor`; `scancel` sends SIGTERM and, after Slurm's KillWait, SIGKILL."""
        if handle.exit is not None:
            return
        handle.cancelled = True
        if handle.submitted is None:
            self._waiting[handle.job.run.block].remove(handle)
            handle.exit = Exit(code=-signal.SIGTERM, waited=time.time() - handle.requested, ran=0.0)
            return
        if self._cluster == "slurm":
            handle.submitted.cancel(check=False)
            return
        lock = RunFolder(handle.job.folder).lock_path
        holder = FileLock.holder(lock) if FileLock.is_held(lock) else None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if holder:
                os.kill(holder, signal.SIGKILL if force else signal.SIGTERM)
        if force:
            handle.submitted.cancel(check=False)

    def wait(self, seconds: float) -> None:
        """See `Executor`; submits the seeds whose arms have come together since."""
        while self._waiting:
            handles = self._waiting.pop(next(iter(self._waiting)))
            try:
                if handles:
                    self._submit(handles)
            except OSError as error:
                if is_full_disk_error(error):
                    raise
                for handle in handles:
                    content = {"type": "OSError", "message": f"the run could not be started: {error}", "traceback": ""}
                    write_json(RunFolder(handle.job.folder).error_path, content)
                    handle.exit = Exit(code=1, waited=time.time() - handle.requested, ran=0.0)
        time.sleep(seconds)

    def close(self) -> None:
        """See `Executor`; nothing of it lives on."""


def _last_words(submitted: Any) -> str:
    lines = [line.strip() for line in (submitted.stderr() or "").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
