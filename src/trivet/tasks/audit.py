"""The audits of one run of a built-in task, on its first steps: what `trivet audit` asks a process of its own for.

Every audit builds the run anew from its configuration, trains a few steps, and leaves nothing behind. Evaluation is
left out, and so is compilation, which would take longer than all audits together.

Not covered: commands, whose tensors cannot be seen; loader workers, which built-in tasks do not have.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trivet.audit.curvature_config import CurvatureConfig
from trivet.audit.finding import Finding
from trivet.audit.gradients import gradient
from trivet.audit.noise_config import NoiseConfig
from trivet.audit.orders import batch_digest, order
from trivet.audit.repeats import repeat, resume
from trivet.audit.saved import alias
from trivet.audit.trace import weight_checksum
from trivet.core.config import build
from trivet.core.errors import ConfigError, MissingDataError, TrivetError
from trivet.core.io import read_jsonl
from trivet.precision.config import PrecisionConfig
from trivet.tasks.base import build_job
from trivet.tasks.config import RunConfig
from trivet.training.checkpoint import Checkpoints
from trivet.training.environment import apply_environment
from trivet.training.job import Job
from trivet.training.loop import fit
from trivet.training.metrics import MetricsLog

ALIAS_STEPS = 2
"""Steps under the alias detector."""


def audit_run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run every audit.

    Args:
        request: `config`: a run, resolved; `steps`: how many each audit trains, 2 or more.

    Returns:
        `steps` and `checks`, each with `check`, `ok` (None: it could not be done), `summary`, `notes`, `findings` as
        plain values and `seconds`.

    Raises:
        ConfigError: The run is refused.
        ValueError: The run is a command.
    """
    run = build(RunConfig, request["config"])
    run.check()
    if run.task.is_command or run.training is None:
        raise ValueError("a command cannot be audited: trivet does not see its tensors; use trivet.audit in the script")
    device = torch.device(apply_environment(run.environment).device)
    steps = min(int(request["steps"]), run.training.steps)
    audited = _Run(shortened(run), device, steps)
    audits: dict[str, Callable[[], tuple[str, Iterable[str], Iterable[Finding]]]] = {
        "alias": audited.alias,
        "gradient": audited.gradient,
        "repeat": audited.repeat,
        "resume": audited.resume,
        "order": audited.order,
    }
    return {"steps": steps, "checks": [_timed(name, audit) for name, audit in audits.items()]}


def shortened(run: RunConfig) -> RunConfig:
    """The same run without what audits do not need: evaluations, checkpoints, compilation, curvature."""
    if run.training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    kept = run.training.evaluate_every if run.training.schedule.name == "plateau" else 0
    training = dataclasses.replace(run.training, evaluate_every=kept, checkpoint_every=0, log_every=1, compile=False)
    return dataclasses.replace(run, training=training, curvature=CurvatureConfig())


def _timed(name: str, audit: Callable[[], tuple[str, Iterable[str], Iterable[Finding]]]) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        summary, notes, findings = audit()
        found = [finding.to_dict() for finding in findings]
        answer: dict[str, Any] = {"ok": not found, "summary": summary, "notes": list(notes), "findings": found}
    except TrivetError as error:
        if isinstance(error, (ConfigError, MissingDataError)):
            raise  # the run is refused, and not only this audit of it
        answer = {"ok": None, "summary": f"could not be done: {error}", "notes": [], "findings": []}
    return {"check": name, **answer, "seconds": round(time.perf_counter() - started, 2)}


