"""A hypernetwork that is trained on many small tasks: resume, evaluation on held-out tasks, and configurations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trivet.core.config import build, digest, dump_yaml, to_plain
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.ghn import GHN
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.loop import MetaFit, meta_train
from trivet.ghn.meta.networks import predict
from trivet.tasks.ghn import Setting, new_ghn
from trivet.tasks.ghn_eval import evaluate_splits
from trivet.tasks.ghn_tasks import TaskSetting, setting_of
from trivet.tasks.ghn_train import _key, main
from trivet.training.checkpoint import Checkpoints
from trivet.training.metrics import MetricsLog

CONFIG: dict[str, Any] = {
    "ghn": {"hid": 8, "virtual_edges": 5, "max_shape": [16, 16, 3, 3], "anchor": "identity", "task": "set"},
    "pool": {"size": 2, "max_macs": 2_000_000, "channels": [16], "attention": False},
    "data": {"image_size": 28, "channels": 1},
    "tasks": {"sources": ["fashion-mnist"], "ways": 3, "shots": 2},
    "training": {
        "steps": 3, "warmup_steps": 1, "meta_batch": 2, "images": 4, "start_std": 0.03,
        "checkpoint_every": 1, "log_every": 1,
    },
    "evaluation": {"networks": 2, "images": 16, "batch_size": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def setting() -> TaskSetting:
    found = setting_of(build(MetaConfig, CONFIG), torch.device("cpu"))
    assert isinstance(found, TaskSetting)
    return found


def train(setting: TaskSetting, folder: Path, stops: Iterator[bool]) -> MetaFit:
    folder.mkdir(exist_ok=True)
    networks = setting.networks("train", 2)
    return meta_train(
        new_ghn(setting.config),
        predict,
        networks,
        setting.examples,
        setting.config.training,
        seed=0,
        log=MetricsLog(folder / "metrics.jsonl"),
        checkpoints=Checkpoints(folder / "checkpoint"),
        should_stop=lambda: next(stops),
    )


def test_stopped_and_resumed_it_comes_to_the_same_weights(setting: TaskSetting, tmp_path: Path) -> None:
    start = {name: value.clone() for name, value in new_ghn(setting.config).state_dict().items()}
    whole = train(setting, tmp_path / "whole", iter([False] * 3))
    assert train(setting, tmp_path / "cut", iter([False, True])).outcome == "stopped"
    fresh = TaskSetting(setting.config, setting.device)  # a new process has drawn nothing yet
    resumed = train(fresh, tmp_path / "cut", iter([False] * 2))
    expected, got = whole.module.state_dict(), resumed.module.state_dict()
    assert all(torch.equal(value, got[name]) for name, value in expected.items())
    moved = [name for name, value in expected.items() if not torch.equal(value, start[name])]
    assert {"tasks.look.0.weight", "tasks.all.0.weight", "rows.kind.weight", "rows.row.weight"} <= set(moved)


def test_trained_from_a_folder_and_evaluated_on_tasks_held_out(tmp_path: Path) -> None:
    config = {**CONFIG, "training": {**CONFIG["training"], "steps": 2, "checkpoint_every": 0}}
    (tmp_path / "config.yaml").write_text(dump_yaml(config))
    threads = torch.get_num_threads()
    assert main([str(tmp_path)]) == 0
    torch.set_num_threads(threads)
    folder = RunFolder(tmp_path)
    assert 0 <= folder.read_result().metrics["val_accuracy"] <= 1
    assert GHN.from_pretrained(tmp_path / "ghn").config.task == "set"
    card = (tmp_path / "ghn" / "README.md").read_text()
    assert "3 classes of fashion-mnist, told by 2 images each" in card
    assert "any number of classes, 3 in training" in card
    assert "A share of 0.3 of each source's classes was held out" in card
    request = {
        "ghn": str(tmp_path / "ghn"), "config": "", "splits": ["test"], "networks": 2, "images": 16,
        "twins": 2, "twin": {"points": [1, 2], "rates": [0.05], "batch_size": 8},
    }  # fmt: skip
    row = next(evaluate_splits(request))
    assert row["chance"] == pytest.approx(1 / 3)
    assert row["nearest_mean"]["n"] == 2
    assert 0.2 <= row["nearest_mean"]["accuracy"] <= 1
    assert (row["images"], len(row["each"]), len(row["twins"]["curves"])) == (16, 2, 2)
    json.dumps(row)


def test_without_being_told_it_is_trained_on_the_same_tasks(setting: TaskSetting) -> None:
    plain = build(MetaConfig, {**CONFIG, "ghn": {**CONFIG["ghn"], "task": "none", "num_classes": 3}})
    other = TaskSetting(plain, setting.device)
    network = setting.networks("val", 1)[0]
    (told, task), (untold, same) = (each.case("val", 0, network) for each in (setting, other))
    assert torch.equal(task.test.images, same.test.images)
    assert told.task is not None
    assert untold.task is None
    assert predict(new_ghn(plain), [untold])[0].keys() == predict(new_ghn(setting.config), [told])[0].keys()


def test_configurations_that_contradict_themselves() -> None:
    with pytest.raises(ConfigError, match="needs a section `tasks`"):
        build(MetaConfig, {**CONFIG, "tasks": None})
    with pytest.raises(ConfigError, match=r"must be `tasks\.ways=3`"):
        build(MetaConfig, {**CONFIG, "ghn": {"task": "none"}})
    with pytest.raises(ConfigError, match="needs one data set"):
        _ = Setting(build(MetaConfig, CONFIG), torch.device("cpu")).data


def test_a_run_without_tasks_has_the_key_it_had_before_there_were_any() -> None:
    content = {"training": {"steps": 200}}
    plain = to_plain(build(MetaConfig, content))
    assert plain.pop("tasks") is None
    assert plain["ghn"].pop("task") == "none"
    assert _key(build(MetaConfig, content)) == digest(plain)
    assert _key(build(MetaConfig, {**content, "tasks": {"ways": 10}})) != digest(plain)
