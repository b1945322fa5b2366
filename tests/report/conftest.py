"""A made-up study written as real run folders: every number is known, nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.core.io import append_jsonl, write_json
from trivet.core.runfolder import RunFolder, RunResult
from trivet.study import PlannedRun, Results, StudySpec
from trivet.study.plan import plan
from trivet.study.store import Store

ARMS = ("fp32", "static8", "RR", "ER")
EFFECTS = {"fp32": 0.0, "static8": 0.0002, "RR": -0.009, "ER": -0.003}
STEPS = range(10, 401, 10)
MARGIN = 0.005

State = Callable[[str, int], str]
Make = Callable[..., Results]


def bits_at(arm: str, step: int) -> int:
    """Bits that the made-up run logs."""
    if arm in ("fp32", "static8"):
        return 32 if arm == "fp32" else 8
    phase = (step % 100) / 100
    return 3 + round(5 * (phase if arm == "RR" else math.exp(-3 * phase)))


def accuracy(index: int, seed: int) -> float:
    """Final accuracy of an arm by position; a seed's share is common to all arms, as in a paired study."""
    noise = np.random.default_rng([seed, index]).standard_normal()
    return 0.9 + 0.003 * np.random.default_rng(seed).standard_normal() + EFFECTS[ARMS[index]] + 0.001 * noise


def one_bad_of_each(arm: str, seed: int) -> str:
    """All runs finish but two."""
    return {("ER", 5): "diverged", ("RR", 6): "failed"}.get((arm, seed), "finished")


def all_finished(arm: str, seed: int) -> str:
    """Every run finishes."""
    return "finished"


def _write_run(folder: RunFolder, run: PlannedRun, index: int, state: str) -> None:
    kind = ARMS[index]
    if state == "failed":
        write_json(folder.error_path, {"type": "RuntimeError", "message": "out of <memory>", "traceback": ""})
    final = accuracy(index, run.seed)
    rows: list[dict[str, Any]] = []
    for step in STEPS:
        loss, blown = 2.3 * math.exp(-step / 60) + 0.3, state == "diverged" and step > 200
        loss = loss * math.exp((step - 200) / 10) if blown else loss
        row = {"step": step, "train_loss": loss, "bits": bits_at(kind, step)}
        if step % 50 == 0:
            row |= {"test_accuracy": final * (1 - math.exp(-step / 60)), "test_loss": loss * 1.1}
        rows.append(row)
        if blown and step >= 300:
            break
    append_jsonl(folder.metrics_path, rows)
    write_json(folder.environment_path, environment())
    if state not in ("finished", "diverged"):
        return
    costs = {"bitops": 1e12 * sum(bits_at(kind, step) ** 2 for step in STEPS) / 40, "train_seconds": 5.0 + index}
    metrics = {"test_accuracy": final, "test_loss": 0.3} if state == "finished" else {}
    folder.write_result(RunResult(outcome=state, metrics=metrics, steps=rows[-1]["step"], seconds=9.0, **costs))


def environment() -> dict[str, Any]:
    """An environment record like those of real runs."""
    settings = {"device": "cpu", "threads": 1, "deterministic": False, "matmul_precision": "highest"}
    return {
        "requested": {**settings, "device": "auto"},
        "realised": settings,
        "not_realised": [],
        "machine": {"system": "Linux", "cores": 2},
        "packages": {"torch": "2.14.1", "numpy": "2.4.6"},
        "variables": {"OMP_NUM_THREADS": "1"},
    }


def make_study(
    folder: Path, *, names: tuple[str, ...] = ARMS, seeds: int = 8, state: State = one_bad_of_each
) -> Results:
    """Write the study folder of `names` (an arm's numbers depend on its position) and read it back."""
    patches: tuple[dict[str, Any], ...] = (
        {},
        {"schedule": "static", "bits": 8},
        {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 4},
        {"schedule": "ER", "q_min": 3, "q_max": 8, "num_cycles": 4},
    )
    spec = StudySpec.from_mapping(
        {
            "name": "made-up",
            "base": {"task": {"name": "image-classification", "model": "resnet8"}, "training": {"steps": 400}},
            "factors": {"precision": dict(zip(names, patches, strict=False))},
            "seeds": seeds,
            "metric": {"name": "test_accuracy", "margin": MARGIN},
        }
    )
    store = Store(folder)
    store.save_spec(spec)
    for run in plan(spec):
        index = names.index(run.arm)
        if (how := state(ARMS[index], run.seed)) != "pending":
            _write_run(store.prepare(run), run, index, how)
    return Results.load(folder)


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Four arms × 8 seeds with one diverged and one failed run. Read only."""
    return make_study(tmp_path_factory.mktemp("study") / "made-up")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make_study` in a folder of its own."""

    def made(**options: Any) -> Results:
        return make_study(tmp_path / "made-up", **options)

    return made
