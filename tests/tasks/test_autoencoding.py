"""Autoencoding: bit-equal with a reused buffer, sane beside principal components, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from trivet.core.config import build, merge
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.tasks.autoencoding import build_job
from trivet.tasks.autoencoding_config import AutoencodingConfig
from trivet.tasks.config import RunConfig
from trivet.tasks.data import load_images
from trivet.tasks.run import run_task
from trivet.training.checkpoint import Checkpoints

MakeRun = Callable[..., RunFolder]

BASE: dict[str, Any] = {
    "task": {"name": "autoencoding", "train_examples": 600, "hidden": [32], "code": 8},
    "training": {"steps": 60, "batch_size": 50, "optimizer": {"name": "adam", "lr": 0.003}, "log_every": 20},
    "environment": {"device": "cpu", "threads": 1},
    "seed": 3,
}


def test_a_reused_buffer_changes_no_bit(make_run: MakeRun) -> None:
    """Backward follows each forward pass at once, so nothing is overwritten that it still needs."""
    folders = {}
    for buffer in ("copy", "reuse"):
        folders[buffer] = make_run(buffer, config=merge(BASE, {"task": {"buffer": buffer}}))
        assert run_task(folders[buffer].path) == 0
    ends = [Checkpoints(folder.checkpoint_path).load() for folder in folders.values()]
    copied, reused = (folder.read_result().metrics for folder in folders.values())
    assert copied == reused
    assert set(copied) == set(AutoencodingConfig.reported)
    assert ends == [None, None]  # keys differ: they belong to the runs
    states = [
        {path.parent.name + path.name: path.read_bytes() for path in folder.checkpoint_path.rglob("model.safetensors")}
        for folder in folders.values()
    ]
    assert states[0] == states[1] != {}
    assert sorted(path.name for path in folders["copy"].pictures_path.iterdir()) == ["1 shown.png", "2 drawn.png"]


def test_the_figures_beside_the_mean_and_principal_components(make_run: MakeRun) -> None:
    """Below the mean picture, and not below what a linear code of the same length could do on the test pictures."""
    folder = make_run(config=merge(BASE, {"training": {"steps": 300}}))
    assert run_task(folder.path) == 0
    metrics = folder.read_result().metrics
    data = load_images("fashion-mnist")
    test = data.test_images.reshape(len(data.test_images), -1) / 255
    spread = np.linalg.eigvalsh(np.cov(test.T, bias=True))
    assert metrics["mean_mse"] == pytest.approx(spread.sum() / 784, rel=0.02)
    assert metrics["test_mse"] < 0.5 * metrics["mean_mse"]
    assert metrics["test_mse"] > spread[:-8].sum() / 784
    assert metrics["dead"] == 0


def test_a_network_that_draws_one_picture_is_dead() -> None:
    job: Any = build_job(build(RunConfig, BASE), torch.device("cpu"))
    with torch.no_grad():
        job.model.decoder[-1].weight.zero_()
        found = job.evaluate()
    assert found["dead"] == 1


def test_few_bits_are_counted_and_run() -> None:
    job: Any = build_job(
        build(RunConfig, merge(BASE, {"precision": {"schedule": "static", "bits": 8}})), torch.device("cpu")
    )
    macs = 2 * (784 * 32 + 32 * 8)
    assert job.observe(2)["bitops"] == 50 * macs * 2 * 192
    job.loss(job.model, 0).backward()
    assert [row.quantised for row in job.steppers["precision"].report()] == [True] * 4


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"task": {"code": 0}}, "task", r"`code=0` must lie in \[1, 65536\]"),
        ({"task": {"hidden": [3, 0]}}, "task", r"`hidden=\[3, 0\]`"),
        ({"task": {"train_examples": -1}}, "task", "train_examples=-1"),
        ({"task": {"buffer": "shared"}}, "task.buffer", "allowed"),
        ({"task": {"data": "fashion-mnits"}}, "task.data", "did you mean 'fashion-mnist'"),
        ({"task": {"train_examples": 10**6}}, "task.train_examples", "at most 10000"),
        ({"training": {"batch_size": 601}}, "training.batch_size", "at most 600"),
    ],
)
def test_refused_before_any_work(patch: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(RunConfig, merge(BASE, patch), file="s.yaml").check(file="s.yaml")
    assert [problem.key for problem in caught.value.problems] == [key]
