from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trivet.core.errors import RunFolderError
from trivet.core.io import read_jsonl
from trivet.ghn.meta.config import MetaTrainingConfig
from trivet.ghn.meta.evaluate import evaluate
from trivet.ghn.meta.images import Images
from trivet.ghn.meta.loop import MetaFit, meta_train
from trivet.training.checkpoint import Checkpoints
from trivet.training.metrics import MetricsLog

SHORT = MetaTrainingConfig(steps=12, warmup_steps=2, meta_batch=2, images=8, checkpoint_every=5, log_every=4)


@pytest.fixture
def train(tiny: SimpleNamespace, tiny_images: Images, tmp_path: Path) -> Any:
    """Train in a folder of its own, or go on there."""

    def go(config: MetaTrainingConfig = SHORT, *, folder: str = "a", module: Any = None, **more: Any) -> MetaFit:
        networks = more.pop("networks", None) or [tiny.network(8, dropout=0.5), tiny.network(16, norm=False)]
        return meta_train(
            module or tiny.hypernetwork(),
            more.pop("predict", tiny.predict),
            networks,
            tiny_images,
            config,
            seed=3,
            log=MetricsLog(tmp_path / folder / "metrics.jsonl"),
            checkpoints=Checkpoints(tmp_path / folder / "checkpoint"),
            **more,
        )

    return go


def _weights(fit: MetaFit) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in fit.module.parameters()]


def _rows(path: Path) -> list[dict[str, float]]:
    return [
        {name: value for name, value in row.items() if "seconds" not in name}
        for row in read_jsonl(path / "metrics.jsonl")
    ]


def test_it_learns(train: Any, tiny: SimpleNamespace, tiny_images: Images, tiny_networks: list[Any]) -> None:
    config = MetaTrainingConfig(steps=100, warmup_steps=5, meta_batch=2, images=16, lr=2e-2, log_every=50)
    fit = train(config, networks=tiny_networks)
    scores = evaluate(fit.module, tiny.predict, tiny_networks, tiny_images.test, tiny_images)
    assert fit.outcome == "finished"
    assert scores.summary()["accuracy"] > 0.6  # chance is 0.25


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_stopped_and_resumed_is_as_if_never_stopped(train: Any, tmp_path: Path, optimizer: str) -> None:
    config = MetaTrainingConfig(
        steps=12,
        warmup_steps=2,
        meta_batch=2,
        images=8,
        checkpoint_every=5,
        log_every=4,
        optimizer=optimizer,  # type: ignore[arg-type]
    )
    whole = train(config, folder="whole")
    asked = iter([False] * 7 + [True])
    first = train(config, folder="parts", should_stop=lambda: next(asked))
    assert (first.outcome, first.step) == ("stopped", 7)
    second = train(config, folder="parts")
    for expected, got in zip(_weights(whole), _weights(second), strict=True):
        assert torch.equal(expected, got)
    assert _rows(tmp_path / "whole") == _rows(tmp_path / "parts")


def test_killed_between_checkpoints_it_does_the_lost_steps_again(train: Any, tmp_path: Path) -> None:
    whole = train(folder="whole")

    def killed() -> bool:
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return False

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        train(folder="parts", should_stop=killed)
    second = train(folder="parts")
    for expected, got in zip(_weights(whole), _weights(second), strict=True):
        assert torch.equal(expected, got)
    assert _rows(tmp_path / "whole") == _rows(tmp_path / "parts")


def test_a_finished_run_is_not_trained_again(train: Any) -> None:
    once = train()
    again = train(predict=None)  # would fail if it were called
    assert (again.outcome, again.step) == ("finished", 12)
    assert torch.equal(_weights(once)[0], _weights(again)[0])


def test_bad_steps_change_nothing_are_counted_and_bounded(train: Any, tiny: SimpleNamespace) -> None:
    calls: list[int] = []

    def sometimes_bad(module: Any, networks: Any) -> Any:
        calls.append(1)
        found = tiny.predict(module, networks)
        factor = math.nan if len(calls) in bad else 1.0
        return [{name: tensor * factor for name, tensor in parameters.items()} for parameters in found]

    bad = {3, 4}
    fit = train(predict=sometimes_bad)
    assert (fit.outcome, fit.step, fit.skipped) == ("finished", 12, 2)
    assert all(parameter.isfinite().all() for parameter in fit.module.parameters())
    bad, calls[:] = set(range(100)), []
    fit = train(
        MetaTrainingConfig(steps=12, warmup_steps=2, images=8, max_skipped=3), predict=sometimes_bad, folder="b"
    )
    assert (fit.outcome, fit.skipped) == ("diverged", 4)
    start = tiny.hypernetwork()
    assert all(torch.equal(a, b) for a, b in zip(_weights(fit), start.parameters(), strict=True))


def test_rows_name_losses_rates_and_where_time_goes(train: Any, tmp_path: Path) -> None:
    train(evaluate=lambda module: {"validation_accuracy": 0.5})
    rows = read_jsonl(tmp_path / "a" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert {"train_loss", "train_accuracy", "gradient_norm", "lr", "skipped", "cpu_seconds", "seconds"} <= rows[
        0
    ].keys()
    parts = {name for name in rows[0] if name.startswith("seconds_")}
    assert parts == {f"seconds_{name}" for name in _PARTS}
    assert rows[-1]["validation_accuracy"] == 0.5
    assert "validation_accuracy" not in rows[0]


_PARTS = ("batches", "predict", "networks_forward", "networks_backward", "hypernetwork_backward", "optimizer")


@pytest.mark.parametrize("clock", ["cpu_seconds", "seconds"])
def test_time_can_end_it(train: Any, clock: str) -> None:
    config = MetaTrainingConfig(steps=10_000, warmup_steps=2, images=8, **{clock: 0.3})
    fit = train(config)
    assert fit.outcome == "finished"
    assert fit.step < 10_000
    assert getattr(fit, clock) >= 0.3


def test_the_mean_of_the_parameters_is_kept(train: Any, tiny: SimpleNamespace) -> None:
    module = tiny.hypernetwork()
    fit = train(module=module)
    assert fit.module is not module
    assert not torch.equal(_weights(fit)[0], module.place)
    module = tiny.hypernetwork()
    fit = train(MetaTrainingConfig(steps=4, warmup_steps=1, images=8, ema=0.0), module=module, folder="b")
    assert fit.module is module


def test_images_are_shared_when_asked(train: Any, tiny: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    from trivet.ghn.meta import loop

    seen: list[list[Any]] = []
    real = loop.meta_step

    def spy(predict: Any, networks: Any, batches: Any, *rest: Any) -> Any:
        seen.append([batch.images for batch in batches])
        return real(predict, networks, batches, *rest)

    monkeypatch.setattr(loop, "meta_step", spy)
    for shared in (True, False):
        config = MetaTrainingConfig(steps=1, warmup_steps=0, meta_batch=2, images=8, shared_images=shared)
        train(config, folder=str(shared))
    assert torch.equal(*seen[0])
    assert not torch.equal(*seen[1])


def test_a_checkpoint_of_another_hypernetwork_is_refused(train: Any, tiny: SimpleNamespace) -> None:
    train()
    other = tiny.hypernetwork()
    other.place = torch.nn.Parameter(torch.zeros(9, 16))
    with pytest.raises(RunFolderError, match="does not fit this hypernetwork"):
        train(module=other)
