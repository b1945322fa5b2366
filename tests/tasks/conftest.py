"""Run folders, and runs in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from trivet.core.config import dump_yaml, merge
from trivet.core.runfolder import RunFolder
from trivet.training.checkpoint import Checkpoint, Checkpoints

BASE: dict[str, Any] = {
    "task": {
        "name": "image-classification",
        "data": "cifar10",
        "model": "resnet8",
        "width": 8,
        "train_examples": 96,
        "augment": {"shift": 1, "flip": True},
    },
    "training": {
        "steps": 24,
        "batch_size": 16,
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4},
        "schedule": {"name": "cosine", "warmup_steps": 3},
        "log_every": 5,
        "evaluate_every": 10,
        "checkpoint_every": 4,
    },
    "environment": {"device": "cpu", "threads": 1},
    "seed": 3,
}

MakeRun = Callable[..., RunFolder]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Makes a run folder: the base configuration with a patch over it, or a whole other one."""

    def make(name: str = "run", patch: dict[str, Any] | None = None, config: dict[str, Any] | None = None) -> RunFolder:
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        folder.config_path.write_text(dump_yaml(config if config is not None else merge(BASE, patch or {})))
        return folder

    return make


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a tiny "cifar10": random images with a bright corner that tells the class."""
    folder = tmp_path_factory.mktemp("data") / "cifar10"
    folder.mkdir()
    random = np.random.default_rng(0)
    for split, count in (("train", 128), ("test", 40)):
        labels = np.arange(count) % 10
        images = random.integers(0, 200, (count, 32, 32, 3), dtype=np.uint8)
        images[np.arange(count), labels, :8] = 255
        np.savez(folder / f"{split}.npz", x=images, y=labels)
    return folder.parent


@pytest.fixture(autouse=True)
def _tiny_data(_own_folders: None, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIVET_DATA_ROOT", str(data_root))


def command_line(folder: RunFolder) -> list[str]:
    return [sys.executable, "-m", "trivet.tasks", str(folder.path)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture
def start() -> Callable[[RunFolder], subprocess.Popen[str]]:
    """Starts a run in a process of its own, as a study does."""

    def start_run(folder: RunFolder) -> subprocess.Popen[str]:
        with folder.log_path.open("a") as log:
            return subprocess.Popen(
                command_line(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
                text=True,
            )

    return start_run


def weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    found = _checkpoint(folder)
    return found.model


def _checkpoint(folder: RunFolder) -> Checkpoint:
    from trivet.core.config import build, digest, load_yaml
    from trivet.tasks.config import RunConfig

    run = build(RunConfig, load_yaml(folder.config_path))
    found = Checkpoints(folder.checkpoint_path, key=digest(run)).load()
    assert found is not None
    return found


def rows(folder: RunFolder) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in folder.read_metrics()]


def assert_same_run(one: RunFolder, other: RunFolder) -> None:
    """Weights, metrics.jsonl apart from seconds, and result are equal in every bit."""
    assert one.read_result().comparable == other.read_result().comparable
    assert rows(one) == rows(other)
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="session")
def runs() -> SimpleNamespace:
    """Helpers of the tests in this folder."""
    return SimpleNamespace(
        base=BASE, command_line=command_line, environment=environment, assert_same=assert_same_run, rows=rows
    )
