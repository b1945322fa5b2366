"""Curvature at chosen steps of a run of any built-in task, as its `curvature` section asks for it.

The loss is that of the first batches of the run, in their order, computed in float64 at full precision and without
noise by a job of its own that gets the run's parameters: the run does not notice. Every arm with one seed is measured
on the same examples. The figures stand in the row of their step in metrics.jsonl, and as `NAME_at_STEP` in the run's
result.

Not covered: what the arithmetic of the arm makes of the Hessian; all arms are measured in the same one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trivet.audit.curvature_config import FIGURES, CurvatureConfig
from trivet.audit.curvatures import curvature
from trivet.audit.gradients import WindowError
from trivet.audit.noise_config import NoiseConfig
from trivet.core.seeding import derive
from trivet.ghn.init_config import InitConfig
from trivet.precision.config import PrecisionConfig
from trivet.tasks.config import RunConfig
from trivet.training.checkpoint import rng_state, set_rng_state
from trivet.training.job import Job

logger = logging.getLogger(__name__)


class CurvatureProbe:
    """Measures a run's model at the steps that it asks for; a `Stepper`, so that a resume keeps what was measured."""

    def __init__(self, run: RunConfig, model: nn.Module, device: torch.device) -> None:
        self._config, self._seed = run.curvature, derive(run.seed, "curvature")
        self._last = run.training.steps if run.training else 0
        self._model, self._device = model, device
        self._plain = plain(run)
        self._job: Job | None = None
        self._step = 0
        self._rows: dict[int, dict[str, float]] = {}

    def step(self) -> None:
        """After the update of a step."""
        self._step += 1

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs."""
        return {"step": self._step, "rows": dict(self._rows)}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take back what `state_dict` gave."""
        self._step, self._rows = state["step"], dict(state["rows"])

    def row(self, step: int) -> dict[str, float]:
        """The figures of the step just done; nothing at steps that are not asked for."""
        if step not in self._config.at or step != self._step:
            return self._rows.get(step, {})
        if step not in self._rows:
            self._rows[step] = self._measured()
        return self._rows[step]

    def final(self) -> dict[str, float]:
        """After the last step: every figure, with its step in its name."""
        if self._step != self._last:
            return {}
        self.row(self._step)
        return {f"{name}_at_{step}": value for step, row in self._rows.items() for name, value in row.items()}

    def _measured(self) -> dict[str, float]:
        state = rng_state()
        try:
            if self._job is None:
                from trivet.tasks.base import build_job

                self._job = build_job(self._plain, self._device)
            self._job.model.load_state_dict(self._model.state_dict())
            config = self._config
            found = curvature(
                self._job.model.train(),
                self._loss,
                config.batches,
                steps=config.steps,
                probes=config.probes,
                seed=self._seed,
            )
        except WindowError as error:
            logger.warning("step %d: no curvature: %s", self._step, error)
            return {}
        finally:
            set_rng_state(state)
        logger.info("step %d: %s", self._step, found)
        return {name: float(getattr(found, name)) for name in FIGURES}

    def _loss(self, model: nn.Module, batches: int) -> Tensor:
        if self._job is None:
            raise RuntimeError("the job is built before its loss is asked for")
        total = self._job.loss(model, 0)
        for step in range(1, batches):
            total = total + self._job.loss(model, step)
        return total / batches


def plain(run: RunConfig) -> RunConfig:
    """The same run as it is measured: by torch, at full precision, undisturbed, from its own random parameters."""
    if run.training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    training = dataclasses.replace(run.training, channels_last=False, compile=False)
    return dataclasses.replace(
        run,
        init=InitConfig(),
        precision=PrecisionConfig(),
        noise=NoiseConfig(),
        environment=dataclasses.replace(run.environment, backend="torch"),
        curvature=CurvatureConfig(),
        training=training,
    )


def with_curvature(job: Job, run: RunConfig, device: torch.device) -> Job:
    """The same job, its rows and final metrics holding the curvature that the run asks for."""
    probe = CurvatureProbe(run, job.model, device)

    def evaluate() -> Mapping[str, float]:
        return {**job.evaluate(), **probe.final()}

    def observe(step: int) -> Mapping[str, float]:
        return {**job.observe(step), **probe.row(step)}

    return dataclasses.replace(
        job,
        evaluate=evaluate,
        observe=observe,
        steppers={**job.steppers, "curvature": probe},
        log_at=frozenset(run.curvature.at),
    )
