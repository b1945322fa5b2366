"""`trivet cp`, `trivet data`, `trivet doctor`, and the pieces that progress is made of."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from trivet.cli import checks, live
from trivet.cli.recipes import command, folder, recipes, summary
from trivet.cli.timing import TimeLeft, duration
from trivet.core.config import build, load_yaml
from trivet.ghn.meta.config import MetaConfig
from trivet.study import PlannedRun, Record
from trivet.study.spec import StudySpec


def test_every_recipe_is_sound_and_says_what_it_asks() -> None:
    for name, path in recipes().items():
        if command(path) == "trivet ghn train":
            assert build(MetaConfig, load_yaml(path), file=name).training.steps
        else:
            assert StudySpec.from_yaml(path).name == Path(name).name
        assert summary(path).endswith((".", "?")) or len(summary(path)) > 20


def test_the_list_and_the_copy(trivet: Any, tmp_path: Path) -> None:
    assert "demo" in [row["name"] for row in json.loads(trivet("cp", "--list", "--json").out)]
    assert trivet("cp", "--list").out.count("demo")
    ended = trivet("cp", "demo")
    assert ended.code == 0
    assert (tmp_path / "demo.yaml").read_bytes() == (folder() / "demo.yaml").read_bytes()


def test_a_copy_overwrites_nothing_unless_forced(trivet: Any, tmp_path: Path) -> None:
    target = tmp_path / "mine" / "own.yaml"
    assert trivet("cp", "demo", target).code == 0
    target.write_text("precious")
    ended = trivet("cp", "demo", target)
    assert ended.code == 2
    assert "--force" in ended.err
    assert target.read_text() == "precious"
    assert trivet("cp", "demo", target, "--force").code == 0
    assert target.read_text() != "precious"


def test_an_unknown_recipe_names_the_nearest(trivet: Any) -> None:
    ended = trivet("cp", "demp")
    assert ended.code == 2
    assert "did you mean 'demo'" in ended.err


def test_data_lists_what_is_here(trivet: Any) -> None:
    rows = {row["name"]: row for row in json.loads(trivet("data", "--json").out)}
    assert rows["fashion-mnist"]["found"] == "inside the package"
    assert "trivet data fetch" in rows["cifar100"]["how_to_get"]
    assert "fashion-mnist" in trivet("data", "list").out


def test_data_checks_by_reading(trivet: Any) -> None:
    content = json.loads(trivet("data", "check", "fashion-mnist", "--json").out)
    assert (content["num_train"], content["num_test"], content["num_classes"]) == (10_000, 2_000, 10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("chekkk", "x"), "did you mean 'check'"),
        (("check",), "needs the NAME"),
        (("check", "cifar10"), "looked in"),
        (("fetch", "digit"), "allowed"),
    ],
)
def test_data_refuses(arguments: tuple[str, ...], words: str, trivet: Any) -> None:
    ended = trivet("data", *arguments)
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_the_doctor_looks_at_everything_and_says_how_to_mend() -> None:
    found = {check.name: check for check in [checks._python(), checks._packages(), checks._cpu(), checks._memory()]}
    found |= {check.name: check for check in [*checks._folders(), checks._compiler(), checks._switches()]}
    found |= {check.name: check for check in checks._data()}
    assert set(found) >= {"python", "packages", "cpu", "memory", "folder: here", "compiler", "variables", "data"}
    assert all(check.fix for check in found.values() if check.status != "ok")
    assert all(check.status in ("ok", "warn", "fail") for check in found.values())


def test_a_torch_that_cannot_be_imported_is_a_finding() -> None:
    [check] = checks._torch("ImportError: libtorch.so")
    assert (check.status, "libtorch.so" in check.found, bool(check.fix)) == ("fail", True, True)


def test_a_driver_that_torch_cannot_use_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    check = checks._cuda({"devices": [], "cuda_available": False, "cuda_built": "13.0"})
    assert check.status == "warn"


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert checks._folder("here", file).status == "fail"


def test_the_real_doctor_trains_and_is_content(trivet: Any) -> None:
    ended = trivet("doctor", "--no-settings", "--json")
    content = json.loads(ended.out)
    found = {check["name"]: check for check in content["checks"]}
    assert ended.code == 0, ended.out
    assert found["smoke training"]["status"] == "ok"
    assert re.match(r"\d+\.\d+", found["torch"]["found"])


def test_time_left() -> None:
    clock = TimeLeft(slots=2)
    assert clock.left({"a": 3}, []) is None
    clock.add("a", 10.0)
    clock.add("a", 20.0)
    assert clock.left({"a": 4}, []) == 30.0
    assert clock.left({"b": 2}, []) == 15.0, "an arm that is not known takes as long as the others"
    assert clock.left({}, [("a", 4.0)]) == 11.0, "one run cannot be shared by two slots"
    assert clock.left({}, [("a", 40.0)]) == 0.0


@pytest.mark.parametrize(("seconds", "text"), [(59.6, "1:00 min"), (3599.7, "1 h 00 min"), (0.2, "0 s")])
def test_durations_round_before_they_are_cut(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def planned(arm: str, seed: int) -> PlannedRun:
    config: Mapping[str, Any] = {"training": {"steps": 10}}
    return PlannedRun(run_id=f"{arm}{seed}", arm=arm, levels={}, seed=seed, block=seed, config=config)


def ended(run: PlannedRun, state: Any) -> Record:
    return Record(run_id=run.run_id, arm=run.arm, levels={}, seed=run.seed, state=state, folder=Path("x"), reason="")


def test_plain_progress_counts_what_was_done_before(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [planned("a", 0), planned("a", 1), planned("b", 0)]
    shown = live.PlainProgress(runs, [ended(runs[0], "finished"), ended(runs[1], "pending"), ended(runs[2], "pending")])
    shown.begin(total=3, done=1, slots=1)
    shown.started(runs[1], 1)
    shown.ended(ended(runs[1], "finished"))
    shown.started(runs[2], 1)
    shown.ended(ended(runs[2], "diverged"))
    shown.end()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "3 runs (2 arms), 1 done already; 1 at the same time"
    assert lines[1].startswith("[2/3] a, seed 1: finished in ")
    assert lines[2].startswith("[3/3] b, seed 0: diverged in ")
    assert shown.left() == 0


def test_an_interrupted_run_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    run = planned("a", 0)
    shown = live.PlainProgress([run])
    shown.begin(total=1, done=0, slots=1)
    shown.started(run, 1)
    shown.ended(ended(run, "pending"))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_step_of_a_run_is_read_from_the_end(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"step": step, "pad": "x" * 50}) + "\n" for step in range(200))
    (tmp_path / "metrics.jsonl").write_text(rows + '{"step": 20')
    assert live.step_of(tmp_path) == 199


def test_the_live_table_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    wide = Console(file=screen, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(live, "console", lambda stream: wide)
    runs = [planned("a", 0), planned("b", 0)]
    shown = live.LiveProgress(runs)
    shown.begin(total=2, done=0, slots=2)
    shown.started(runs[0], 1)
    shown.tick([])
    shown.ended(ended(runs[0], "failed"))
    shown.tick([])
    shown.end()
    text = screen.getvalue()
    assert "[0/2] a, seed 0: failed" in text
    assert "0 of 2 runs" in text