class _Run:
    """One run, audited by its first steps."""

    def __init__(self, run: RunConfig, device: torch.device, steps: int) -> None:
        self.run, self.device, self.steps = run, device, steps

    def alias(self) -> tuple[str, Iterable[str], Iterable[Finding]]:
        """Tensors that change between forward and backward."""
        job = build_job(self.run, self.device)
        with alias(job.model) as found, tempfile.TemporaryDirectory() as folder:
            self._fit(job, Path(folder), min(ALIAS_STEPS, self.steps))
        findings = _grouped(found.findings)
        changed = f"{len(found.findings)} of {found.checked} tensors that backward read had changed"
        notes = [f"{count} tensors not compared: {kind}" for kind, count in found.skipped.items()]
        return f"{changed}, {min(ALIAS_STEPS, self.steps)} steps", notes, findings

    def gradient(self) -> tuple[str, Iterable[str], Iterable[Finding]]:
        """The first step's gradient against float64, at full precision."""
        notes: list[str] = []
        if not self.run.noise.is_silent:
            notes.append("without the noise that the run adds")
        if self.run.precision != PrecisionConfig():
            notes.append("at full precision: at few bits, rounding to a neighboring level is as large as a fault")
        plain = dataclasses.replace(self.run, precision=PrecisionConfig(), noise=NoiseConfig())
        job = build_job(plain, self.device)
        found = gradient(job.model, lambda model, step: job.loss(model, step), 0)
        summary = f"relative L2 {found.relative:.1e} against float64, threshold {found.threshold:.0e}"
        return summary, [*notes, *found.notes], found.findings

    def repeat(self) -> tuple[str, Iterable[str], Iterable[Finding]]:
        """Two runs from the same seed."""

        def fn() -> Any:
            with tempfile.TemporaryDirectory() as folder:
                return self._trained(Path(folder), self.steps, every_step=True)

        found = repeat(fn)
        equal = "two runs are bit-equal" if found.equal else "two runs differ"
        return f"{equal}: {found.compared} values over {self.steps} steps", (), found.findings

    def resume(self) -> tuple[str, Iterable[str], Iterable[Finding]]:
        """An interrupted run against an uninterrupted one."""
        half = self.steps // 2

        def fn(folder: Path, stop: int | None) -> Any:
            return self._trained(folder, stop or self.steps, every_step=False)

        found = resume(fn, stop=half)
        equal = "bit-equal" if found.equal else "different"
        summary = f"{half} + {self.steps - half} steps are {equal} to {self.steps}: {found.compared} values"
        return summary, (), found.findings

    def order(self) -> tuple[str, Iterable[str], Iterable[Finding]]:
        """Hash of what the model is given, step by step."""
        job = build_job(self.run, self.device)
        seen: list[list[str]] = [[]]

        def see(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            tensors = [value for value in inputs if isinstance(value, Tensor)][:1]  # what follows may be a state
            seen[-1].append(batch_digest(tensors))

        handle = job.model.register_forward_pre_hook(see)
        job.steppers = {**job.steppers, "audit": _AfterStep(lambda: seen.append([]))}
        with tempfile.TemporaryDirectory() as folder:
            self._fit(job, Path(folder), self.steps)
        handle.remove()
        found = order(seen[: self.steps])
        return f"hash {found.digest} of the inputs of {self.steps} steps", (), found.findings

    def _trained(self, folder: Path, until: int, *, every_step: bool) -> dict[str, Any]:
        """Train until a step, from what lies in the folder; losses, weights and everything that a checkpoint holds."""
        job = build_job(self.run, self.device)
        weights: list[str] = []
        if every_step:
            job.steppers = {**job.steppers, "audit": _AfterStep(lambda: weights.append(weight_checksum(job.model)))}
        log, checkpoints = self._fit(job, folder, until)
        end = checkpoints.load()
        if end is None:
            raise TrivetError(f"the run diverged within {until} steps; lower the learning rate before it is audited")
        state = {name: value for name, value in end.state.items() if name != "seconds"}
        rows = {f"step {row['step']}, loss": row["train_loss"] for row in log}
        sums = {f"step {step}, weights": value for step, value in enumerate(weights, 1)}
        ordered = dict(sorted({**rows, **sums}.items(), key=lambda item: int(item[0].split()[1].rstrip(","))))
        return {**ordered, "end, model": dict(sorted(end.model.items())), "end, state": state}

    def _fit(self, job: Job, folder: Path, until: int) -> tuple[list[dict[str, Any]], Checkpoints]:
        log, checkpoints = MetricsLog(folder / "metrics.jsonl"), Checkpoints(folder / "checkpoint", key="audit")
        before = checkpoints.load()
        left = itertools.count(before.step if before is not None else 0)
        training = self.run.training
        if training is None:
            raise ValueError("`training` is missing; give at least `steps`")
        fit(
            job,
            training,
            device=self.device,
            log=log,
            checkpoints=checkpoints,
            should_stop=lambda: next(left) >= until,
        )
        return read_jsonl(log.path), checkpoints


class _AfterStep:
    """A `Stepper` that calls a function."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def step(self) -> None:
        self._call()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Nothing is resumed."""


def _grouped(findings: Iterable[Any]) -> list[Finding]:
    """One finding for all tensors of one place, which says how many they are."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for found in findings:
        groups.setdefault((found.where, found.how), []).append(found)
    return [
        dataclasses.replace(same[0], size=f"{same[0].size}; {len(same)} tensors like this")
        if len(same) > 1
        else same[0]
        for same in groups.values()
    ]
