from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from trivet.cli.costs import answer
from trivet.core.config import build, merge
from trivet.core.errors import ConfigError, MissingDataError, MissingExtraError
from trivet.core.runfolder import RunFolder
from trivet.ghn import GHN, GHNConfig
from trivet.study.plan import plan
from trivet.study.spec import StudySpec
from trivet.tasks.config import RunConfig
from trivet.tasks.node_classification import build_job, figures, roc_auc
from trivet.tasks.run import run_task

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric") is None, reason="needs `pip install 'trivet[graphs]'`"
)

MakeRun = Callable[..., RunFolder]
Start = Callable[[RunFolder], "subprocess.Popen[str]"]
CPU = torch.device("cpu")

BASE: dict[str, Any] = {
    "task": {"name": "node-classification", "data": "sbm", "hidden": 8, "quantize_aggregation": True},
    "training": {
        "steps": 40,
        "batch_size": 1,
        "optimizer": {"name": "adam", "lr": 0.02, "weight_decay": 5e-4},
        "log_every": 10,
        "evaluate_every": 20,
        "checkpoint_every": 8,
    },
    "environment": {"device": "cpu", "threads": 1},
    "seed": 3,
}


def run_of(patch: dict[str, Any] | None = None) -> RunConfig:
    return build(RunConfig, merge(BASE, patch or {}))


@pytest.mark.parametrize(
    ("task", "precision", "least"),
    [
        ({}, {}, 0.76),
        ({}, {"schedule": "static", "bits": 8}, 0.76),
        ({"model": "sage"}, {"schedule": "RR", "q_min": 4, "q_max": 8, "num_cycles": 2}, 0.55),
        ({"model": "gat", "hidden": 16, "heads": 4}, {"schedule": "static", "bits": 8}, 0.7),
        ({"layers": 3, "norm": "layer", "quantize_aggregation": False}, {"schedule": "static", "bits": 6}, 0.7),
    ],
)
def test_a_run_learns_the_built_in_graph(
    task: dict[str, Any], precision: dict[str, Any], least: float, make_run: MakeRun
) -> None:
    """Chance is 0.2; edges alone, by spreading the known labels over them, give 0.67."""
    folder = make_run(config=merge(BASE, {"task": task, "precision": precision, "training": {"checkpoint_every": 0}}))
    assert run_task(folder.path) == 0
    metrics = folder.read_result().metrics
    parts = [f"{part}_{name}" for part in ("test", "valid") for name in ("accuracy", "loss", "roc_auc")]
    assert set(metrics) == {*parts, "train_loss"}
    assert least < metrics["test_accuracy"] < 0.9
    assert metrics["test_roc_auc"] > metrics["test_accuracy"]
    assert "1,000 nodes (17 without edges, 0 without label)" in folder.log_path.read_text()


def test_kill_9_then_the_same_command_gives_the_same_bits(
    make_run: MakeRun, start: Start, runs: SimpleNamespace
) -> None:
    config = merge(BASE, {"precision": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 2}})
    config["training"] |= {"steps": 96, "evaluate_every": 0}
    whole, cut = make_run("whole", config=config), make_run("cut", config=config)
    assert run_task(whole.path) == 0
    process = start(cut)
    deadline = time.monotonic() + 200
    while max((path.name for path in cut.checkpoint_path.glob("step-*")), default="") < "step-00000008":
        assert process.poll() is None, cut.log_path.read_text()
        assert time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert not cut.result_path.exists()
    assert run_task(cut.path) == 0
    assert "resumed at step" in cut.log_path.read_text()
    runs.assert_same(cut, whole)


def small_graph(folder: Path, **changes: Any) -> str:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "edge_index": random.integers(0, 38, (2, 60)),
        "features": random.random((40, 6), np.float32),
        "labels": np.arange(40) % 2,
        "train_idx": np.arange(20),
        "val_idx": np.arange(20, 30),
        "test_idx": np.arange(30, 40),
    }
    np.savez(folder / "small.npz", **{**arrays, **changes})
    return str(folder / "small.npz")


def test_nodes_without_a_label_count_in_no_loss_and_no_metric(tmp_path: Path) -> None:
    """The loss is the mean over the labelled nodes of the training part, by hand; features of the others matter."""
    labels = np.arange(40) % 2
    labels[[0, 5, 33, 39]] = -1
    file = small_graph(tmp_path, labels=labels)
    job = build_job(run_of({"task": {"data": file, "dropout": 0.0}}), CPU)
    data = np.load(file)
    logits = job.model(torch.from_numpy(data["features"])[None])[0]
    kept = [node for node in range(20) if node not in (0, 5)]
    torch.testing.assert_close(job.loss(job.model, 0), F.cross_entropy(logits[kept], torch.from_numpy(labels)[kept]))
    tested = [node for node in range(30, 40) if node not in (33, 39)]
    right = logits.argmax(1).numpy()[tested] == labels[tested]
    job.model.eval()
    assert job.evaluate()["test_accuracy"] == right.mean()


