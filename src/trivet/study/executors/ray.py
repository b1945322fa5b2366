"""Runs as tasks of a Ray cluster: Ray finds cores and GPUs and starts a task again when its node is lost.

A task calls the command line of its run in a fresh process, so nothing of one run is left to the next. With GPUs, all
arms of a seed are bound to one bundle of a placement group, that is to the same GPUs, one after another: a GPU is never
confounded with an arm.

Workers that do not see the study folder get each run as files and send them back, see `copied.py`. Not covered: runs of
several nodes; the cluster is started by whoever owns it (`ray start`), or a small one here.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.study.executors.base import Exit, Job, WorkerError, run_words
from trivet.study.executors.copied import Brought, Copied
from trivet.study.executors.placed import Placed, Report
from trivet.study.resources import Machine

NODE_LOSSES = 3
"""How often Ray starts a run again whose node was lost or whose worker was killed."""

KNOCK_SECONDS = 5.0
"""How long the head of a cluster has to answer."""


def _call(placed: Placed | Copied) -> Report | Brought:
    return placed()


def _knock(address: str) -> None:
    """Raise `OSError` when nobody listens at `host:port`; Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()


def _last_cluster() -> str:
    """Where Ray noted its last cluster on this machine, which it takes when nobody names another; empty: none."""
    try:
        return (
            Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp", "ray", "ray_current_cluster")
            .read_text()
            .strip()
        )
    except OSError:
        return ""


@dataclass(slots=True)
class RayHandle:
    """One task."""

    job: Job
    task: Any
    requested: float
    cancelled: bool = False
    exit: Exit | None = None


class RayExecutor:
    """Places runs on a Ray cluster: the one at `address`, the one `ray` finds, or a new one on this machine."""

    def __init__(self, *, address: str = "", working_dir: str = "") -> None:
        """Args: address: of the cluster; working_dir: a folder that Ray copies to the workers, where commands then run.

        Raises:
            WorkerError: There is no cluster at the address, or no such folder.
        """
        import ray

        self._ray: Any = ray
        self._ours = not ray.is_initialized()
        self._working_dir = working_dir
        if working_dir and not Path(working_dir).is_dir():
            raise WorkerError(f"executor ray: `working_dir: {working_dir}` is no folder here")
        options: dict[str, Any] = {"runtime_env": {"working_dir": working_dir}} if working_dir else {}
        options |= {"address": address} if address else {"include_dashboard": False}
        asked = address or os.environ.get("RAY_ADDRESS", "") or _last_cluster()
        if self._ours:
            try:
                _knock(asked)
                ray.init(log_to_driver=False, **options)
            except (OSError, ImportError, RuntimeError, ValueError) as error:
                hint = "`ray stop` forgets one that is gone; where it asks for a token, set RAY_AUTH_MODE=token"
                raise WorkerError(f"executor ray: no cluster at {asked or 'any address'}: {error}; {hint}") from error
        self._open: dict[Any, RayHandle] = {}
        self._bundles: dict[int, Any] = {}

    @property
    def start_seconds(self) -> float:
        """Nothing is kept warm."""
        return 0.0

    def largest(self) -> Machine:
        """The most cores and GPUs of a living node."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cores, gpus = (max((int(node.get(name, 0)) for node in nodes), default=0) for name in ("CPU", "GPU"))
        return Machine(name="the largest Ray node", cores=cores, gpus=gpus)

    def command(self, job: Job) -> list[str]:
        """See `Executor`."""
        return run_words(job)

    def start(self, job: Job) -> RayHandle:
        """See `Executor`."""
        options: dict[str, Any] = {"num_cpus": job.threads, "num_gpus": job.gpus, "max_retries": NODE_LOSSES}
        options |= {"memory": job.resources.memory_gb * 10**9} if job.resources.memory_gb else {}
        if job.gpus:
            options["scheduling_strategy"] = self._bundle(job)
        placed = Placed.of(job)
        placed.start = "" if self._working_dir else placed.start
        sent = Copied.of(job, placed) if job.resources.storage == "copied" else placed
        task = self._ray.remote(_call).options(name=job.run.run_id, **options).remote(sent)
        handle = self._open[task] = RayHandle(job, task, time.time())
        return handle

    def _bundle(self, job: Job) -> Any:
        """The GPUs that belong to the seed of a run."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if job.run.block not in self._bundles:
            used = {handle.job.run.block for handle in self._open.values()}
            for block in self._bundles.keys() - used:
                self._ray.util.remove_placement_group(self._bundles.pop(block))
            memory = {"memory": job.resources.memory_gb * 10**9} if job.resources.memory_gb else {}
            bundle = {"CPU": job.threads, "GPU": job.gpus, **memory}
            self._bundles[job.run.block] = placement_group([bundle])
        return PlacementGroupSchedulingStrategy(self._bundles[job.run.block])

    def poll(self, handle: RayHandle) -> Exit | None:
        """See `Executor`; a task that Ray gave up counts as killed.

        Raises:
            WorkerError: The worker cannot run the study.
        """
        if handle.exit is None and self._ray.wait([handle.task], timeout=0)[0]:
            self._open.pop(handle.task, None)
            handle.exit = self._ended(handle)
        return handle.exit

    def _ended(self, handle: RayHandle) -> Exit:
        try:
            report = self._ray.get(handle.task)
        except self._ray.exceptions.RayError as error:
            if "No module named" in str(error):
                last = [line for line in str(error).splitlines() if "No module named" in line][-1]
                raise WorkerError(f"a Ray worker cannot run trivet: {last.strip()}; install it there") from error
            return Exit(code=-signal.SIGKILL, waited=time.time() - handle.requested, ran=0.0)
        if isinstance(report, Brought):
            report.unpack(handle.job.folder)
            report = report.report
        if report.refused:
            raise WorkerError(report.refused)
        return Exit(code=report.code, waited=max(0.0, report.started - handle.requested), ran=report.seconds)

    def cancel(self, handle: RayHandle, *, force: bool) -> None:
        """See `Executor`."""
        if handle.exit is None:
            self._ray.cancel(handle.task, force=force)

    def wait(self, seconds: float) -> None:
        """See `Executor`."""
        if self._open:
            self._ray.wait(list(self._open), timeout=seconds)
        else:
            time.sleep(seconds)

    def close(self) -> None:
        """See `Executor`; a cluster that was here before stays."""
        for bundle in self._bundles.values():
            self._ray.util.remove_placement_group(bundle)
        self._bundles.clear()
        if self._ours:
            self._ray.shutdown()
