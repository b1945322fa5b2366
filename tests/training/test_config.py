from __future__ import annotations

import subprocess
import sys

import pytest

from trivet.core.config import build, to_plain
from trivet.core.errors import ConfigError
from trivet.training.config import LRScheduleConfig, OptimizerConfig, TrainingConfig


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": 5, "batch_size": 0}, "batch_size=0"),
        ({"steps": 5, "log_every": 0}, "log_every=0"),
        ({"steps": 5, "evaluate_every": -1}, "evaluate_every=-1"),
        ({"steps": 5, "checkpoint_every": -1}, "checkpoint_every=-1"),
        ({"steps": 5, "clip_norm": float("nan")}, "clip_norm=nan"),
        ({"steps": 5, "schedule": LRScheduleConfig(warmup_steps=5)}, "warmup_steps=5"),
    ],
)
def test_training_refuses(values: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TrainingConfig(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"lr": 0},
        {"lr": float("inf")},
        {"momentum": 1.0},
        {"weight_decay": -1e-4},
        {"betas": (0.9, 1.0)},
        {"eps": 0.0},
        {"name": "adam", "momentum": 0.9},
        {"nesterov": True},
    ],
)
def test_optimizer_refuses(values: dict) -> None:
    with pytest.raises(ValueError, match="`"):
        OptimizerConfig(**values)


@pytest.mark.parametrize(
    "values",
    [{"warmup_steps": -1}, {"milestones": (0.75, 0.5)}, {"milestones": (0.0,)}, {"gamma": 0.0}, {"final": 1.5}],
)
def test_schedule_refuses(values: dict) -> None:
    with pytest.raises(ValueError, match="`"):
        LRScheduleConfig(**values)


def test_round_trip_through_plain_values() -> None:
    config = TrainingConfig(
        steps=7,
        optimizer=OptimizerConfig(name="adamw", lr=1e-3),
        schedule=LRScheduleConfig(name="cosine", warmup_steps=2),
    )
    assert build(TrainingConfig, to_plain(config)) == config


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.name.*did you mean 'adamw'"):
        build(TrainingConfig, {"steps": 1, "optimizer": {"name": "adamww"}})
    with pytest.raises(ConfigError, match=r"batchsize.*did you mean 'batch_size'"):
        build(TrainingConfig, {"steps": 1, "batchsize": 4})


def test_configuration_loads_no_torch() -> None:
    code = "import sys, trivet.training.config, trivet.training, trivet.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
