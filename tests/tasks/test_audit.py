"""The audits of a run, inside this process: what is planted is found by the audit that should find it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trivet.core.config import build
from trivet.core.errors import ConfigError
from trivet.tasks import audit
from trivet.tasks.config import RunConfig
from trivet.training.job import Job

BASE: dict[str, Any] = {
    "task": {"model": "resnet8", "width": 4, "augment": {"shift": 1, "flip": True}},
    "training": {
        "steps": 40,
        "batch_size": 8,
        "optimizer": {"lr": 0.05, "momentum": 0.9},
        "schedule": {"name": "cosine"},
    },
    "environment": {"device": "cpu"},
}


def checks(steps: int = 4, **sections: Any) -> dict[str, Mapping[str, Any]]:
    answer = audit.audit_run({"config": {**BASE, **sections}, "steps": steps})
    assert answer["steps"] == min(steps, {**BASE, **sections}["training"]["steps"])
    return {check["check"]: check for check in answer["checks"]}


def found(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [name for name, check in answers.items() if check["findings"]]


@pytest.mark.parametrize(
    "sections",
    [
        {"precision": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 2}},
        {
            "training": {**BASE["training"], "steps": 3, "autocast": "bf16", "clip_norm": 1.0},
            "noise": {"kind": "rounding", "bits": 12},
        },
    ],
    ids=["few bits", "bf16 and noise"],
)
def test_our_own_runs_are_clean(sections: dict[str, Any]) -> None:
    answers = checks(2, **sections)
    assert found(answers) == []
    assert all(check["ok"] for check in answers.values())
    assert list(answers) == ["alias", "gradient", "repeat", "resume", "order"]
    assert ("few bits" in str(answers["gradient"]["notes"])) == ("precision" in sections)
    assert ("without the noise" in str(answers["gradient"]["notes"])) == ("noise" in sections)


def test_the_order_depends_on_seed_and_data_alone() -> None:
    def digest(**more: Any) -> str:
        run = audit.shortened(build(RunConfig, {**BASE, **more}))
        return audit._Run(run, torch.device("cpu"), 2).order()[0]

    assert digest() == digest(precision={"schedule": "static", "bits": 8}) != digest(seed=1)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A job of moments in place of the task's, changed by the function that a test puts here under `job`."""
    changes: dict[str, Any] = {"job": lambda job: job}

    def build_job(run: RunConfig, device: torch.device) -> Job:
        torch.manual_seed(run.seed)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(72, 1))

        def loss(forward: nn.Module, step: int) -> Tensor:
            return forward(torch.rand(8, 1, 8, 8)).square().mean()

        return changes["job"](Job(model=model, loss=loss, evaluate=dict))

    monkeypatch.setattr(audit, "build_job", build_job)
    return changes


def test_nothing_planted(planted: dict[str, Any]) -> None:
    assert all(check["ok"] for check in checks().values())


def test_a_reused_buffer(planted: dict[str, Any]) -> None:
    """A window of three batches in one buffer."""

    def windowed(job: Job) -> Job:
        buffer = np.empty((8, 1, 8, 8), np.float32)

        def loss(forward: nn.Module, step: int) -> Tensor:
            total = torch.zeros(())
            for frame in range(3):
                buffer[:] = np.random.default_rng(3 * step + frame).random(buffer.shape)
                total = total + forward(torch.from_numpy(buffer)).square().mean()
            return total

        return dataclasses.replace(job, loss=loss)

    planted["job"] = windowed
    answers = checks()
    assert found(answers) == ["alias", "gradient"]
    finding = answers["alias"]["findings"][0]
    assert finding["module"] == "0 (Conv2d)"
    assert finding["how"] == "foreign"
    assert "tensors like this" in finding["size"]
    assert "change before backward" in answers["gradient"]["findings"][0]["what"]


def test_a_stray_generator(planted: dict[str, Any]) -> None:
    def stray(job: Job) -> Job:
        first = job.loss

        def loss(forward: nn.Module, step: int) -> Tensor:
            value = first(forward, step)
            return value * float(np.random.default_rng().random()) if step == 1 else value

        return dataclasses.replace(job, loss=loss)

    planted["job"] = stray
    answers = checks()
    assert found(answers) == ["repeat", "resume"]
    assert answers["repeat"]["findings"][0]["where"] == "step 2, loss"
    assert "does not repeat either" in answers["resume"]["findings"][0]["what"]


def test_a_state_that_no_checkpoint_holds(planted: dict[str, Any]) -> None:
    def forgetful(job: Job) -> Job:
        first, calls = job.loss, [0]

        def loss(forward: nn.Module, step: int) -> Tensor:
            calls[0] += 1
            return first(forward, step) * (calls[0] if step else 1)

        return dataclasses.replace(job, loss=loss)

    planted["job"] = forgetful
    answers = checks()
    assert found(answers) == ["resume"]
    assert "save and load with the model" in answers["resume"]["findings"][0]["advice"]


def test_the_same_batch_again(planted: dict[str, Any]) -> None:
    planted["job"] = lambda job: dataclasses.replace(
        job, loss=lambda forward, step: forward(torch.ones(8, 1, 8, 8)).mean()
    )
    answers = checks()
    assert found(answers) == ["order"]
    assert answers["order"]["findings"][0]["size"] == "3 of 3 batches after the first"


def test_what_cannot_be_done_says_so(planted: dict[str, Any]) -> None:
    def narrow(job: Job) -> Job:
        def refuse(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs[0].dtype != torch.float32:
                raise RuntimeError("float32 only")

        job.model.register_forward_pre_hook(refuse)
        return job

    planted["job"] = narrow
    answers = checks(2)
    assert answers["gradient"]["ok"] is None
    assert "float32 only" in answers["gradient"]["summary"]
    assert all(answers[name]["ok"] for name in ("alias", "repeat", "resume", "order"))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="a command cannot be audited"):
        audit.audit_run({"config": {"task": {"command": "true"}}, "steps": 2})
    channels_last = {**BASE["training"], "channels_last": True}
    with pytest.raises(ConfigError):  # refused as a whole, not audit by audit
        audit.audit_run({"config": {**BASE, "training": channels_last}, "steps": 2})
    with pytest.raises(ConfigError):
        audit.audit_run({"config": {**BASE, "task": {"model": "resnet9"}}, "steps": 2})
    with pytest.raises(ValueError, match="training"):
        audit.shortened(build(RunConfig, {"task": {"command": "true"}}))