def test_two_classes_have_one_area(tmp_path: Path) -> None:
    job = build_job(run_of({"task": {"data": small_graph(tmp_path), "dropout": 0.0}}), CPU)
    job.model.eval()
    logits = job.model(torch.from_numpy(np.load(tmp_path / "small.npz")["features"])[None])[0, 30:].detach().numpy()
    wanted = roc_auc(logits[:, 1] - logits[:, 0], np.arange(30, 40) % 2 == 1)
    assert job.evaluate()["test_roc_auc"] == pytest.approx(wanted)
    one = small_graph(tmp_path, labels=np.where(np.arange(40) >= 30, 1, np.arange(40) % 2))
    assert "test_roc_auc" not in build_job(run_of({"task": {"data": one}}), CPU).evaluate()


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_roc_auc_against_all_pairs(rows: list[tuple[int, bool]]) -> None:
    scores, positive = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows])
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    found = roc_auc(scores, positive)
    if not pairs:
        assert math.isnan(found)
        return
    assert found == pytest.approx(sum(pairs) / len(pairs))
    assert roc_auc(-scores, positive) == pytest.approx(1 - found)


def test_figures_against_torch() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(50, 4, dtype=torch.float64) * 30, torch.randint(4, (50,))
    found = figures(logits.numpy(), labels.numpy())
    assert found["loss"] == pytest.approx(F.cross_entropy(logits, labels).item())
    assert found["accuracy"] == (logits.argmax(1) == labels).double().mean().item()
    chances = logits.log_softmax(1).numpy()
    assert found["roc_auc"] == pytest.approx(np.mean([roc_auc(chances[:, k], labels.numpy() == k) for k in range(4)]))


@pytest.mark.parametrize("aggregation", [True, False])
def test_what_is_quantized_is_what_is_counted(aggregation: bool) -> None:
    """MACs of a GCN on the built-in graph by hand; the sum over neighbors counts at 8 or at 32 bits."""
    precision = {"schedule": "static", "bits": 8}
    job = build_job(run_of({"task": {"quantize_aggregation": aggregation}, "precision": precision}), CPU)
    edges = 4104 + 1000
    products, sums = 1000 * (200 * 8 + 8 * 5), edges * (8 + 5)
    assert job.observe(3)["bitops"] == 3 * (products * 192 + sums * (192 if aggregation else 3072))
    job.loss(job.model, 0).backward()
    controller: Any = job.steppers["precision"]
    assert {row.name: row.quantised for row in controller.report()} == {
        "convolutions.0:neighbors": aggregation,
        "convolutions.0.lin:linear": True,
        "convolutions.1:neighbors": aggregation,
        "convolutions.1.lin:linear": True,
    }
    controller.step()
    assert controller.cost == job.observe(1)["bitops"]


def test_evaluation_is_at_the_declared_precision() -> None:
    job = build_job(run_of({"precision": {"schedule": "RR", "q_min": 2, "q_max": 8, "num_cycles": 2}}), CPU)
    job.loss(job.model, 0)
    job.model.eval()
    controller: Any = job.steppers["precision"]
    with torch.no_grad():
        assert controller.bits == 2
        found = job.evaluate()["test_loss"]
        features = torch.from_numpy(run_of().task.load().features)[None]  # type: ignore[attr-defined]
        with controller.at(8):
            high = job.model(features)
        with controller.at(2):
            assert not torch.equal(job.model(features), high)
    graph = run_of().task.load()  # type: ignore[attr-defined]
    assert found == figures(high[0].double().numpy()[graph.test], graph.labels[graph.test])["loss"]


