"""`environment.backend: jax`: the same training by two libraries, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax", reason="needs `pip install 'trivet[jax]'`")

from trivet.core.config import build, digest, dump_yaml, to_plain
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.tasks.__main__ import main
from trivet.tasks.config import RunConfig

RUN: dict[str, Any] = {
    "task": {
        "name": "image-classification",
        "data": "fashion-mnist",
        "model": "small_cnn",
        "width": 4,
        "train_examples": 200,
    },
    "training": {"steps": 8, "batch_size": 16, "optimizer": {"name": "adam", "lr": 0.01}, "log_every": 1},
    "environment": {"device": "cpu"},
    "seed": 1,
}


def _run(folder: Path, environment: dict[str, Any]) -> RunFolder:
    folder.mkdir()
    (folder / "config.yaml").write_text(dump_yaml({**RUN, "environment": environment}))
    assert main([str(folder)]) == 0, (folder / "log.txt").read_text()
    return RunFolder(folder)


def test_two_libraries_train_alike(tmp_path: Path) -> None:
    ours = _run(tmp_path / "torch", {"device": "cpu"})
    theirs = _run(tmp_path / "jax", {"device": "cpu", "backend": "jax"})
    losses = [[row["train_loss"] for row in run.read_metrics()] for run in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-6)
    assert losses[0] != losses[1], "the second one did not compute"
    realised = theirs.read_environment()["realised"]
    assert realised["backend"] == "jax"


def test_what_it_cannot_compute_is_refused_before_anything_starts() -> None:
    wrong = {
        "task.model": {"task": {**RUN["task"], "model": "resnet8"}},
        "precision": {"precision": {"schedule": "static", "bits": 8}},
        "training.compile": {"training": {**RUN["training"], "compile": True}},
        "training.autocast": {"training": {**RUN["training"], "autocast": "bf16"}},
        "environment.device": {"environment": {"device": "cuda", "backend": "jax"}},
    }
    for key, change in wrong.items():
        run = build(RunConfig, {**RUN, "environment": {"backend": "jax"}, **change})
        with pytest.raises(ConfigError) as caught:
            run.check()
        assert key.startswith(caught.value.problems[0].key)


def test_runs_of_before_keep_their_names() -> None:
    plain = to_plain(build(RunConfig, RUN))
    assert "backend" not in plain["environment"]
    other = to_plain(build(RunConfig, {**RUN, "environment": {"device": "cpu", "backend": "jax"}}))
    assert digest(plain) != digest(other)
