"""A study from file to results: check, plan, run or resume, read.

Any number of invocations may work on the same folder, one at a time: a run with a result is never run again, one
without is started or resumed. See `docs/study.md` for what happens on each kind of failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trivet.core.errors import ConfigError
from trivet.core.yamlfile import load_yaml
from trivet.study.arms import check
from trivet.study.capacity import Capacity
from trivet.study.executors.base import Engine, Executor, shell_line
from trivet.study.executors.local import LocalExecutor
from trivet.study.executors.make import capacity_of, machine_of, make_executor
from trivet.study.failures import is_full_disk_error
from trivet.study.lookbook import LookBook
from trivet.study.plan import PlannedRun, plan
from trivet.study.progress import LogProgress, Progress
from trivet.study.record import Record
from trivet.study.resources import machine_problems, resource_problems
from trivet.study.results import Results, folder_notes
from trivet.study.scheduler import GRACE_SECONDS, Outcome, Scheduler, make_job
from trivet.study.spec import StudySpec
from trivet.study.stop import StopSignals, StudyInterrupted, StudyStopped
from trivet.study.store import Store

LOOKS = 4
"""Looks of a new plan."""


class Study:
    r"""A specification and the folder its runs live in.

    Examples:
        >>> from trivet.study import MetricSpec
        >>> task = {"command": "python -c 'print({seed})'", "metrics": {"loss": r"(\S+)"}}
        >>> study = Study(StudySpec(name="tiny", base={"task": task}, seeds=2, metric=MetricSpec(name="loss")))
        >>> study.folder.as_posix(), len(study.plan())
        ('studies/tiny', 2)
    """

    def __init__(self, spec: StudySpec, folder: Path | str | None = None, *, file: str = "") -> None:
        """Args: spec: what to run; folder: `studies/<name>` when left out; file: named in errors."""
        self.spec = spec
        self.folder = Path(folder) if folder is not None else Path("studies") / spec.name
        self.store = Store(self.folder)
        self._file = file
        self._runs: list[PlannedRun] | None = None

    @classmethod
    def from_yaml(cls, path: Path | str, overrides: Iterable[str] = (), folder: Path | str | None = None) -> Study:
        """Read a study file and check all of it; nothing is started or written.

        Args:
            path: The file.
            overrides: `dotted.key=value`; see `StudySpec.from_yaml`.
            folder: `studies/<name>` when left out; the file's own folder when that is a study folder.

        Raises:
            ConfigError: With every problem of the file.
            MissingDataError: Data are not on this machine.
            MissingExtraError: An optional package is needed.
        """
        path = Path(path)
        if path.is_dir() and (path / "study.yaml").is_file():
            path = path / "study.yaml"
        spec = StudySpec.from_mapping(load_yaml(path), file=str(path), overrides=overrides)
        study = cls(spec, folder if folder is not None else _own_folder(path, spec), file=str(path))
        study.check()
        return study

    @classmethod
    def load(cls, folder: Path | str) -> Study:
        """The study that lies in a folder; data and packages are not asked for until it is run."""
        return cls(Store(Path(folder)).load_spec(), folder, file=str(Path(folder) / "study.yaml"))

    def check(self) -> None:
        """Refuse what cannot run: unknown names, schedules that do not fit, missing data, an unusable folder.

        Raises:
            ConfigError: With every problem found.
            MissingDataError: Data are not on this machine.
            MissingExtraError: An optional package is needed.
        """
        arms = self.spec.arms(file=self._file)
        problems = check(arms, self.spec.base, self.spec.factors, file=self._file)
        if problems:
            raise ConfigError(problems)
        self.store.check_usable()

    def plan(self) -> list[PlannedRun]:
        """Every run, in the order in which they are started."""
        if self._runs is None:
            self._runs = plan(self.spec)
        return self._runs

    def status(self) -> Results:
        """How every run stands; reads only."""
        runs = self.plan()
        notes, looks = folder_notes(self.store, runs), LookBook.load(self.folder)
        return Results(self.spec, self.store.records(runs), self.folder, notes=notes, looks=looks)

    def commands(self) -> list[str]:
        """One shell line for each run that is not done, its folder made ready: for xargs, Slurm or another machine.

        Raises:
            ConfigError: See `check`.
            StudyBusy: The study is being run (a `RunFolderError`).
        """
        self.check()
        executor, capacity = LocalExecutor(), Capacity(cores=1, slots=1, gpus=())
        with self.store.lock():
            self.store.save_spec(self.spec)
            lines: list[str] = []
            for run in self.plan():
                if self.store.record(run).state in ("pending", "failed"):
                    self.store.prepare(run)
                    job = make_job(self.store, capacity, run, self.spec.resources)
                    lines.append(shell_line(executor.command(job), job.variables))
        return lines

    def run(
        self,
        executor: str | Executor[Any] = "",
        slots: int = 0,
        progress: Progress | None = None,
        *,
        grace: float = GRACE_SECONDS,
        until_decided: bool = False,
        looks: int = LOOKS,
    ) -> Results:
        """Run every run that is not done; returns when all have come to rest.

        With `until_decided`, seeds are run in planned looks and the study stops when every comparison with the first
        arm is decided; the error of each decision holds over all looks (see `trivet.stats.look`). The plan is made
        once and kept in `looks.json`.

        Args:
            executor: `local`, `slurm`, `ray`, or an object that places runs; empty: as the study says.
            slots: Runs at the same time; 0: as the study says, else as many as fit.
            progress: Told what happens; log lines when left out.
            grace: Seconds a run has for its checkpoint when the study is stopped.
            until_decided: Look at planned numbers of seeds and stop as soon as the data decide.
            looks: With `until_decided`: how many looks a new plan has, at least 1.

        Raises:
            ConfigError: Something cannot run, or asks for more than there is; nothing was started.
            MissingExtraError: The executor's package is not installed; nothing was started.
            WorkerError: A machine of the executor's cannot run the study; what was started is stopped.
            MissingDataError: Data are not on this machine; nothing was started.
            StudyBusy: Another process is running this study (a `RunFolderError`); nothing was started.
            StudyInterrupted: A signal stopped it in order (a `KeyboardInterrupt`); the same call resumes.
            StudyStopped: The disk is full; the same call resumes when there is room.
            RunFolderError: A look could not be taken because too many runs are missing; the same call goes on.
        """
        self.check()
        book = self._book(looks) if until_decided else None
        if slots < 0:
            raise ValueError(f"`slots={slots}` must be ≥ 0; 0 lets trivet decide")
        place = self._executor(executor)
        capacity = capacity_of(place, slots or self.spec.resources.slots, self.spec.resources, len(self.plan()))
        shown = progress if progress is not None else LogProgress()
        outcome = Outcome()
        try:
            with self.store.lock(), StopSignals() as signals:
                try:
                    outcome = self._run_locked(place, capacity, shown, grace, signals, book)
                finally:
                    shown.end()
                    place.close()
        except OSError as error:
            if not is_full_disk_error(error):
                raise
            outcome.disk_full = str(error)
        return self._conclude(outcome)

    def _executor(self, executor: str | Executor[Any]) -> Executor[Any]:
        """The executor, after a look at whether its largest machine can hold a run."""
        asked, name = self.spec.resources, executor or self.spec.executor
        configs = [arm.config for arm in self.spec.arms(file=self._file)]
        kind = name if isinstance(name, str) else type(name).__name__.removesuffix("Executor").lower()
        problems = resource_problems(asked, kind, configs, self._file)
        if problems:
            raise ConfigError(problems)
        place = make_executor(name, asked, self.folder)
        problems = machine_problems(asked, machine_of(place), configs, strict=isinstance(place, Engine))
        if problems:
            place.close()
            raise ConfigError(problems)
        return place

    def _book(self, looks: int) -> LookBook:
        """The plan of looks in the folder, or a new one."""
        arms = list(dict.fromkeys(arm.name for arm in self.spec.arms(file=self._file)))
        book = LookBook.load(self.folder)
        if book is not None:
            book.check(self.spec, arms)
            return book
        done = sum(record.is_done for record in self.store.records(self.plan()))
        return LookBook.make(self.folder, self.spec, arms, looks, done)

    def _run_locked(
        self,
        place: Executor[Any],
        capacity: Capacity,
        shown: Progress,
        grace: float,
        signals: StopSignals,
        book: LookBook | None,
    ) -> Outcome:
        for change in self.store.save_spec(self.spec):
            shown.message(f"the study is changed: {change}")
        runs = self.plan()
        for note in folder_notes(self.store, runs):
            if not note.startswith("the study was changed"):
                shown.message(note)

        def run_all(part: list[PlannedRun]) -> Outcome:
            records = self.store.records(part)
            asked = self.spec.resources
            gpus = place.largest().gpus if isinstance(place, Engine) else 0
            scheduler = Scheduler(
                self.store,
                place,
                capacity,
                shown,
                grace=grace,
                resources=asked,
                engine_gpus=gpus != 0,
                whole_blocks=isinstance(place, Engine) and asked.block == "seed",
            )
            outcome = scheduler.run(part, records, signals)
            self._remember(outcome, records)
            return outcome

        if book is None:
            return run_all(runs)
        outcome = Outcome()
        book.save()
        while not book.decided:
            outcome = run_all([run for run in runs if run.block < book.next_pairs])
            if outcome.interrupted or outcome.disk_full:
                break
            results = self.status()
            values = {arm: results.values(self.spec.metric.name, arm) for arm in results.arms}
            diverged = {
                arm: [r.seed for r in results.records if r.arm == arm and r.state == "diverged"] for arm in values
            }
            for line in book.take(values, diverged):
                shown.message(line)
        return outcome

    def _remember(self, outcome: Outcome, before: Sequence[Record]) -> None:
        """Write history and cache; on a full disk they are done without."""
        self.store.index.save([outcome.records.get(record.run_id, record) for record in before])
        stopped = "disk full" if outcome.disk_full else f"signal {outcome.interrupted}" if outcome.interrupted else ""
        harness = outcome.harness.to_dict() if outcome.harness else {}
        try:
            self.store.append_history({"event": "run", "stopped": stopped, "harness": harness})
        except OSError as error:
            if not is_full_disk_error(error):
                raise

    def _conclude(self, outcome: Outcome) -> Results:
        results = self.status()
        done = sum(record.is_done for record in results.records)
        how_far = f"{done} of {len(results.records)} runs are done and kept; the same command goes on from here"
        if outcome.disk_full:
            place = self.folder.absolute()
            text = f"stopped: the disk that holds {place} is full ({outcome.disk_full}). {how_far} once there is room"
            raise StudyStopped(text, results)
        if outcome.interrupted:
            raise StudyInterrupted(f"stopped by a signal; {how_far}", outcome.interrupted, results)
        return results


def _own_folder(path: Path, spec: StudySpec) -> Path | None:
    """The folder of a study.yaml that trivet wrote, so that running it again resumes in place."""
    store = Store(path.parent)
    return store.folder if path == store.spec_path and store.exists else None
