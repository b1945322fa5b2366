"""Storage that is not shared: a run is carried to the worker, and what it left comes back, result last."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import trivet
from trivet.core.runfolder import RunFolder
from trivet.study import Study, StudySpec
from trivet.study.executors import copied
from trivet.study.executors.base import Exit, Job
from trivet.study.executors.copied import Brought, Copied, choose, pack
from trivet.study.executors.placed import Placed, Report
from trivet.study.resources import ResourcesSpec, resource_problems

STUDY = {
    "name": "carried",
    "base": {"task": {"command": "echo where: {run_dir} loss: {seed}.5", "metrics": {"loss": r"loss: (\S+)"}}},
    "seeds": 2,
    "metric": {"name": "loss"},
    "resources": {"storage": "copied"},
}


class Elsewhere:
    """Runs each job while the study folder is out of sight, as on another machine."""

    start_seconds = 0.0

    def start(self, job: Job) -> Exit:
        study, hidden = job.folder.parent, job.folder.parent.with_name("hidden")
        sent = pickle.dumps(Copied.of(job))
        study.rename(hidden)
        try:
            brought = pickle.loads(sent)()  # what Ray does between two machines
        finally:
            hidden.rename(study)
        brought.unpack(job.folder)
        return Exit(code=brought.report.code, waited=0.0, ran=brought.report.seconds)

    def poll(self, handle: Exit) -> Exit:
        return handle

    def cancel(self, handle: Exit, *, force: bool) -> None:
        return

    def wait(self, seconds: float) -> None:
        return

    def close(self) -> None:
        return


def script(folder: Path, text: str) -> Copied:
    """A run that is this Python text; `here` is its folder."""
    code = f"import sys, pathlib; here = pathlib.Path(sys.argv[1]); {text}"
    return Copied(Placed([sys.executable, "-c", code, str(folder)], str(folder), {}, trivet.__version__), {}, b"")


def test_a_study_out_of_sight_has_the_results_of_one_in_sight(tmp_path: Path) -> None:
    place: Any = Elsewhere()
    there = Study(StudySpec.from_mapping(STUDY), tmp_path / "there").run(place)
    here = Study(StudySpec.from_mapping(STUDY), tmp_path / "here").run("local")
    outcomes = [{r.run_id: (r.state, dict(r.metrics), r.steps) for r in made.records} for made in (there, here)]
    assert outcomes[0] == outcomes[1]
    assert there.counts == {"finished": 2}
    for record in there.records:
        names = {path.name for path in record.folder.iterdir() if not path.name.startswith(".")}
        assert {"config.yaml", "environment.json", "log.txt", "result.json", "source"} <= names
        where = RunFolder(record.folder).log_path.read_text().partition("where: ")[2].split()[0]
        assert "trivet-run-" in where
        assert not Path(where).exists()


def test_a_stopped_run_goes_on_from_the_checkpoint_that_came_back(tmp_path: Path) -> None:
    folder = tmp_path / "ab"
    old = folder / "checkpoint" / "step-1"
    old.mkdir(parents=True)
    for name in ("config.yaml", "error.json", "checkpoint/step-1/manifest.json"):
        (folder / name).write_text("old")
    run = script(
        folder,
        "new = here / 'checkpoint/step-2'; new.mkdir(parents=True); (new / 'manifest.json').write_text('2'); "
        "sys.exit(143)",
    )
    run.files = {"config.yaml": b"old"}
    brought = run()
    brought.unpack(folder)
    assert brought.report.code == 143
    assert not old.exists()
    assert not (folder / "error.json").exists()
    again = script(folder, "(here / 'result.json').write_text((here / 'checkpoint/step-2/manifest.json').read_text())")
    again.files, _ = pack(folder)
    again().unpack(folder)
    assert (folder / "result.json").read_text() == "2"


def test_the_result_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def write(path: Path, content: bytes) -> None:
        written.append(path.name)
        if path.name == "log.txt":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(copied, "write_bytes", write)
    files = {"result.json": b"{}", "log.txt": b"", "a.txt": b""}
    with pytest.raises(OSError, match="No space left"):
        Brought(Report(0, 0.0, 0.0), files).unpack(tmp_path)
    assert written == ["a.txt", "log.txt"]


def test_what_is_too_large_stays_and_is_named(tmp_path: Path) -> None:
    sizes = {"big.bin": 50, "checkpoint/step-1/a": 30, "checkpoint/step-2/a": 30, "log.txt": 10, "result.json": 1}
    assert choose(sizes, 1000) == ["result.json", "log.txt", "checkpoint/step-2/a", "checkpoint/step-1/a", "big.bin"]
    assert choose(sizes, 45) == ["result.json", "log.txt", "checkpoint/step-2/a"]
    assert choose(sizes, 12) == ["result.json", "log.txt"]
    (tmp_path / "log.txt").write_text("said\n")
    (tmp_path / "big.bin").write_bytes(b"x" * 2_000_000)
    (tmp_path / ".lock").write_text("1")
    (tmp_path / "link").symlink_to(tmp_path / "big.bin")
    files, left = pack(tmp_path, 1_000_000)
    assert (list(files), left) == (["log.txt"], ("big.bin (2.0 MB)",))
    Brought(Report(0, 0.0, 0.0), files, left).unpack(tmp_path)
    assert (tmp_path / "log.txt").read_text().splitlines()[-1].endswith("big.bin (2.0 MB)")


def test_slurm_is_told_that_its_storage_is_shared() -> None:
    (problem,) = resource_problems(ResourcesSpec(storage="copied"), "slurm", [], "x.yaml")
    assert "resources.storage: found 'copied' with slurm; allowed: shared" in str(problem)
    assert resource_problems(ResourcesSpec(storage="copied"), "ray", []) == []


def test_another_trivet_there_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    run = script(tmp_path, "1")
    run.placed.version = "0.0.0"
    brought = run()
    assert "install that" in brought.report.refused
    brought.unpack(tmp_path)
    assert list(tmp_path.iterdir()) == []
