"""Two processes of a test: they train tiny runs of three tasks, whole or to half and from half on.

The second is forked after the imports, which take longer than all the training.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from trivet.core.config import build
from trivet.tasks.base import build_job, task_module
from trivet.tasks.config import RunConfig
from trivet.training.checkpoint import Checkpoints
from trivet.training.loop import Fit, fit
from trivet.training.metrics import MetricsLog
from trivet.training.ranks import Ranks, joined

STEPS = 4
RR = {"schedule": "LR", "q_min": 4, "q_max": 8, "num_cycles": 1}
IMAGES = {"task": {"name": "image-classification", "data": "fashion-mnist", "model": "python:ranks_worker:net"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": IMAGES,
    "quantized": {**IMAGES, "precision": RR},
    "published": {**IMAGES, "precision": {**RR, "quantizer": "published"}},
    "text": {"task": {"name": "language-model", "hidden": 6, "bptt": 5, "dropout": 0.0}, "precision": RR},
    "fsdp2": {**IMAGES, "precision": RR},
}


def net(num_classes: int) -> torch.nn.Module:
    """Few layers, as every collective of two processes on one core waits for a turn."""
    layers = [torch.nn.Conv2d(1, 4, 5, stride=4), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(4 * 36, num_classes))


def train(name: str, folder: Path, ranks: Ranks, *, stop_after: int = STEPS) -> Fit:
    """A run in `folder/name`, resumed if there is a checkpoint; it is asked to stop after some steps."""
    content = VARIANTS[name]
    if name == "text":
        content = {**content, "task": {**content["task"], "data": os.environ["WORDS"]}}
    training = {
        "steps": STEPS,
        "batch_size": 8,
        "log_every": 1,
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
    }
    run = build(RunConfig, {"training": training, "seed": 3, **content})
    assert run.training is not None
    ranks = replace(ranks, strategy="fsdp2" if name == "fsdp2" else "ddp")
    job = build_job(run, torch.device("cpu"))
    job.evaluate = lambda: {"parameters": float(sum(p.float().abs().sum() for p in _whole(job.model)))}
    steps = iter(range(STEPS + 1))
    return fit(
        job,
        run.training,
        device=torch.device("cpu"),
        log=MetricsLog(folder / name / "metrics.jsonl"),
        checkpoints=Checkpoints(folder / name / "checkpoint"),
        should_stop=lambda: next(steps) >= stop_after,
        ranks=ranks,
    )


def _whole(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]  # type: ignore[operator]


def main(folder: Path, begun: Path) -> None:
    """Args: folder: of runs begun here; begun: of runs that one process has brought to half."""
    torch.set_num_threads(1)
    with joined(torch.device("cpu")) as ranks:
        for name in VARIANTS:
            train(name, folder, ranks)
        for name in ("quantized", "text", "fsdp2"):
            train(name, folder / "half", ranks, stop_after=STEPS // 2)
            train(name, begun, ranks)


def fork() -> int:
    """Become two ranks with the variables that torchrun sets; the first one gets the other's process number, that 0."""
    for task in ("image-classification", "language-model"):
        task_module(task)
    other = os.fork()
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if other else "1"
    return other


if __name__ == "__main__":
    second = fork()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    if second:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
