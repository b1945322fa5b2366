from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from trivet.core.errors import RunFolderError
from trivet.core.io import read_jsonl
from trivet.training.batches import BatchOrder, augment
from trivet.training.checkpoint import Checkpoints
from trivet.training.config import LRScheduleConfig, OptimizerConfig, TrainingConfig
from trivet.training.loop import Fit, Job, fit
from trivet.training.metrics import MetricsLog

SGD = OptimizerConfig(name="sgd", lr=0.05, momentum=0.9, weight_decay=1e-4)
ADAM = OptimizerConfig(name="adam", lr=1e-2)
CPU = torch.device("cpu")


class Counter:
    """A stepper whose state changes the training."""

    def __init__(self) -> None:
        self.count = 0

    def step(self) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def make_job(*, poison_at: int = -1) -> Job:
    """A small convolutional net with dropout and batch norm on random images, augmented."""
    torch.manual_seed(0)
    images, labels = torch.randint(0, 255, (40, 1, 6, 6)).float() / 255, torch.randint(0, 3, (40,))
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 3)
    )
    counter = Counter()
    order = BatchOrder(num_examples=40, batch_size=12, seed=5)
    torch.manual_seed(1)

    def loss(forward: nn.Module, step: int) -> torch.Tensor:
        chosen = order.indices(step)
        inputs = augment(images[chosen], shift=1, flip=True, seed=5, step=step)
        value = F.cross_entropy(forward(inputs), labels[chosen]) * (1 + 0.01 * (counter.count % 3))
        return value * math.nan if step == poison_at else value

    def evaluate() -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"test_loss": F.cross_entropy(model(images), labels).item()}

    return Job(
        model=model, loss=loss, evaluate=evaluate, observe=lambda step: {"bits": 32.0}, steppers={"counter": counter}
    )


def run(folder: Path, config: TrainingConfig, *, stop_at: int = -1, job: Job | None = None) -> tuple[Fit, Job]:
    """Train in `folder`; ask to stop when `stop_at` steps are done in this attempt."""
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return 0 <= stop_at < asked

    job = job or make_job()
    end = fit(
        job,
        config,
        device=CPU,
        log=MetricsLog(folder / "metrics.jsonl"),
        checkpoints=Checkpoints(folder / "checkpoint"),
        should_stop=should_stop,
    )
    return end, job


def rows(folder: Path) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_jsonl(folder / "metrics.jsonl")]


def same_weights(a: Job, b: Job) -> bool:
    pairs = zip(a.model.state_dict().items(), b.model.state_dict().items(), strict=True)
    return all(name == other and torch.equal(x, y) for (name, x), (other, y) in pairs)


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("layout", [False, True], ids=["contiguous", "channels_last"])
def test_a_resumed_run_is_bit_equal(optimizer: OptimizerConfig, layout: bool, tmp_path: Path) -> None:
    config = TrainingConfig(
        steps=31,
        batch_size=12,
        optimizer=optimizer,
        schedule=LRScheduleConfig(name="cosine", warmup_steps=4),
        log_every=5,
        evaluate_every=8,
        checkpoint_every=6,
        channels_last=layout,
        clip_norm=1.0,
    )
    whole, reference = run(tmp_path / "whole", config)
    assert whole.outcome == "finished"
    for _ in range(20):  # stopped every 3 steps, each time a new model
        end, job = run(tmp_path / "cut", config, stop_at=3)
        if end.outcome == "finished":
            break
        assert end.outcome == "stopped"
    assert same_weights(job, reference)
    assert (end.metrics, end.step) == (whole.metrics, whole.step)
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    assert end.train_seconds > end.resumed_seconds > 0


def test_going_on_from_an_older_checkpoint_writes_the_same_rows(tmp_path: Path) -> None:
    """What kill -9 leaves: rows that are newer than the checkpoint, and a torn one."""
    config = TrainingConfig(steps=20, batch_size=12, optimizer=SGD, log_every=3, checkpoint_every=7)
    _, reference = run(tmp_path / "whole", config)
    run(tmp_path / "cut", config, stop_at=16)
    newest = sorted((tmp_path / "cut" / "checkpoint").iterdir())[-1]
    assert newest.name == "step-00000016"
    (newest / "state.pt").write_bytes(b"torn")
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 18, "train_loss": 9.0}) + '\n{"step": 19, "tra')
    end, job = run(tmp_path / "cut", config)
    assert end.outcome == "finished"
    assert same_weights(job, reference)
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")


