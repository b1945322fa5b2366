"""The study folder: its specification, its run folders, its history, and the lock of whoever is running it.

    study.yaml       the specification, every default written out
    <run_id>/        one folder a run; see `trivet.core.runfolder`
    history.jsonl    one row an invocation of `run`, and one a change of the specification
    index.sqlite     a cache of finished runs; can be deleted
    .lock            held while a parent process runs the study

Run folders are the truth. Nothing here ever overwrites one that cannot be read or that belongs to something else.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trivet.core.config import canonical_json, dump_yaml, to_plain
from trivet.core.errors import ConfigError, Problem, RunFolderError
from trivet.core.io import FileLock, append_jsonl, read_jsonl, write_json, write_text
from trivet.core.runfolder import RunFolder
from trivet.study.failures import is_full_disk_error
from trivet.study.index import Index, cached_record
from trivet.study.plan import PlannedRun
from trivet.study.record import Record, read_record
from trivet.study.spec import StudySpec

RUN_ID = re.compile(r"[0-9a-f]{12}")


class StudyBusy(RunFolderError):
    """Another process is running the study, so nothing was started."""

    exit_code = 2


class Store:
    """Reads and writes one study folder.

    Examples:
        >>> Store(Path("studies/nothing")).exists
        False
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._texts: dict[str, str] = {}

    @property
    def spec_path(self) -> Path:
        """The specification."""
        return self.folder / "study.yaml"

    @property
    def history_path(self) -> Path:
        """Invocations and changes."""
        return self.folder / "history.jsonl"

    @property
    def exists(self) -> bool:
        """Whether a study that trivet has worked on lies here; a study.yaml alone may be the user's own file."""
        if not self.spec_path.is_file():
            return False
        marks = (self.folder / ".lock", self.history_path, self.index.path)
        return any(mark.exists() for mark in marks) or any(RUN_ID.fullmatch(p.name) for p in self.folder.iterdir())

    @property
    def index(self) -> Index:
        """The cache."""
        return Index(self.folder / "index.sqlite")

    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the lock that keeps two parents from running the same study; makes the folder.

        Raises:
            StudyBusy: Another process holds it.
            ConfigError: The folder cannot be made or written.
            OSError: The disk is full.
        """
        lock = FileLock(self.folder / ".lock", busy=f"{self.folder}: this study is being run by another process")
        try:
            lock.acquire()
        except RunFolderError as error:
            raise StudyBusy(f"{error}; nothing was started") from None
        except OSError as error:
            if is_full_disk_error(error):
                raise
            raise ConfigError([self._unusable(f"a folder that cannot be written ({error.strerror})")]) from None
        try:
            yield
        finally:
            lock.release()

    def _unusable(self, found: str) -> Problem:
        allowed = "a study folder, an empty one, or one that can be made"
        return Problem(str(self.folder), "", found, allowed, "choose another one with --out")

    def check_usable(self) -> None:
        """Refuse a folder that holds something else than a study.

        Raises:
            ConfigError: It is a file, holds other things and no study.yaml, or cannot be made.
        """
        try:
            self._check_can_be_made()
        except OSError as error:
            found = f"a folder that cannot be made or read ({error.strerror})"
            raise ConfigError([self._unusable(found)]) from None
        allowed = "a study folder, an empty one, or one that does not exist yet"
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError([Problem(str(self.folder), "", "a file", allowed)])
        if self.exists or not self.folder.exists():
            return
        others = sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))
        if others:
            shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
            found = f"a folder that is no study and not empty ({shown})"
            raise ConfigError([Problem(str(self.folder), "", found, allowed, "choose another one with --out")])

    def _check_can_be_made(self) -> None:
        if self.folder.exists():
            return
        above = next(parent for parent in self.folder.absolute().parents if parent.exists())
        if not above.is_dir():
            raise ConfigError([self._unusable(f"a folder that cannot be made ({above} is a file)")])
        if not os.access(above, os.W_OK | os.X_OK):
            raise ConfigError([self._unusable(f"a folder that cannot be made ({above} cannot be written)")])

    def save_spec(self, spec: StudySpec) -> list[str]:
        """Write study.yaml; a study that is already here is extended, and what changed is recorded.

        Call it with the lock held.

        Returns:
            One line for each change.

        Raises:
            ConfigError: Another study lies here, or its study.yaml cannot be read.
        """
        text = dump_yaml(spec)
        changes: list[str] = []
        if self.exists:
            old = StudySpec.from_yaml(self.spec_path)
            if old.name != spec.name:
                found = f"the study {old.name!r} in this folder"
                fix = f"choose another folder with --out, or go back to `name: {old.name}`"
                raise ConfigError([Problem(str(self.spec_path), "name", found, f"{spec.name!r}", fix)])
            changes = spec_changes(old, spec)
            if self.spec_path.read_text(encoding="utf-8") == text:
                return changes
        write_text(self.spec_path, text)
        if changes:
            self.append_history({"event": "changed", "changes": changes})
        return changes

    def load_spec(self) -> StudySpec:
        """The specification that lies in the folder.

        Raises:
            ConfigError: There is none, or it cannot be read.
        """
        if not self.spec_path.is_file():
            allowed = "a study folder (one with study.yaml)"
            found = "no folder" if not self.folder.exists() else "a folder without study.yaml"
            raise ConfigError([Problem(str(self.folder), "", found, allowed, "`trivet run` makes one")])
        return StudySpec.from_yaml(self.spec_path)

    def path(self, run: PlannedRun) -> Path:
        """Where a run's folder is."""
        return self.folder / run.run_id

    def prepare(self, run: PlannedRun) -> RunFolder:
        """Make a run's folder with its config.yaml, unless it is there."""
        folder = RunFolder(self.path(run))
        if not folder.config_path.exists():
            write_text(folder.config_path, self._config_text(run))
        return folder

    def record(self, run: PlannedRun) -> Record:
        """How a run stands, read from its folder."""
        return read_record(run, self.path(run), lambda: self._config_text(run))

    def records(self, runs: Iterable[PlannedRun]) -> list[Record]:
        """How every run stands; finished ones come from the cache where it still fits their folders."""
        rows = self.index.load()
        found: list[Record] = []
        for run in runs:
            row = rows.get(run.run_id)
            cached = cached_record(row, run, self.path(run)) if row is not None else None
            found.append(cached or self.record(run))
        return found

    def write_error(self, run: PlannedRun, kind: str, message: str) -> None:
        """Leave the reason of a failure in the run folder when the run itself could not."""
        write_json(RunFolder(self.path(run)).error_path, {"type": kind, "message": message, "traceback": ""})

    def unplanned(self, runs: Sequence[PlannedRun]) -> list[Path]:
        """Run folders that belong to no planned run, kept from an earlier form of the study."""
        planned = {run.run_id for run in runs}
        if not self.folder.is_dir():
            return []
        names = sorted(entry.name for entry in self.folder.iterdir())
        return [self.folder / name for name in names if RUN_ID.fullmatch(name) and name not in planned]

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add one row, with the time, to the history."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        append_jsonl(self.history_path, [{"time": now, **row}])

    def history(self) -> list[dict[str, Any]]:
        """All rows of the history, oldest first."""
        return read_jsonl(self.history_path)

    def _config_text(self, run: PlannedRun) -> str:
        """Text of config.yaml; the part that all seeds of an arm share is written once."""
        shared = self._texts.get(run.arm)
        if shared is None:
            shared = self._texts[run.arm] = dump_yaml({k: v for k, v in run.config.items() if k != "seed"})
        return f"{shared}seed: {run.seed}\n"


