"""Rankings of unseen networks as a process: what it writes, that it goes on, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from trivet.core.config import dump_yaml
from trivet.core.errors import ConfigError, RunFolderError
from trivet.core.io import FileLock
from trivet.ghn import GHN, GHNConfig
from trivet.tasks import ghn_rank
from trivet.tasks.ghn_rank import main, rank

RECIPE: dict[str, Any] = {
    "ghn": {"hid": 8, "virtual_edges": 5, "max_shape": [16, 16, 3, 3]},
    "pool": {"size": 2, "max_macs": 1_500_000, "max_parameters": 60_000, "max_cells": 4, "channels": [8],
             "fc_dim": [16], "attention": False},
    "data": {"name": "fashion-mnist", "validation_images": 64, "image_size": 28, "channels": 1},
    "training": {"steps": 2, "warmup_steps": 0},
}  # fmt: skip


@pytest.fixture(scope="module")
def ghn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained hypernetwork with its recipe."""
    return make_ghn(tmp_path_factory.mktemp("ghn"), 0)


def make_ghn(folder: Path, seed: int, **changes: Any) -> Path:
    GHN(GHNConfig(**{**RECIPE["ghn"], "max_shape": (16, 16, 3, 3), **changes}), seed=seed).save_pretrained(folder)
    (folder / "recipe.yaml").write_text(dump_yaml(RECIPE))
    return folder


def question(ghn: Path, out: Path, **changes: Any) -> dict[str, Any]:
    return {
        "ghn": str(ghn), "config": "", "split": "test", "networks": 3, "fit_split": "val", "fit_networks": 0,
        "images": 48, "twin": {"points": [2], "rates": [0.05], "batch_size": 8},
        "early": {"steps": 1, "batch_size": 8}, "out": str(out), **changes,
    }  # fmt: skip


def ask(*arguments: Any, **changes: Any) -> dict[str, Any]:
    threads = torch.get_num_threads()
    *_, last = rank(question(*arguments, **changes))
    torch.set_num_threads(threads)
    json.dumps(last, allow_nan=False)
    return last["result"]


def files(out: Path, kind: str) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob(f"{kind}-*/*.json")}


@pytest.fixture(scope="module")
def stopped(ghn: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, int]]]:
    """A folder after the first network, and the files in it."""
    out = tmp_path_factory.mktemp("out")
    progress = rank(question(ghn, out))
    assert next(progress) == {"split": "test", "done": 1, "of": 3}
    progress.close()
    return out, {kind: files(out, kind) for kind in ("truth", "early", "scores")}


@pytest.fixture(scope="module")
def result(ghn: Path, stopped: tuple[Path, Any]) -> dict[str, Any]:
    """What came out when it went on."""
    return ask(ghn, stopped[0])


def test_every_network_is_scored_and_trained_once(
    ghn: Path,
    stopped: tuple[Path, dict[str, dict[str, int]]],
    result: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, first = stopped
    assert all(list(names) == ["test-00000.json"] for names in first.values())
    assert result["networks"] == len(result["truth"]) == 3
    assert list(result["methods"]) == ["predicted", "parameters", "macs", "loss"]
    assert files(out, "truth")["test-00000.json"] == first["truth"]["test-00000.json"]
    monkeypatch.setattr(ghn_rank, "train_twin", None)  # nothing is left to train
    next(out.glob("scores-*/test-00001.json")).write_text('{"torn')
    again = ask(ghn, out)
    assert again["methods"]["predicted"]["scores"] == result["methods"]["predicted"]["scores"]
    other = ask(make_ghn(tmp_path / "other", 1), out)  # another hypernetwork finds the truth done
    assert other["truth"] == result["truth"]
    assert len(list(out.glob("scores-*"))) == 2


def test_scores_are_those_of_the_network(ghn: Path, result: dict[str, Any]) -> None:
    from trivet.core.config import build, load_yaml
    from trivet.ghn.meta.config import MetaConfig
    from trivet.tasks.ghn import Setting

    setting = Setting(build(MetaConfig, load_yaml(ghn / "recipe.yaml")), torch.device("cpu"))
    networks = setting.networks("test", 3)
    scores = setting.score(GHN.from_pretrained(ghn), networks, setting.images.validation.head(48))
    assert result["methods"]["predicted"]["scores"] == pytest.approx(scores.accuracies())
    sizes = [sum(math.prod(shape) for shape in networks[number].skeleton.shapes.values()) for number in range(3)]
    assert result["methods"]["parameters"]["scores"] == sizes
    assert result["batch_norm"] == [networks[number].skeleton.has_batch_norm for number in range(3)]
    assert result["methods"]["predicted"]["seconds_per_network"] > 0


def test_fitted_rankers(ghn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a truth that is a function of size, the ranker that is fitted on sizes finds the order."""

    def train(self: ghn_rank.Bench, split: str, number: int) -> dict[str, Any]:
        totals = self.pools[split].entries[number].architecture.totals(10, 1, 28)
        return {"accuracy": math.log(totals.parameters), "untrained": 0.1, "rate": 0.1, "seconds": 1.0}

    monkeypatch.setattr(ghn_rank.Bench, "_train", train)
    short = {"loss": None, "accuracy": 0.1, "seconds": 1.0}
    monkeypatch.setattr(ghn_rank.Bench, "_train_early", lambda *_: short)
    result = ask(ghn, tmp_path, networks=3, fit_networks=10, images=16)
    assert list(result["methods"]) == ["predicted", "embedding", "size", "parameters", "macs", "loss"]
    assert result["fit"]["networks"] == 10
    assert result["fit"]["seconds"] == 10
    found = result["methods"]["size"]["scores"]
    assert sorted(range(3), key=found.__getitem__) == sorted(range(3), key=result["truth"].__getitem__)
    assert len(set(result["methods"]["embedding"]["scores"])) == 3
    assert result["methods"]["loss"]["scores"] == [None] * 3


def test_refusals(ghn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make_ghn(tmp_path / "other", 0, num_classes=7)
    with pytest.raises(ConfigError, match="of 7 classes; allowed: a hypernetwork of 10 classes for fashion-mnist"):
        ask(other, tmp_path / "out")
    with (
        FileLock(tmp_path / "busy" / ".lock"),
        pytest.raises(RunFolderError, match="another process ranks networks there"),
    ):
        ask(ghn, tmp_path / "busy")
    assert main([json.dumps(question(ghn, tmp_path, early={"steps": 0}))]) == 2
    assert "`steps=0`" in capsys.readouterr().err
    assert main([]) == 2
