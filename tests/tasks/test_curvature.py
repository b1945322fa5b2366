"""Curvature at chosen steps of a run: measured, reported, kept over a resume, and without effect on the run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trivet import audit
from trivet.audit.curvature_config import FIGURES, CurvatureConfig
from trivet.core.config import build, digest, load_yaml, to_plain
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.study import StudySpec
from trivet.tasks.base import build_job
from trivet.tasks.config import RunConfig
from trivet.tasks.run import run_task
from trivet.training.checkpoint import Checkpoints
from trivet.training.loop import fit
from trivet.training.metrics import MetricsLog

MakeRun = Callable[..., RunFolder]
CPU = torch.device("cpu")
SHORT = {"steps": 6, "log_every": 4, "evaluate_every": 0, "checkpoint_every": 0, "batch_size": 4}
QUICK = {"at": [3, 6], "batches": 2, "steps": 3, "probes": 2}
PATCH: dict[str, Any] = {"task": {"width": 2, "train_examples": 32}, "training": SHORT}


def test_a_run_reports_its_curvature_and_is_the_same_run(make_run: MakeRun, runs: SimpleNamespace) -> None:
    plain, measured = make_run("plain", PATCH), make_run("measured", {**PATCH, "curvature": QUICK})
    assert [run_task(folder.path) for folder in (plain, measured)] == [0, 0]
    found = {row["step"]: row for row in runs.rows(measured)}
    assert list(found) == [3, 4, 6]
    for step in (3, 6):
        assert set(FIGURES) <= set(found[step])
        assert found[step]["hessian_min"] < 0 < found[step]["hessian_max"]
        assert 0 <= found[step]["negative_mass"] <= 1
    result = measured.read_result()
    for name in FIGURES:
        assert [result.metrics[f"{name}_at_{step}"] for step in (3, 6)] == [found[3][name], found[6][name]]
    others = {name: value for name, value in result.metrics.items() if "_at_" not in name}
    assert others == plain.read_result().metrics
    assert not set(FIGURES) & set(found[4])


def test_the_figures_are_those_of_the_function(make_run: MakeRun) -> None:
    folder = make_run(patch={**PATCH, "curvature": {**QUICK, "at": [6]}})
    assert run_task(folder.path) == 0
    run = build(RunConfig, load_yaml(folder.config_path))
    job = build_job(dataclasses.replace(run, curvature=CurvatureConfig()), CPU)
    checkpoint = Checkpoints(folder.checkpoint_path, key=digest(run)).load()
    assert checkpoint is not None
    job.model.load_state_dict(checkpoint.model)
    found = audit.curvature(job.model, lambda m, _: (job.loss(m, 0) + job.loss(m, 1)) / 2, None, steps=3, probes=2)
    metrics = folder.read_result().metrics
    assert metrics["gradient_norm_at_6"] == pytest.approx(found.gradient_norm, rel=1e-6)
    assert metrics["hessian_max_at_6"] == pytest.approx(found.hessian_max, rel=0.3)  # other start vectors


def test_a_run_of_other_arithmetic_is_measured_in_float64(make_run: MakeRun) -> None:
    few = {"precision": {"schedule": "static", "bits": 8}, "noise": {"kind": "rounding", "bits": 8}}
    patch = {**PATCH, **few, "training": {**SHORT, "autocast": "bf16"}, "curvature": {**QUICK, "at": [2]}}
    folder = make_run(patch=patch)
    assert run_task(folder.path) == 0
    assert math.isfinite(folder.read_result().metrics["hessian_min_at_2"])


def test_a_resume_keeps_what_was_measured(tmp_path: Path, runs: SimpleNamespace) -> None:
    base = {**runs.base, "task": {**runs.base["task"], **PATCH["task"]}, "training": SHORT, "curvature": QUICK}
    run = build(RunConfig, base)
    ends = []
    for name, stops in (("whole", []), ("parts", [4])):
        log, checkpoints = MetricsLog(tmp_path / f"{name}.jsonl"), Checkpoints(tmp_path / name)
        for stop in [*stops, 99]:
            calls = iter(range(1000))
            assert run.training is not None
            end = fit(
                build_job(run, CPU), run.training, device=CPU, log=log, checkpoints=checkpoints,
                should_stop=lambda calls=calls, stop=stop: next(calls) >= stop,
            )  # fmt: skip
        ends.append(end)
    assert ends[0].metrics == ends[1].metrics
    assert "hessian_min_at_3" in ends[1].metrics


def test_a_language_model_is_measured(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat . the dog sat on the cat .\n" * 40)
    task = {"name": "language-model", "data": str(text), "hidden": 4, "layers": 1, "bptt": 5, "dropout": 0.2}
    run = build(RunConfig, {"task": task, "training": {"steps": 2, "batch_size": 4}, "curvature": {**QUICK, "at": [2]}})
    job = build_job(run, CPU)
    assert run.training is not None
    log, checkpoints = MetricsLog(tmp_path / "m.jsonl"), Checkpoints(tmp_path / "c")
    end = fit(job, run.training, device=CPU, log=log, checkpoints=checkpoints)
    assert end.metrics["hessian_max_at_2"] > 0


def refused(sections: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        build(RunConfig, {"task": {"model": "resnet8"}, "training": {"steps": 6}, **sections}).check()
    return str(caught.value)


def test_slips_are_refused_before_the_run() -> None:
    assert "steps up to training.steps, which is 6" in refused({"curvature": {"at": [7]}})
    assert "growing steps" in refused({"curvature": {"at": [3, 2]}})
    assert "no effect without `at`" in refused({"curvature": {"probes": 8}})
    command = {"command": "python x.py", "metrics": {"loss": "loss (.*)"}}
    assert "out of reach" in refused({"task": command, "curvature": {"at": [2]}})


def test_a_study_can_be_about_it_and_older_runs_keep_their_names() -> None:
    content = {"name": "s", "base": {"task": {"model": "resnet8"}, "training": {"steps": 6}}}
    measured = {**content, "base": {**content["base"], "curvature": {"at": [3]}}}  # type: ignore[dict-item]
    spec = StudySpec.from_mapping({**measured, "metric": {"name": "hessian_min_at_3"}})
    assert spec.arms()[0].config["curvature"]["at"] == [3]
    with pytest.raises(ConfigError, match="hessian_min_at_3"):
        StudySpec.from_mapping({**measured, "metric": {"name": "hessian_min_at_4"}})
    assert "curvature" not in to_plain(build(RunConfig, content["base"]))  # type: ignore[arg-type]
