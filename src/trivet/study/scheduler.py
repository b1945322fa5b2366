"""Runs a plan: fills the slots in the planned order, and answers whatever happens to a run, a disk or the user.

A run killed by a signal is started once more (it resumes from its checkpoint); one that raised is not. A run
whose folder is locked by an orphan of a killed parent is waited for, never started a second time. A full disk or
a signal stops launching; what is on disk stays valid.

Not covered: time limits, priorities, runs on other machines (an executor places those).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from trivet.core.io import FileLock
from trivet.core.runfolder import RunFolder
from trivet.study.accounting import Harness
from trivet.study.capacity import CPU, Capacity
from trivet.study.executors.base import Executor, Exit, Job
from trivet.study.failures import SIGNAL_CODES, command_signal, describe_exit, is_disk_full, is_full_disk_error
from trivet.study.plan import PlannedRun
from trivet.study.progress import ActiveRun, Progress
from trivet.study.record import Record
from trivet.study.resources import ResourcesSpec
from trivet.study.stop import StopSignals
from trivet.study.store import Store

H = TypeVar("H")

GRACE_SECONDS = 30.0
"""How long a run has for its checkpoint before it is killed."""

ATTEMPTS = 2
"""Starts of a run in one invocation: once, and once more after a signal killed it."""

TICK_SECONDS = 0.5


@dataclass(slots=True)
class _Active(Generic[H]):
    run: PlannedRun
    job: Job
    handle: H
    started: float


@dataclass(slots=True)
class Outcome:
    """What an invocation came to."""

    records: dict[str, Record] = field(default_factory=dict)
    """Last record of each run that this invocation touched."""
    interrupted: int = 0
    """The signal that stopped it, or 0."""
    disk_full: str = ""
    """What was found when the disk was full, or empty."""
    harness: Harness | None = None
    """Where the time went."""


class Scheduler(Generic[H]):
    """One invocation over one plan; use it once."""

    def __init__(
        self,
        store: Store,
        executor: Executor[H],
        capacity: Capacity,
        progress: Progress,
        *,
        grace: float = GRACE_SECONDS,
        resources: ResourcesSpec | None = None,
        engine_gpus: bool = False,
        whole_blocks: bool = False,
    ) -> None:
        """What is run where.

        Args:
            store: The study folder.
            executor: Places the runs.
            capacity: How many go on at a time.
            progress: Told what happens.
            grace: Seconds for a checkpoint.
            resources: Of each run.
            engine_gpus: Whether an engine has GPUs.
            whole_blocks: Whether a seed whose first run fits is started whole, as an engine makes one job of it.
        """
        self._store = store
        self._resources = resources or ResourcesSpec()
        self._engine_gpus = engine_gpus
        self._whole_blocks = whole_blocks
        self._executor = executor
        self._capacity = capacity
        self._progress = progress
        self._grace = grace
        self._queue: deque[PlannedRun] = deque()
        self._active: list[_Active[H]] = []
        self._orphans: list[PlannedRun] = []
        self._attempts: Counter[str] = Counter()
        self._pools: set[str] = set()
        self._outcome = Outcome()
        self._terminated_at = 0.0
        self._killed = False
        self._sums: Counter[str] = Counter()
        self._ticked = 0.0

    def run(self, runs: Sequence[PlannedRun], records: Sequence[Record], signals: StopSignals) -> Outcome:
        """Bring every run that is not done to rest.

        Args:
            runs: The plan, in order.
            records: How each run stands now.
            signals: Asked again and again whether to stop.
        """
        begun = time.monotonic()
        for run, record in zip(runs, records, strict=True):
            if record.state in ("pending", "failed"):
                self._queue.append(run)
            elif record.state == "running":
                self._orphans.append(run)
            elif record.state == "unreadable":
                self._progress.message(f"not run: {record.reason}")
        if self._orphans:
            number = len(self._orphans)
            self._progress.message(f"{number} run(s) of an earlier invocation still going on; waiting for them")
        done = sum(record.is_done for record in records)
        self._progress.begin(total=len(runs), done=done, slots=self._capacity.parallel(runs))
        self._pools = {self._capacity.pool(run) for run in runs}
        try:
            self._loop(signals)
        except BaseException:
            self._stop_all(force=False)  # a fault of ours must not leave runs behind that nobody watches
            raise
        self._outcome.harness = self._account(runs, time.monotonic() - begun)
        return self._outcome

    def _loop(self, signals: StopSignals) -> None:
        while self._queue or self._active or self._orphans:
            self._obey(signals)
            if self._stopping:
                self._queue.clear()
            self._launch()
            if self._active or self._orphans:
                self._executor.wait(0.05)
                self._collect()
                self._tick()

    def _obey(self, signals: StopSignals) -> None:
        """Stop launching at the first signal, kill at the second or when the grace is over."""
        if not signals.count:
            return
        if not self._outcome.interrupted:
            self._outcome.interrupted = signals.number
            self._terminated_at = time.monotonic()
            name = signal.Signals(signals.number).name
            self._progress.message(f"{name}: stopping, runs write their checkpoints; once more kills them")
            self._stop_all(force=False)
        late = time.monotonic() - self._terminated_at > self._grace
        if (signals.count > 1 or late) and not self._killed:
            self._killed = True
            self._stop_all(force=True)

    def _stop_all(self, *, force: bool) -> None:
        for active in self._active:
            self._executor.cancel(active.handle, force=force)
        for run in self._orphans:
            holder = FileLock.holder(RunFolder(self._store.path(run)).lock_path)
            if holder is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(holder, signal.SIGKILL if force else signal.SIGTERM)

    def _launch(self) -> None:
        """Start what fits, in order; a pool whose next run does not fit waits for it."""
        used: Counter[str] = Counter()
        for run in [*(active.run for active in self._active), *self._orphans]:
            used[self._capacity.pool(run)] += self._capacity.weight(run)
        limit = self._capacity.slots or len(self._queue) + len(self._active)
        blocked: set[str] = set()
        waiting: deque[PlannedRun] = deque()
        begun: set[int] = set()
        while self._queue and not self._outcome.disk_full:
            run = self._queue.popleft()
            pool, weight = self._capacity.pool(run), self._capacity.weight(run)
            busy = len(self._active) + len(self._orphans) >= limit
            is_full = busy or pool in blocked or used[pool] + weight > self._capacity.size(pool)
            if is_full and not (self._whole_blocks and run.block in begun):
                blocked.add(pool)
                waiting.append(run)
                if busy or blocked >= self._pools:
                    break
            elif self._start(run):
                used[pool] += weight
                begun.add(run.block)
        self._queue.extendleft(reversed(waiting))

    def _start(self, run: PlannedRun) -> bool:
        """Prepare the folder and start the process; False when that did not work."""
        try:
            self._store.prepare(run)
            job = make_job(self._store, self._capacity, run, self._resources, engine_gpus=self._engine_gpus)
            handle = self._executor.start(job)
        except OSError as error:
            if is_full_disk_error(error):
                self._stop_for_disk(str(error))
            else:
                self._fail(run, type(error).__name__, f"the run could not be started: {error}")
            return False
        self._attempts[run.run_id] += 1
        self._active.append(_Active(run=run, job=job, handle=handle, started=time.monotonic()))
        self._progress.started(run, self._attempts[run.run_id])
        return True

    def _collect(self) -> None:
        for active in list(self._active):
            ended = self._executor.poll(active.handle)
            if ended is not None:
                self._active.remove(active)
                self._settle(active, ended)
        for run in list(self._orphans):
            record = self._store.record(run)
            if record.state != "running":
                self._orphans.remove(run)
                if record.is_done or record.state == "unreadable" or self._stopping:
                    self._rest(record)
                elif self._attempts[run.run_id] < ATTEMPTS:
                    self._queue.appendleft(run)
                else:
                    self._fail(run, "Killed", f"its process ended without a result, {ATTEMPTS} times")

    @property
    def _stopping(self) -> bool:
        return bool(self._outcome.interrupted or self._outcome.disk_full)

    def _settle(self, active: _Active[H], ended: Exit) -> None:
        """Decide what the end of a process means for its run."""
        run, record = active.run, self._store.record(active.run)
        self._count(run, record, ended)
        if record.is_done or record.state == "unreadable":
            self._rest(record)
        elif record.state == "running":
            self._orphans.append(run)  # an orphan was quicker, or the group is still dying
        elif self._outcome.interrupted:
            self._rest(record)
        elif is_disk_full(RunFolder(record.folder)):
            self._stop_for_disk(record.reason or "a run found no space left")
            self._rest(record)
        elif ended.code < 0 or ended.code in SIGNAL_CODES:
            self._killed_by_signal(run, describe_exit(ended.code, RunFolder(record.folder)))
        elif name := command_signal(RunFolder(record.folder)):
            self._killed_by_signal(run, f"its command was killed by {name}")
        elif record.state == "failed":
            self._rest(record)
        else:
            self._fail(run, "NoResult", describe_exit(ended.code, RunFolder(record.folder)))

    def _killed_by_signal(self, run: PlannedRun, what: str) -> None:
        if self._attempts[run.run_id] < ATTEMPTS:
            self._progress.message(f"{run.run_id} ({run.arm}, seed {run.seed}): {what}; started once more")
            self._queue.appendleft(run)
        else:
            self._fail(run, "Killed", f"{what}, {ATTEMPTS} times; out of memory?")

    def _fail(self, run: PlannedRun, kind: str, message: str) -> None:
        try:
            self._store.write_error(run, kind, message)
        except OSError as error:
            if is_full_disk_error(error):
                self._stop_for_disk(str(error))
        self._rest(self._store.record(run))

    def _stop_for_disk(self, what: str) -> None:
        if not self._outcome.disk_full:
            self._outcome.disk_full = what
            self._progress.message(f"the disk is full ({what}); no more runs are started")

    def _rest(self, record: Record) -> None:
        self._outcome.records[record.run_id] = record
        self._progress.ended(record)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._progress.tick(
                [
                    ActiveRun(run=item.run, folder=item.job.folder, seconds=now - item.started, gpu=item.job.gpu)
                    for item in self._active
                ]
            )

    def _count(self, run: PlannedRun, record: Record, ended: Exit) -> None:
        weight = self._capacity.weight(run)
        trained = min(record.train_seconds, ended.ran) if record.is_done else 0.0
        figures: dict[str, Any] = {"runs": 1, "train": weight * trained}
        figures |= {"waiting": weight * ended.waited, "overhead": weight * (ended.ran - trained)}
        self._sums.update(figures)

    def _account(self, runs: Sequence[PlannedRun], wall: float) -> Harness:
        return Harness(
            runs=self._sums["runs"],
            slots=self._capacity.parallel(runs),
            wall=wall,
            slot_seconds=self._capacity.total(runs) * wall,
            train=float(self._sums["train"]),
            waiting=float(self._sums["waiting"]),
            overhead=float(self._sums["overhead"]),
        )


def make_job(
    store: Store,
    capacity: Capacity,
    run: PlannedRun,
    resources: ResourcesSpec | None = None,
    *,
    engine_gpus: bool = False,
) -> Job:
    """The place of a run: its folder, its variables, its GPU or how many an engine shall give it."""
    from trivet.core.config import build
    from trivet.core.environment import EnvironmentConfig

    pool, asked = capacity.pool(run), resources or ResourcesSpec()
    environment = build(EnvironmentConfig, run.config["environment"])
    split = {"TRIVET_STRATEGY": asked.strategy} if asked.processes > 1 else {}
    wants = environment.device == "cuda" or (environment.device == "auto" and engine_gpus)
    return Job(
        run=run,
        folder=store.path(run).absolute(),
        variables={**environment.variables(), **split},
        gpu="" if pool == CPU else pool,
        gpus=asked.devices if wants else 0,
        resources=asked,
    )