def test_a_hypernetwork_predicts_what_it_covers_and_says_what_not(tmp_path: Path, caplog: Any) -> None:
    ghn = str(GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0).save_pretrained(tmp_path / "g"))
    random = dict(build_job(run_of(), CPU).model.named_parameters())
    with caplog.at_level("INFO"):
        model = build_job(run_of({"init": {"ghn": ghn, "head": "resize"}}), CPU).model
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, random[name])}
    assert {"convolutions.0.lin.weight", "convolutions.1.lin.weight"} <= changed
    assert "init: " in caplog.text


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"task": {"model": "gnc"}}, "task.model", "did you mean 'gcn'"),
        ({"task": {"hidden": 0}}, "task", r"`hidden=0` must lie in \[1, 16384\]"),
        ({"task": {"layers": 65}}, "task", "layers=65"),
        ({"task": {"heads": 2}}, "task", "no effect with `model: gcn`"),
        ({"task": {"model": "gat", "heads": 3}}, "task", "`heads=3` must divide `hidden=8`"),
        ({"task": {"dropout": 1.0}}, "task", "`dropout=1.0`"),
        ({"task": {"input_dropout": -0.1}}, "task", "`input_dropout=-0.1`"),
        ({"task": {"split": -1}}, "task", "split=-1"),
        ({"task": {"norm": "batch"}}, "task.norm", "none, layer"),
        ({"task": {"quantise_aggregation": True}}, "task.quantise_aggregation", "did you mean 'quantize_aggregation'"),
        ({"task": {"command": "x"}}, "task", "belong to a command"),
    ],
)
def test_refused_when_built(patch: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(RunConfig, merge(BASE, patch), file="s.yaml")
    assert [problem.key for problem in caught.value.problems] == [key]


def test_refused_by_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = small_graph(tmp_path, labels=np.arange(40) % 2 - 2)
    with pytest.raises(
        ConfigError, match=r"found 128; allowed: 1, as every step takes the whole graph(.|\n)*label -2"
    ) as found:
        run_of({"training": {"batch_size": 128}, "task": {"data": bad}}).check(file="s.yaml")
    assert [problem.key for problem in found.value.problems] == ["training.batch_size", "task.data"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"trivet\[graphs\]"):
        run_of().check()


def test_missing_graph_is_exit_code_2(make_run: MakeRun) -> None:
    config = merge(BASE, {"task": {"data": "no-such-graph.npz"}})
    with pytest.raises(MissingDataError, match=r"graph 'no-such-graph\.npz' is not on this machine"):
        build(RunConfig, config).check()
    folder = make_run(config=config)
    assert run_task(folder.path) == 2
    error = folder.read_error()
    assert error is not None
    assert "no-such-graph" in error["message"]
    assert not folder.result_path.exists()


def test_a_study_is_counted_planned_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `trivet cost` asks, and `run` with the warm server, on one study file."""
    from trivet.__main__ import main

    shorter = {key: value for key, value in BASE.items() if key != "seed"}
    shorter["training"] = {**BASE["training"], "steps": 20, "evaluate_every": 0, "checkpoint_every": 0}
    study = {
        "name": "graph",
        "base": shorter,
        "factors": {"precision": {"fp32": {}, "static8": {"schedule": "static", "bits": 8}}},
        "seeds": 1,
        "metric": {"name": "test_accuracy", "margin": 0.1},
    }
    (tmp_path / "graph.yaml").write_text(json.dumps(study))
    monkeypatch.chdir(tmp_path)
    runs = [{"name": run.arm, "config": run.config} for run in plan(StudySpec.from_yaml(tmp_path / "graph.yaml"))]
    cost = {row["name"]: row for row in answer({"runs": runs})["runs"]}
    assert cost["static8"]["bitops"] == cost["fp32"]["bitops"] * 192 / 3072
    monkeypatch.setattr(sys, "argv", ["trivet", "run", "graph.yaml", "--json", "--no-report", "--slots", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert not ended.value.code, shown.err
    result = json.loads(shown.out)
    assert [arm["runs"]["finished"] for arm in result["arms"]] == [1, 1]
    folders = [RunFolder(path.parent) for path in (tmp_path / "studies" / "graph").glob("*/result.json")]
    assert {folder.read_result().bitops for folder in folders} == {row["bitops"] for row in cost.values()}


def test_cora_reaches_its_level(shared_dir: Path) -> None:
    """One seed of what the recipe does with ten; published: 0.815 (arXiv 1609.02907)."""
    from trivet.training.checkpoint import Checkpoints
    from trivet.training.loop import fit
    from trivet.training.metrics import MetricsLog

    file = str(shared_dir / "data" / "planetoid" / "cora.npz")
    training = {"steps": 80, "optimizer": {"lr": 0.02}, "evaluate_every": 0, "checkpoint_every": 0}
    run = run_of({"task": {"data": file, "hidden": 16, "row_normalize": True}, "training": training})
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "cora"
    folder.mkdir(parents=True, exist_ok=True)
    assert run.training is not None
    end = fit(
        build_job(run, CPU),
        run.training,
        device=CPU,
        log=MetricsLog(folder / "metrics.jsonl"),
        checkpoints=Checkpoints(folder, key="cora"),
    )
    assert 0.79 < end.metrics["test_accuracy"] < 0.84
