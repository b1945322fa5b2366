"""A meta-training run as a process: what it writes, that it survives kill -9, and its evaluation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trivet.core.config import build, dump_yaml, load_yaml
from trivet.core.errors import MissingDataError
from trivet.core.runfolder import RunFolder
from trivet.ghn import GHN
from trivet.ghn.meta.config import MetaConfig
from trivet.tasks import ghn_train
from trivet.tasks.ghn import new_ghn
from trivet.tasks.ghn_eval import evaluate_splits
from trivet.tasks.ghn_train import main

CONFIG: dict[str, Any] = {
    "ghn": {"hid": 8, "virtual_edges": 5, "max_shape": [16, 16, 3, 3]},
    "pool": {"size": 3, "max_macs": 3_000_000, "attention": False},
    "data": {"name": "fashion-mnist", "validation_images": 200},
    "training": {
        "steps": 6, "warmup_steps": 1, "meta_batch": 2, "images": 4, "start_std": 0.5, "curriculum_steps": 3,
        "checkpoint_every": 2, "log_every": 2,
    },
    "evaluation": {"networks": 2, "images": 32, "batch_size": 16},
}  # fmt: skip


def _folder(path: Path) -> RunFolder:
    path.mkdir()
    (path / "config.yaml").write_text(dump_yaml(CONFIG))
    return RunFolder(path)


def _weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(folder.path / "ghn" / "model.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that nothing disturbed."""
    folder = _folder(tmp_path_factory.mktemp("runs") / "whole")
    threads = torch.get_num_threads()
    assert main([str(folder.path)]) == 0
    torch.set_num_threads(threads)
    return folder


def test_a_run_goes_on_from_a_trained_hypernetwork(whole: RunFolder, tmp_path: Path) -> None:
    trained = whole.path / "ghn"
    started = {**CONFIG, "training": {"steps": 1, "warmup_steps": 0, "lr": 1e-12, "images": 4, "weight_decay": 0.0}}
    started["training"]["start_from"] = str(trained)
    started["training"]["ema"] = 0.0
    folder = RunFolder(tmp_path / "further")
    folder.path.mkdir()
    folder.config_path.write_text(dump_yaml(started))
    threads = torch.get_num_threads()
    assert main([str(folder.path)]) == 0
    torch.set_num_threads(threads)
    before, after = _weights(whole), _weights(folder)
    assert all(torch.allclose(before[name], after[name], rtol=0, atol=1e-10) for name in before)
    assert "It started from" in (folder.path / "ghn" / "README.md").read_text()


def test_a_start_of_another_kind_is_refused(whole: RunFolder) -> None:
    other = {**CONFIG, "ghn": {**CONFIG["ghn"], "hid": 16}, "training": {"steps": 1, "warmup_steps": 0}}
    other["training"]["start_from"] = str(whole.path / "ghn")
    with pytest.raises(ValueError, match="hid: 8 instead of 16"):
        new_ghn(build(MetaConfig, other))
    other["training"]["start_from"] = "fashion-smal"
    with pytest.raises(ValueError, match="did you mean 'fashion-small'"):
        new_ghn(build(MetaConfig, other))
    with pytest.raises(ValueError, match="leave one of them out"):
        build(MetaConfig, {"training": {"steps": 1000, "start_from": "fashion-small", "start_std": 0.03}})


def test_a_run_leaves_a_hypernetwork_its_recipe_and_a_card(whole: RunFolder) -> None:
    result = whole.read_result()
    assert (result.outcome, result.steps) == ("finished", 6)
    assert 0 <= result.metrics["val_accuracy"] <= 1
    ghn = GHN.from_pretrained(whole.path / "ghn")
    assert ghn.config.hid == 8
    recipe = whole.path / "ghn" / "recipe.yaml"
    assert build(MetaConfig, load_yaml(recipe)) == build(MetaConfig, CONFIG)
    card = (whole.path / "ghn" / "README.md").read_text()
    assert "6 steps of 2 networks" in card
    assert f"| all | {result.metrics['val_accuracy']:.3f} |" in card
    assert "Licence of the data: MIT" in card
    log = card.split("## Training log")[1].split("##")[0].splitlines()
    assert [line.split(" | ")[0] for line in log if line[:3] in ("| 2", "| 4", "| 6")] == ["| 2", "| 4", "| 6"]
    assert [row["step"] for row in whole.read_metrics()] == [2, 4, 6]


def test_killed_at_a_random_moment_it_goes_on_to_the_same_weights(whole: RunFolder, tmp_path: Path) -> None:
    folder = _folder(tmp_path / "killed")
    command = [sys.executable, "-m", "trivet.tasks.ghn_train", str(folder.path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not list(folder.checkpoint_path.glob("step-*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not folder.is_done
    assert main([str(folder.path)]) == 0
    expected, got = _weights(whole), _weights(folder)
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def test_a_bad_configuration_is_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "bad")
    folder.config_path.write_text(dump_yaml({**CONFIG, "ghn": {**CONFIG["ghn"], "num_classes": 7}}))
    assert main([str(folder.path)]) == 2
    error = folder.read_error()
    assert error is not None
    assert "ghn.num_classes: found 7, with fashion-mnist of 10 classes; allowed: 10" in error["message"]


def test_evaluation_with_twins(whole: RunFolder) -> None:
    request = {
        "ghn": str(whole.path / "ghn"), "config": "", "splits": ["test", "bn_free"], "networks": 2, "images": 32,
        "twins": 2, "twin": {"points": [1, 2], "rates": [0.05], "batch_size": 8},
    }  # fmt: skip
    rows = list(evaluate_splits(request))
    assert [row["split"] for row in rows] == ["test", "bn_free"]
    assert rows[1]["accuracy_bn_free_n"] == 2
    twins = rows[0]["twins"]
    assert twins["steps"] == (0, 1, 2)
    assert len(twins["curves"]) == 2
    assert twins["all"]["networks"] == 2
    assert twins["seconds_per_prediction"] > 0
    json.dumps(rows)


def test_a_hypernetwork_without_recipe_needs_a_configuration(whole: RunFolder, tmp_path: Path) -> None:
    ghn = GHN.from_pretrained(whole.path / "ghn").save_pretrained(tmp_path / "bare")
    request = {"ghn": str(ghn), "config": "", "splits": ["test"], "networks": 2, "images": 32, "twins": 0, "twin": {}}
    with pytest.raises(MissingDataError, match=r"no recipe\.yaml"):
        next(evaluate_splits(request))


def test_small_numbers_are_numbers_again_afterwards() -> None:
    with ghn_train.without_denormals():
        assert torch.tensor(1e-40) * 1.0 == 0
    assert torch.tensor(1e-40) * 1.0 > 0
