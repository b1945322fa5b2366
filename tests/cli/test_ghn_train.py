"""`trivet ghn train` and `trivet ghn eval`, from the command line to a hypernetwork and its table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from trivet.core.config import dump_yaml

CONFIG: dict[str, Any] = {
    "ghn": {"hid": 8, "virtual_edges": 5, "max_shape": [16, 16, 3, 3]},
    "pool": {"size": 2, "max_macs": 3_000_000, "attention": False},
    "data": {"name": "fashion-mnist", "validation_images": 64},
    "training": {"steps": 2, "warmup_steps": 0, "meta_batch": 1, "images": 4},
    "evaluation": {"networks": 2, "images": 16, "batch_size": 16},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(dump_yaml(CONFIG))
    return path


def test_a_dry_run_says_what_a_configuration_means_and_loads_no_torch(trivet: Any, config: Path) -> None:
    had_torch = "torch" in sys.modules
    ended = trivet("ghn", "train", config, "--dry-run", "--set", "training.steps=1000")
    assert ended.code == 0
    assert "1,000 steps of 1 networks × 4 images: 1,000 predictions, 4,000 images of fashion-mnist" in ended.out
    assert ("torch" in sys.modules) is had_torch
    assert not (config.parent / "runs").exists()
    assert json.loads(trivet("ghn", "train", config, "--dry-run", "--json").out)["predictions"] == 2


def test_trained_and_tested(trivet: Any, config: Path) -> None:
    ended = trivet("ghn", "train", config)
    assert ended.code == 0, ended.err
    assert "finished after 2 steps: runs/tiny/ghn" in ended.out
    again = trivet("ghn", "train", config, "--json")  # done: nothing is trained twice
    assert json.loads(again.out)["outcome"] == "finished"
    ended = trivet("ghn", "train", config, "--set", "training.steps=3")
    assert ended.code == 2
    assert "found a run of another configuration" in ended.err
    arguments = ("ghn", "eval", "runs/tiny/ghn", "--networks", "2", "--images", "16")
    ended = trivet(*arguments)
    assert ended.code == 0, ended.err
    assert "test" in ended.out
    assert "±" in ended.out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"name": "fashion-mnits"}}, "fashion-mnist"),
        ({"training": {"steps": 2, "warmup_steps": 5}}, "`warmup_steps=5` must be < steps=2"),
        ({"pool": {"size": 1}}, "`size=1` must be ≥ 2"),
        ({"ghn": {"encoder": "gatde"}}, "ghn.encoder"),
        ({"training": {"steps": 2, "warmup_steps": 0, "start_from": "fashion-smal"}}, "did you mean 'fashion-small'"),
        ({"resources": {"devices": 2}}, "training.meta_batch: found 1; allowed: ≥ 2, the number of processes"),
        ({"resources": {"nodes": 2}}, "resources.nodes: found 2; allowed: devices alone; on each node start torchrun"),
        ({"resources": {"strategy": "fsdp2"}}, "resources.strategy: found 'fsdp2'; allowed: devices alone"),
    ],
)
def test_bad_configurations_end_before_anything_starts(
    trivet: Any, config: Path, change: dict[str, Any], message: str
) -> None:
    config.write_text(dump_yaml({**CONFIG, **change}))
    ended = trivet("ghn", "train", config)
    assert ended.code == 2
    assert message in ended.err
    assert not (config.parent / "runs").exists()


def test_processes_are_those_of_the_file_or_of_the_command(
    trivet: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr("trivet.cli.ghn_train._run", lambda _folder, _made, count: started.append(count) or 1)
    config.write_text(
        dump_yaml({**CONFIG, "resources": {"devices": 2}, "training": {**CONFIG["training"], "meta_batch": 3}})
    )
    for words in ((), ("--processes", "3"), ("--set", "resources.devices=1")):
        assert trivet("ghn", "train", config, *words).code == 1
    assert started == [2, 3, 1]
    assert "resources" not in (Path("runs") / "tiny" / "config.yaml").read_text()


def test_an_interrupted_evaluation_prints_the_splits_that_are_done(
    trivet: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> Any:
        yield {"split": "test", "networks": 2}
        raise KeyboardInterrupt

    monkeypatch.setattr("trivet.cli.stream.answers", stopped)
    ended = trivet("ghn", "eval", "fashion-small", "--split", "test", "--split", "deep", "--json")
    assert ended.code == 130
    found = json.loads(ended.out)
    assert [row["split"] for row in found["splits"]] == ["test"]
    assert found["missing"] == ["deep"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent ended")
def test_training_does_not_outlive_its_command(config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trivet", "ghn", "train", str(config), "--out", str(tmp_path / "run")]
    command += ["--set", "training.steps=1000000", "--set", "training.log_every=1"]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "run" / "metrics.jsonl"
    until(lambda: metrics.exists() and metrics.read_text().count("\n") > 1)
    child = next(pid for pid in psutil.Process(parent.pid).children())
    parent.kill()
    parent.wait()
    until(lambda: not child.is_running())
    assert (tmp_path / "run" / "checkpoint").exists(), "it had time for a checkpoint"


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--split", "tset"), "did you mean 'test'"),
        (("--points", "10;20"), "must be whole numbers and commas"),
        ((), "nowhere"),
    ],
)
def test_bad_questions_to_eval(trivet: Any, arguments: tuple[str, ...], message: str) -> None:
    ended = trivet("ghn", "eval", "nowhere", *arguments)
    assert ended.code == 2
    assert message in ended.err
