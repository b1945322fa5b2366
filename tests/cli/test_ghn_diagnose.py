"""`trivet ghn diagnose`, from the command line to its text, its JSON and its page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trivet.core.config import build, dump_yaml
from trivet.ghn import GHN, GHNConfig
from trivet.ghn.meta.config import MetaConfig
from trivet.report.diagnosis import drawn_layers, render_diagnosis
from trivet.tasks.ghn import Setting
from trivet.tasks.ghn_diagnose import make_network

RECIPE: dict[str, Any] = {
    "ghn": {"hid": 8, "virtual_edges": 5, "max_shape": [16, 16, 3, 3]},
    "pool": {"size": 3, "max_cells": 4, "channels": [16]},
    "data": {"name": "fashion-mnist", "validation_images": 64},
    "training": {"steps": 2, "warmup_steps": 0, "meta_batch": 1, "images": 4},
    "evaluation": {"networks": 2, "images": 16, "batch_size": 16},
}

Ended = tuple[subprocess.CompletedProcess[str], Path]


@pytest.fixture(scope="module")
def ghn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = GHNConfig(hid=8, virtual_edges=5, max_shape=(16, 16, 3, 3))
    folder = GHN(config, seed=0).save_pretrained(tmp_path_factory.mktemp("ghn") / "tiny")
    (folder / "recipe.yaml").write_text(dump_yaml(RECIPE))
    return folder


@pytest.fixture(scope="module")
def ended(ghn: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The real command on a network of the pool, with a twin and a page."""
    folder = tmp_path_factory.mktemp("diagnosed")
    words = ["ghn", "diagnose", str(ghn), "deepnets:test:5", "--images", "16", "--twin-steps", "1", "--draws", "1"]
    words += ["--neighbors", "3", "--html", "d.html", "--json"]
    command = [sys.executable, "-m", "trivet", *words]
    cache = {"XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache")}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **cache}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done, folder / "d.html"


def test_a_network_of_the_pool_with_its_twin(ended: Ended) -> None:
    done, page = ended
    found = json.loads(done.stdout)
    assert re.fullmatch(r"test:5, 4 cells of 16 channels, .*", found["network"])
    assert (found["images"], found["batch_size"], found["draws"], found["classes"]) == (16, 16, 1, 10)
    assert found["data"] == "fashion-mnist"
    count = len(found["layers"])
    assert count > 8
    assert f"{count} of {count} layers" in done.stderr
    assert all(layer[kind] is not None for layer in found["layers"] for kind in ("random", "zeros", "twin"))
    assert [one["name"][:6] for one in found["neighbors"]] == ["train:"] * 3
    assert len(found["pool_similarity"]) == 3
    text = page.read_text()
    assert "deepnets:test:5 --images 16 --twin-steps 1 --draws 1" in text
    assert all(layer["name"] in text for layer in found["layers"])


def test_a_named_model_has_the_classes_and_channels_of_the_recipe() -> None:
    config = build(MetaConfig, RECIPE)
    setting: Any = SimpleNamespace(config=config, num_classes=config.ghn.num_classes)
    module, name = make_network({"model": "resnet8", "width": 4}, setting)
    shapes = [tuple(parameter.shape) for parameter in module.parameters()]
    assert (name, shapes[0], shapes[-1]) == ("resnet8", (4, 3, 3, 3), (10,))


def test_a_number_beyond_the_split_is_refused() -> None:
    config = build(MetaConfig, RECIPE)
    setting: Any = Setting(config, torch.device("cpu"))
    with pytest.raises(ValueError, match="has 2 networks, counted from 0"):
        make_network({"model": "deepnets:predefined:2"}, setting)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet9",), "did you mean 'resnet8'"),
        (("deepnets:tset:1",), "did you mean 'test'"),
        (("deepnets:test",), "write deepnets:SPLIT:NUMBER"),
        (("resnet8", "--data", "fashion-mnits"), "fashion-mnist"),
        (("resnet8", "--data", "fake"), "data source"),
        (("resnet8", "--html", "d.pdf"), "must end in .html"),
        (("resnet8", "--config", "none.yaml"), "none.yaml"),
    ],
)
def test_slips_end_before_torch_is_asked(
    trivet: Any, ghn: Path, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.cli.stream.subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))
    ended = trivet("ghn", "diagnose", ghn, *arguments)
    assert ended.code == 2
    assert message in ended.err


def test_other_classes_and_missing_recipes_are_refused(
    trivet: Any, ghn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.cli.stream.subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))
    bare = GHN.from_pretrained(ghn).save_pretrained(tmp_path / "bare")
    ended = trivet("ghn", "diagnose", bare, "resnet8")
    assert ended.code == 2
    assert "no recipe.yaml beside the hypernetwork" in ended.err
    recipe = tmp_path / "seven.yaml"
    recipe.write_text(dump_yaml({**RECIPE, "ghn": {**RECIPE["ghn"], "num_classes": 7}}))
    ended = trivet("ghn", "diagnose", ghn, "resnet8", "--config", recipe)
    assert ended.code == 2
    assert "10 classes" in ended.err
    assert "7" in ended.err


@pytest.mark.browser
def test_the_page_escapes_names_and_fits_a_window(chromium: str, ended: Ended, tmp_path: Path) -> None:
    content = json.loads(ended[0].stdout)
    content["layers"][0]["name"] = "<script>alert(1)</script>"
    content["layers"][1]["random"]["loss"] = float("nan")
    about = {"ghn": "tiny", "data": "images", "network": "<b>net</b>", "command": "trivet ghn diagnose"}
    page = tmp_path / "d.html"
    page.write_text(render_diagnosis(content, about))
    assert "<script>alert" not in page.read_text()
    assert "<b>net</b>" not in page.read_text()
    quiet = ["--headless", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"]
    quiet += ["--virtual-time-budget=10000", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,900"]
    done = subprocess.run(
        [chromium, *quiet, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    said = dict(re.findall(r'data-([\w-]+)="([^"]*)"', re.search(r"<html[^>]*>", done.stdout)[0]))  # type: ignore[index]
    assert (said["ready"], said["charts"], said["chart-errors"]) == ("yes", "1", "0")
    assert int(said["scroll-width"]) <= 1280


def test_the_chart_shows_the_layers_that_change_most_in_their_order() -> None:
    layers = [
        {"name": str(i), "random": {"accuracy": (-1) ** i * i / 100}, "zeros": None, "twin": None} for i in range(60)
    ]
    shown = drawn_layers([*layers[30:], *layers[:30]])
    assert [layer["name"] for layer in shown] == [str(i) for i in (*range(30, 60), *range(20, 30))]