def test_a_finished_training_is_evaluated_again_but_not_logged_twice(tmp_path: Path) -> None:
    config = TrainingConfig(steps=6, batch_size=12, optimizer=SGD, log_every=4)
    first, _ = run(tmp_path, config)
    before = rows(tmp_path)
    second, _ = run(tmp_path, config)
    assert (second.metrics, rows(tmp_path)) == (first.metrics, before)


def test_rows(tmp_path: Path) -> None:
    config = TrainingConfig(steps=10, batch_size=12, optimizer=SGD, log_every=4, evaluate_every=5)
    end, _ = run(tmp_path, config)
    found = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in found] == [4, 5, 8, 10]
    assert [("test_loss" in row) for row in found] == [False, True, False, True]
    assert {"train_loss", "lr", "bits", "seconds"} <= set(found[0])
    assert end.metrics["test_loss"] == found[-1]["test_loss"]
    mean = (
        4 * found[0]["train_loss"] + found[1]["train_loss"] + 3 * found[2]["train_loss"] + 2 * found[3]["train_loss"]
    ) / 10
    assert end.metrics["train_loss"] == pytest.approx(mean)


def test_the_final_train_loss_is_over_fifty_steps(tmp_path: Path) -> None:
    config = TrainingConfig(steps=70, batch_size=12, optimizer=SGD, log_every=1)
    end, _ = run(tmp_path, config)
    losses = [row["train_loss"] for row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert end.metrics["train_loss"] == pytest.approx(sum(losses[-50:]) / 50)


@pytest.mark.parametrize("log_every", [1, 4, 50])
@pytest.mark.parametrize("stop_at", [-1, 8])
def test_nan_ends_as_diverged_at_its_step(log_every: int, stop_at: int, tmp_path: Path) -> None:
    config = TrainingConfig(steps=12, batch_size=12, optimizer=SGD, log_every=log_every, checkpoint_every=5)
    end, _ = run(tmp_path, config, job=make_job(poison_at=6), stop_at=stop_at)
    assert (end.outcome, end.step, end.metrics) == ("diverged", 7, {})
    newest = sorted((tmp_path / "checkpoint").iterdir())[-1]
    assert newest.name == "step-00000005"  # nothing poisoned is ever saved


def test_a_final_metric_that_is_not_finite_is_divergence(tmp_path: Path) -> None:
    job = make_job()
    job.evaluate = lambda: {"test_loss": math.inf}
    end, _ = run(tmp_path, TrainingConfig(steps=3, batch_size=12, optimizer=SGD), job=job)
    assert end.outcome == "diverged"


def test_stop_before_the_first_step(tmp_path: Path) -> None:
    config = TrainingConfig(steps=3, batch_size=12, optimizer=SGD)
    end, _ = run(tmp_path, config, stop_at=0)
    assert (end.outcome, end.step) == ("stopped", 0)
    assert run(tmp_path, config)[0].outcome == "finished"


def test_a_checkpoint_of_another_model_is_named(tmp_path: Path) -> None:
    config = TrainingConfig(steps=3, batch_size=12, optimizer=SGD)
    run(tmp_path, config, stop_at=1)
    job = make_job()
    job.model = nn.Linear(2, 2)
    with pytest.raises(RunFolderError, match="does not fit this model"):
        run(tmp_path, config, job=job)


def test_bf16_autocast_computes_in_bfloat16(tmp_path: Path) -> None:
    job = make_job()
    seen = set()
    job.model.get_submodule("0").register_forward_hook(lambda module, args, output: seen.add(output.dtype))
    run(tmp_path, TrainingConfig(steps=1, batch_size=12, optimizer=SGD, autocast="bf16"), job=job)
    assert torch.bfloat16 in seen
    assert all(parameter.dtype == torch.float32 for parameter in job.model.parameters())


def test_the_gradient_is_clipped(tmp_path: Path) -> None:
    job = make_job()
    before = nn.utils.parameters_to_vector(job.model.parameters()).clone()
    plain = OptimizerConfig(lr=1.0)
    run(tmp_path, TrainingConfig(steps=1, batch_size=12, optimizer=plain, clip_norm=1e-3), job=job)
    moved = (nn.utils.parameters_to_vector(job.model.parameters()) - before).norm().item()
    assert moved == pytest.approx(1e-3, rel=1e-2)


def test_compile_goes_through_torch_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)
    _, job = run(tmp_path, TrainingConfig(steps=1, batch_size=12, optimizer=SGD, compile=True))
    assert compiled == [job.model]
