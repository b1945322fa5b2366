"""The first steps of a run with checksums of its bits: what `trivet bisect` asks a process of its own for.

`python -m trivet.cli.traces`, a request on standard input and the answer on standard output; see `trivet.cli.child`.

Not covered: commands, whose training trivet does not see.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.audit.trace import StepLog, WeightTrace
from trivet.cli.child import serve
from trivet.core.config import build
from trivet.tasks.base import build_job
from trivet.tasks.config import RunConfig
from trivet.training.checkpoint import Checkpoints
from trivet.training.environment import apply_environment
from trivet.training.loop import fit
from trivet.training.metrics import MetricsLog


def traced(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train for some steps and say what the bits were.

    Args:
        request: `config`: a run; `steps`: how many; `keep`: steps after which weights are kept; `weights`: file for
            them (.npz); `watch`: step whose tensors are logged, counted from 0, or -1.

    Returns:
        `start`, `checksums`, `losses`, `rows`, `not_realised`.

    Raises:
        ValueError: The run is a command.
        ConfigError: The run is refused.
    """
    run = build(RunConfig, request["config"])
    run.check()
    if run.task.is_command or run.training is None:
        raise ValueError(
            "a command's training cannot be bisected: trivet does not see its tensors; use a built-in task"
        )
    realised = apply_environment(run.environment)
    device = torch.device(realised.device)
    job = build_job(run, device)
    trace, log = WeightTrace(job.model, request["keep"]), StepLog(job.model)
    losses: list[Tensor] = []
    steps, watch, loss_of = int(request["steps"]), int(request["watch"]), job.loss

    def loss(model: nn.Module, step: int) -> Tensor:
        if step == watch:
            log.begin()
        value = loss_of(model, step)
        losses.append(value.detach())
        return value

    class Closing:
        """Ends the log right after the update of the watched step."""

        def step(self) -> None:
            trace.step()
            if len(trace.checksums) == watch + 1:
                log.end()

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            """Nothing is resumed."""

    watched = dataclasses.replace(job, loss=loss, steppers={**job.steppers, "trace": Closing()})
    with tempfile.TemporaryDirectory() as folder:
        training = dataclasses.replace(run.training, checkpoint_every=0, evaluate_every=0)
        fit(
            watched,
            training,
            device=device,
            log=MetricsLog(Path(folder) / "metrics.jsonl"),
            checkpoints=Checkpoints(Path(folder) / "checkpoint"),
            should_stop=lambda: len(trace.checksums) >= steps,
        )
    if request["weights"]:
        kept: dict[str, Any] = {str(step): weights.numpy() for step, weights in trace.weights.items()}
        np.savez(request["weights"], **kept)
    return {
        "start": trace.start,
        "checksums": trace.checksums,
        "losses": [float(value).hex() for value in losses],
        "rows": log.rows,
        "not_realised": list(realised.not_realised),
        "evidence": dict(realised.evidence),
    }


if __name__ == "__main__":
    sys.exit(serve(traced))
