"""Runs on machines that do not see the study folder: each is carried there as files, and what it left is carried back.

On the worker the run folder is made in a scratch folder, with study.yaml beside it, and removed at the end. What it
holds then comes back, whichever way the attempt ended: finished, failed, or stopped with a checkpoint. Each file
replaces the old one atomically, `result.json` last, so a run is done exactly when all of it is there.

A node that is lost takes with it what has not come back: the run starts again from what it was sent with, that is from
its beginning, or from the checkpoint that an earlier attempt brought back.

Not covered: looking at a run while it goes on (its log and metrics come at its end); links; data sets, which the worker
must have; scratch folders of workers that were killed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trivet.core.io import write_bytes
from trivet.core.runfolder import RunFolder
from trivet.study.executors.base import Job
from trivet.study.executors.placed import Placed, Report

LIMIT_BYTES = 2**30
"""Most that comes back of one run; what it logged first, then its checkpoint, then whatever else it wrote."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What a worker sends back of one attempt."""

    report: Report
    files: Mapping[str, bytes] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    """Files that were too large together, each with its size."""

    def unpack(self, folder: Path) -> None:
        """Put the files into the run folder.

        Raises:
            OSError: The disk is full; the run is not done then, and nothing that was there is lost.
        """
        if self.report.refused:
            return
        run = RunFolder(folder)
        result = run.result_path.name
        if run.error_path.name not in self.files:
            run.error_path.unlink(missing_ok=True)
        for name in sorted(self.files.keys() - {result}):
            write_bytes(folder / name, self.files[name])
        if self.left:
            with open(run.log_path, "a", encoding="utf-8") as log:
                log.write(f"not copied back, more than {LIMIT_BYTES / 1e9:.1f} GB together: {', '.join(self.left)}\n")
        for stale in run.checkpoint_path.glob("step-*"):
            if f"{run.checkpoint_path.name}/{stale.name}/manifest.json" not in self.files:
                shutil.rmtree(stale, ignore_errors=True)
        if result in self.files:
            write_bytes(run.result_path, self.files[result])


@dataclass(slots=True)
class Copied:
    """The command line of a run with the files that it needs, to be called on a worker.

    Examples:
        >>> run = Copied(Placed(["python", "-c", "print(1)"], "/gone/ab", {}, "0"), {"config.yaml": b""}, b"")
        >>> "has trivet" in run().report.refused
        True
    """

    placed: Placed
    files: Mapping[str, bytes]
    study: bytes

    @classmethod
    def of(cls, job: Job, placed: Placed | None = None) -> Copied:
        """What carries a job, or `placed`, which is how it runs there.

        Raises:
            OSError: The run folder cannot be read.
        """
        study = job.folder.parent / "study.yaml"
        files, _ = pack(job.folder)
        return cls(placed or Placed.of(job), files, study.read_bytes() if study.is_file() else b"")

    def __call__(self) -> Brought:
        """Run the command in a scratch folder; stopping it brings back its checkpoint."""
        with tempfile.TemporaryDirectory(prefix="trivet-run-", ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch) / Path(self.placed.folder).name
            for name, content in self.files.items():
                write_bytes(folder / name, content)
            if self.study:
                write_bytes(Path(scratch) / "study.yaml", self.study)
            words = [str(folder) if word == self.placed.folder else word for word in self.placed.words]
            report = replace(self.placed, words=words, folder=str(folder))()
            return Brought(report, *(pack(folder) if not report.refused else ({}, ())))


def pack(folder: Path, limit: int = LIMIT_BYTES) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files of a run folder by their path in it, and those left out, as together they would exceed the limit.

    Args:
        folder: A run folder; what begins with a dot, and links, stay where they are.
        limit: In bytes.
    """
    sizes: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in name.split("/")):
            sizes[name] = path.stat().st_size
    kept = choose(sizes, limit)
    left = tuple(f"{name} ({sizes[name] / 1e6:,.1f} MB)" for name in sizes if name not in kept)
    return {name: (folder / name).read_bytes() for name in kept}, left


def choose(sizes: Mapping[str, int], limit: int) -> list[str]:
    """Which files come back: the run's own small ones, then the newest checkpoint that fits, whole, then the others.

    Args:
        sizes: File, as its path in the run folder → bytes.
        limit: Most bytes together.

    Examples:
        >>> choose({"log.txt": 2, "mine.bin": 9, "checkpoint/step-1/a": 3, "checkpoint/step-1/b": 3}, 9)
        ['log.txt', 'checkpoint/step-1/a', 'checkpoint/step-1/b']
    """
    run = RunFolder(Path())
    own = [run.result_path, run.config_path, run.error_path, run.environment_path, run.metrics_path, run.log_path]
    first = [name for name in map(str, own) if name in sizes]
    steps: dict[str, list[str]] = {}
    for name in sizes:
        if name.startswith(f"{run.checkpoint_path}/"):
            steps.setdefault(name.rsplit("/", 1)[0], []).append(name)
    newest = [steps[name] for name in sorted(steps, reverse=True)]
    taken = {*first, *(name for names in newest for name in names)}
    groups = [[name] for name in first] + newest + [[name] for name in sizes if name not in taken]
    kept: list[str] = []
    for group in groups:
        size = sum(sizes[name] for name in group)
        if size <= limit:
            kept += group
            limit -= size
    return kept
