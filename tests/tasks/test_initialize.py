"""Initial parameters of a run: random, or predicted by a hypernetwork."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trivet.core.config import build
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.ghn import GHN, GHNConfig
from trivet.tasks.config import RunConfig
from trivet.tasks.image_classification import build_job
from trivet.tasks.run import run_task

MakeRun = Callable[..., RunFolder]
CPU = torch.device("cpu")
SHORT = {"steps": 4, "log_every": 1, "evaluate_every": 0, "checkpoint_every": 0}


@pytest.fixture(scope="module")
def ghn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0).save_pretrained(tmp_path_factory.mktemp("ghn") / "g")


def run_of(**init: str) -> RunConfig:
    task = {"data": "fashion-mnist", "model": "resnet8", "width": 8, "train_examples": 64}
    training = {"steps": 2, "batch_size": 8}
    return build(RunConfig, {"task": task, "init": init, "training": training, "seed": 4})


def test_a_hypernetwork_replaces_random_parameters_and_nothing_else(ghn: Path) -> None:
    random = dict(build_job(run_of(), CPU).model.named_parameters())
    model = build_job(run_of(ghn=str(ghn)), CPU).model
    wanted = GHN.from_pretrained(ghn).predict(model, torch.zeros(1, 1, 28, 28))
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, wanted[name], rtol=1e-5, atol=1e-6)
        assert not torch.equal(value, random[name])
    kept = dict(build_job(run_of(ghn=str(ghn), head="keep"), CPU).model.named_parameters())
    assert torch.equal(kept["fc.weight"], random["fc.weight"])
    assert not torch.equal(kept["stage1.0.conv1.weight"], random["stage1.0.conv1.weight"])


def test_every_method_gives_other_parameters_and_the_same_ones_again(tmp_path: Path) -> None:
    config = GHNConfig(hid=8, max_shape=(16, 16, 3, 3), anchor="identity")
    ghn = str(GHN(config, seed=0).save_pretrained(tmp_path / "g"))
    levels: list[dict[str, str]] = [{}, {"method": "orthogonal"}, {"ghn": ghn}]
    levels += [{"ghn": ghn, "method": method} for method in ("tiled", "anchor", "orthogonalized")]
    weights = []
    for level in levels:
        one, two = (dict(build_job(run_of(**level), CPU).model.named_parameters()) for _ in range(2))
        assert all(torch.equal(value, two[name]) for name, value in one.items()), level
        weights.append(one["stage2.0.conv2.weight"])
    assert all(not torch.allclose(a, b) for i, a in enumerate(weights) for b in weights[:i])
    random, predicted, tiled, orthogonalized = weights[0], weights[2], weights[3], weights[5]
    torch.testing.assert_close(tiled.norm(), predicted.norm())
    torch.testing.assert_close(orthogonalized.norm(), predicted.norm())
    anchored = dict(build_job(run_of(**levels[4]), CPU).model.named_parameters())
    assert torch.equal(anchored["fc.weight"], dict(build_job(run_of(), CPU).model.named_parameters())["fc.weight"])
    assert not torch.equal(anchored["stage2.0.conv2.weight"], random)


def test_the_batches_do_not_depend_on_the_initialization(ghn: Path) -> None:
    losses = []
    for init in ({}, {"ghn": str(ghn)}):
        job = build_job(run_of(**init), CPU)
        seen: list[torch.Tensor] = []
        job.model.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0].clone()))
        job.loss(job.model, 0)
        losses.append(seen[0])
    assert torch.equal(*losses)


def test_a_run_reports_what_was_predicted_and_quantizes_it(ghn: Path, make_run: MakeRun) -> None:
    folder = make_run(
        patch={"training": SHORT, "init": {"ghn": str(ghn)}, "precision": {"schedule": "static", "bits": 8}}
    )
    assert run_task(folder.path) == 0
    assert "29 of 29 parameter tensors predicted" in folder.log_path.read_text()
    result = folder.read_result()
    assert result.outcome == "finished"
    init = result.extra["init"]
    assert (init["ghn"], init["tensors"], init["predicted_tensors"], init["kept"]) == (str(ghn), 29, 29, {})
    assert init["parameters"] == init["predicted_parameters"] > 10_000


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ({"ghn": "fashion-smal"}, "no folder 'fashion-smal' here"),
        ({"gnh": "x"}, "did you mean 'ghn'"),
        ({"head": "keep"}, "has no effect without a `ghn`"),
    ],
)
def test_slips_are_refused_before_anything_starts(init: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_of(**init).check()


def test_classes_are_compared_before_anything_starts(tmp_path: Path) -> None:
    GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3), num_classes=7), seed=0).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="7 classes and the data have 10"):
        run_of(ghn=str(tmp_path)).check()
    run_of(ghn=str(tmp_path), head="resize").check()