def spec_changes(old: StudySpec, new: StudySpec) -> list[str]:
    """What differs between two forms of a study, one line a difference.

    Examples:
        >>> from trivet.study.spec import MetricSpec
        >>> one = StudySpec(name="s", base={}, seeds=2, metric=MetricSpec(name="loss"))
        >>> two = StudySpec(name="s", base={}, seeds=4, metric=MetricSpec(name="loss"))
        >>> spec_changes(one, two)
        ['seeds: 2 → 4']
    """
    before, after = to_plain(old), to_plain(new)
    for content in (before, after):
        content.pop("executor", None)
        resources = content.pop("resources")
        content |= {name: resources[name] for name in _ROUNDING if name in resources}
    changes: list[str] = []
    _differences("", before, after, changes)
    return changes


_ROUNDING = ("devices", "nodes", "strategy")
"""Of `resources` what may move the last bits of a result; the rest changes nothing."""


def _differences(key: str, before: Any, after: Any, changes: list[str]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            inner = f"{key}.{name}" if key else str(name)
            if name not in before:
                changes.append(f"{inner}: added {canonical_json(after[name])}")
            elif name not in after:
                changes.append(f"{inner}: removed {canonical_json(before[name])}")
            else:
                _differences(inner, before[name], after[name], changes)
    elif canonical_json(before) != canonical_json(after):
        changes.append(f"{key}: {canonical_json(before)} → {canonical_json(after)}")
