"""Damaged data are refused by the check before work, with the file's name, whatever the task; nothing is written."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.study import Study

STUDY = """
name: bad
base:
  task: {task}
  training: {{steps: 2, batch_size: {batch}}}
seeds: 1
metric: {{name: {metric}}}
"""


def refused(
    trivet: Any, folder: Path, task: dict[str, Any], *words: str, metric: str = "test_loss", batch: int = 2
) -> str:
    """The message of a dry run that refuses a task, in one line or few, without a trace on the disk."""
    (folder / "bad.yaml").write_text(STUDY.format(task=json.dumps(task), metric=metric, batch=batch))
    ended = trivet("run", "bad.yaml", "--dry-run")
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err, ended.err
    assert not (folder / "studies").exists()
    return ended.err


def accepted(folder: Path, task: dict[str, Any], metric: str = "test_loss") -> None:
    (folder / "good.yaml").write_text(STUDY.format(task=json.dumps(task), metric=metric, batch=2))
    Study.from_yaml(folder / "good.yaml")


def write_pets(folder: Path) -> Path:
    """Two classes of two pictures each for training, one each for the test; returns the last picture's path."""
    image = pytest.importorskip("PIL.Image", reason="needs `pip install 'trivet[vision]'`")
    generator = np.random.default_rng(0)
    for part, count in (("train", 2), ("test", 1)):
        for kind in ("cat", "dog"):
            (folder / part / kind).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 256, (40, 40, 3), np.uint8)
                image.fromarray(pixels).save(folder / part / kind / f"{number}.jpg")
    return folder / "test" / "dog" / "0.jpg"


IMAGES = {"name": "image-classification", "model": "small_cnn", "data": "image-folder:pets"}
CODES = {"name": "autoencoding", "data": "image-folder:pets"}


@pytest.mark.parametrize("task", [IMAGES, CODES], ids=["images", "codes"])
def test_a_picture_that_is_cut_short(
    trivet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: dict[str, Any]
) -> None:
    last = write_pets(tmp_path / "pets")
    content = last.read_bytes()
    last.write_bytes(content[: len(content) // 2])
    refused(trivet, tmp_path, task, "base.task.data", "test/dog/0.jpg: cannot be decoded", metric="train_loss")
    last.write_bytes(content)
    refused(
        trivet, tmp_path, {**task, "train_examples": 5}, "base.task.train_examples", "at most 4", metric="train_loss"
    )
    refused(trivet, tmp_path, task, "training.batch_size", "at most 4", metric="train_loss", batch=5)
    monkeypatch.chdir(tmp_path)
    accepted(tmp_path, task, "train_loss")


def test_a_detection_picture_that_is_cut_short(trivet: Any, tmp_path: Path) -> None:
    for package in ("torchvision", "pycocotools"):
        if importlib.util.find_spec(package) is None:
            pytest.skip("needs the extra detection")
    last = write_pets(tmp_path / "pets")
    last.write_bytes(last.read_bytes()[:900])
    for part in ("train", "test"):
        content = {
            "images": [{"id": 1, "file_name": f"{part}/dog/0.jpg"}],
            "categories": [{"id": 1, "name": "dog"}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 20, 20]}],
        }
        (tmp_path / "pets" / f"{part}.json").write_text(json.dumps(content))
    task = {"name": "detection", "data": "pets"}
    refused(trivet, tmp_path, task, "task.data", "dog/0.jpg: cannot be decoded", metric="test_map50", batch=1)
    refused(trivet, tmp_path, {**task, "backbone": "smal"}, "did you mean 'small'", metric="test_map50")
    refused(trivet, tmp_path, {**task, "data": "pet"}, "did you mean 'pets'", metric="test_map50")
    refused(trivet, tmp_path, {**task, "data": "shape"}, "did you mean 'shapes'", metric="test_map50")
    (tmp_path / "weights.pth").write_bytes(b"PK\x03\x04 cut")
    pretrained = {**task, "backbone": "torchvision:resnet18", "pretrained": "weights.pth"}
    refused(trivet, tmp_path, pretrained, "task.pretrained", "weights.pth: cannot be read", metric="test_map50")


@pytest.mark.parametrize("kind", ["cut", "labels", "keys"])
def test_damaged_archives_of_images(trivet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("TRIVET_DATA_ROOT", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    for part in ("train", "test"):
        images, labels = np.zeros((20, 32, 32, 3), np.uint8), np.arange(20) % 10
        names = {"x": images, "y": labels + (kind == "labels")} if kind != "keys" else {"x": images}
        np.savez(tmp_path / "cifar10" / f"{part}.npz", **names)
    train = tmp_path / "cifar10" / "train.npz"
    if kind == "cut":
        train.write_bytes(train.read_bytes()[:30_000])
    words = {"cut": "train.npz", "labels": "run from 1 to 10", "keys": "found the arrays ['x']; allowed: x and y"}
    refused(trivet, tmp_path, {**IMAGES, "data": "cifar10"}, "base.task.data", words[kind])


def test_a_predicted_start_whose_weights_are_cut_short(trivet: Any, tmp_path: Path) -> None:
    from trivet.ghn.folder import SHIPPED, names

    if not names():
        pytest.skip("no hypernetwork comes with this version")
    source = SHIPPED / names()[0]
    (tmp_path / "ghn").mkdir()
    (tmp_path / "ghn" / "config.json").write_bytes((source / "config.json").read_bytes())
    (tmp_path / "ghn" / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes()[:-1])
    (tmp_path / "good.yaml").write_text(STUDY.format(task='{"model": "resnet8"}', metric="test_loss", batch=2))
    ended = trivet("run", "good.yaml", "--set", "init.ghn=ghn", "--set", "init.head=keep", "--dry-run")
    assert ended.code == 2
    assert "base.init" in ended.err
    assert "model.safetensors: found" in ended.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python train.py {seed", ("found {seed without its end; allowed: {seed}",)),
        ("python train.py {seed} > log.txt", ("found '>'; allowed: a program and its arguments", "sh -c '…'")),
        ("python train.py {seed} && echo done", ("found '&&'",)),
    ],
)
def test_commands_that_need_a_shell_or_lack_a_brace(
    trivet: Any, tmp_path: Path, command: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "train.py").touch()
    task = {"command": command, "metrics": {"loss": "loss: ([0-9.]+)"}}
    refused(trivet, tmp_path, task, "base.task.command", *words, metric="loss")


def test_quoted_marks_and_other_braces_are_the_script_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    command = """python train.py {seed} --split "|" --more '{"a": {"seed": 1}} > x'"""
    accepted(tmp_path, {"command": command, "metrics": {"loss": "loss: ([0-9.]+)"}}, "loss")
