"""Study folders: what is never overwritten, what may change, and a cache that is never believed over the folders."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from trivet.core.config import dump_yaml, merge
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.study import Results, Study
from trivet.study.index import Index
from trivet.study.plan import plan
from trivet.study.spec import StudySpec
from trivet.study.store import Store


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_unreadable_folders_are_reported_and_never_touched(lab: Any, truth: dict[str, Any]) -> None:
    lab.run()
    runs = plan(StudySpec.from_yaml(lab.folder / "study.yaml"))
    paths = [lab.folder / run.run_id for run in runs]
    paths[0].joinpath("result.json").write_text('{"format": 1, "outcome": "fini')
    paths[1].joinpath("result.json").write_text('{"format": 99, "outcome": "finished", "metrics": {}}')
    paths[2].joinpath("config.yaml").write_text("seed: 5\n")
    shutil.rmtree(paths[3])
    paths[3].write_text("a file where a folder should be")
    shutil.rmtree(paths[4])
    paths[4].mkdir()
    paths[4].joinpath("thesis.tex").write_text("somebody's work")
    paths[5].joinpath("config.yaml").write_bytes(b"\xff\xfe")
    before = {path.name: tree(path) if path.is_dir() else path.read_bytes() for path in paths}
    results = lab.run()
    assert results.exit_code == 1
    assert results.counts == {"unreadable": 6}
    reasons = [record.reason for record in results.records]
    expected = [
        "is not a result",
        "newer than this trivet",
        "configuration of another run",
        "a file lies where a run folder should be",
        "has no config.yaml",
        "is not text",
    ]
    for path, reason, text in zip(paths, reasons, expected, strict=True):
        assert text in reason
        assert path.name in reason
    assert {path.name: tree(path) if path.is_dir() else path.read_bytes() for path in paths} == before
    assert len(lab.counted("start")) == 6
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert lab.outcomes(lab.run()) == truth


def test_a_folder_torn_at_birth_is_used(lab: Any, truth: dict[str, Any]) -> None:
    """A kill between making the folder and writing config.yaml leaves an empty folder or a hidden temporary file."""
    spec = StudySpec.from_yaml(lab.write())
    for index, run in enumerate(plan(spec)[:2]):
        (lab.folder / run.run_id).mkdir(parents=True)
        if index:
            (lab.folder / run.run_id / ".config.yaml.x.tmp").write_text("ta")
    (lab.folder / "study.yaml").write_text(dump_yaml(spec))
    assert lab.outcomes(lab.run()) == truth


def test_extending_keeps_what_is_done_and_is_recorded(lab: Any, truth: dict[str, Any]) -> None:
    lab.run()
    results = lab.run({"seeds": 4, "factors": {"precision": {"s8": {"schedule": "static", "bits": 8}}}})
    assert results.counts == {"finished": 12}
    assert len(lab.counted("start")) == 12
    done = lab.outcomes(results)
    assert {key: done[key] for key in truth} == truth
    assert any("seeds: 3 → 4" in note and "factors.precision.s8: added" in note for note in results.notes)
    assert StudySpec.from_yaml(lab.folder / "study.yaml").seeds == 4


def test_runs_that_left_the_plan_are_kept_and_mentioned(lab: Any) -> None:
    lab.run()
    results = lab.run({"base": {"training": {"steps": 7}}, "metric": {"margin": 0.5}})
    assert results.counts == {"finished": 6}
    assert any("6 run folder(s) belong to no planned run and are kept" in note for note in results.notes)
    assert any("metric.margin: 0.01 → 0.5" in note for note in results.notes)
    assert len(list(lab.folder.glob("*/result.json"))) == 12


def test_another_study_and_foreign_folders_are_refused(lab: Any, tmp_path: Path) -> None:
    lab.run()
    before = tree(lab.folder)
    with pytest.raises(ConfigError, match="the study 'fake' in this folder"):
        lab.run({"name": "other"})
    assert tree(lab.folder) == before
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    foreign.joinpath("letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match=r"no study and not empty \(letter.txt\)"):
        Study.from_yaml(lab.write(), folder=foreign)
    with pytest.raises(ConfigError, match="a file"):
        Study.from_yaml(lab.write(), folder=foreign / "letter.txt")
    assert tree(foreign) == {"letter.txt": b"dear"}


def test_a_study_file_of_the_users_own_is_never_overwritten(lab: Any, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = "# my own words\n" + lab.write().read_text()
    (project / "study.yaml").write_text(text)
    with pytest.raises(ConfigError, match="no study and not empty"):
        Study.from_yaml(project / "study.yaml", folder=project)
    assert Study.from_yaml(project / "study.yaml").folder == Path("studies/fake")
    assert (project / "study.yaml").read_text() == text


def test_the_written_study_file_resumes_in_place(lab: Any, truth: dict[str, Any]) -> None:
    lab.run()
    assert Study.from_yaml(lab.folder / "study.yaml").folder == lab.folder
    assert Study.from_yaml(lab.folder).folder == lab.folder
    assert lab.outcomes(Study.load(lab.folder).status()) == truth


def test_reading_what_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        Results.load(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"without study\.yaml"):
        Results.load(tmp_path)


def test_reading_changes_nothing(lab: Any) -> None:
    lab.run()
    before = {path: path.stat().st_mtime_ns for path in lab.folder.rglob("*")}
    Results.load(lab.folder)
    assert {path: path.stat().st_mtime_ns for path in lab.folder.rglob("*")} == before


def test_the_index_is_a_cache_only(lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run()
    index = lab.folder / "index.sqlite"
    reads: list[Path] = []
    real = RunFolder.read_result_or_none
    monkeypatch.setattr(RunFolder, "read_result_or_none", lambda self: (reads.append(self.path), real(self))[1])

    def outcomes() -> Any:
        reads.clear()
        return lab.outcomes(Results.load(lab.folder))

    assert outcomes() == truth
    assert reads == []  # all from the cache
    victim = next(iter(truth))
    result = lab.folder / victim / "result.json"
    content = result.read_text()
    result.write_text(content.replace('"steps": 6', '"steps": 7'))
    assert outcomes()[victim][4] == 7  # the folder wins
    assert len(reads) == 1
    result.unlink()
    assert outcomes()[victim][2] == "pending"
    result.write_text(content)
    for damage in (b"not a database", b""):
        index.write_bytes(damage)
        assert outcomes() == truth
        assert len(reads) == 6
    index.unlink()
    assert outcomes() == truth
    lab.run()
    assert index.exists()
    outcomes()
    assert reads == []
    index.write_bytes(b"damaged")
    lab.run()  # replaced
    assert len(Index(index).load()) == 6
    with sqlite3.connect(index) as base:
        base.execute("UPDATE runs SET metrics = 'no json'")
    base.close()
    assert outcomes() == truth


def test_commands_are_made_ready_for_elsewhere(lab: Any, truth: dict[str, Any]) -> None:
    study = Study.from_yaml(lab.write(), folder=lab.folder)
    lines = study.commands()
    assert len(lines) == 6
    for line, run in zip(lines, study.plan(), strict=True):
        assert line.startswith("OMP_NUM_THREADS=1 ")
        assert " -m trivet.tasks " in line
        assert line.endswith(str(lab.folder.absolute() / run.run_id))
        assert (lab.folder / run.run_id / "config.yaml").is_file()
    lab.run()
    assert study.commands() == []


def test_a_read_only_study_can_be_read(lab: Any, truth: dict[str, Any]) -> None:
    lab.run()
    paths = [lab.folder, *lab.folder.rglob("*")]
    for path in paths:
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    try:
        assert lab.outcomes(Results.load(lab.folder)) == truth
    finally:
        for path in paths:
            os.chmod(path, 0o755 if path.is_dir() else 0o644)


def test_config_text_is_what_dump_yaml_writes(mapping: dict[str, Any], tmp_path: Path) -> None:
    store = Store(tmp_path)
    for run in plan(StudySpec.from_mapping(merge(mapping, {"seeds": 2}))):
        assert store.prepare(run).config_path.read_text() == dump_yaml(run.config)
