from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from trivet.cli.costs import answer
from trivet.core.config import build, merge
from trivet.core.errors import ConfigError, MissingDataError
from trivet.core.runfolder import RunFolder
from trivet.models import LSTMLanguageModel
from trivet.precision import layer_macs
from trivet.study.plan import plan
from trivet.study.spec import StudySpec
from trivet.tasks.config import RunConfig
from trivet.tasks.language_model import Streams, build_job, mean_loss, quantizes
from trivet.tasks.run import run_task

MakeRun = Callable[..., RunFolder]
Start = Callable[[RunFolder], "subprocess.Popen[str]"]

CHAIN = {"a": "bc", "b": "cd", "c": "da", "d": "ab"}
"""Each word is followed by one of two, with equal chance: perplexity 2 is the best there is."""


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up text: lines of 20 words from a chain with perplexity 2."""
    random = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        line = ["a"]
        for _ in range(19):
            line.append(CHAIN[line[-1]][random.integers(2)])
        lines.append(" ".join(line))
    file = tmp_path_factory.mktemp("text") / "chain.txt"
    file.write_text("\n".join(lines))
    return file


@pytest.fixture
def base(text: Path) -> dict[str, Any]:
    return {
        "task": {"name": "language-model", "data": str(text), "hidden": 12, "bptt": 10, "dropout": 0.1},
        "training": {
            "steps": 44,
            "batch_size": 8,
            "optimizer": {"name": "adam", "lr": 0.02},
            "clip_norm": 0.25,
            "log_every": 10,
            "evaluate_every": 22,
            "checkpoint_every": 8,
        },
        "environment": {"device": "cpu", "threads": 1},
        "seed": 3,
    }


PRECISIONS: dict[str, dict[str, Any]] = {
    "RR": {"precision": {"schedule": "RR", "q_min": 4, "q_max": 8, "num_cycles": 2}},
    "fp32-plateau": {
        "training": {
            "optimizer": {"name": "sgd", "lr": 8.0},
            "schedule": {"name": "plateau", "gamma": 0.25},
            "evaluate_every": 6,
        },
    },
}


def test_streams_against_the_text_itself() -> None:
    """Stream s, step k, place j holds word s · length + k · bptt + j; its target is the next one."""
    words = torch.arange(100)
    streams = Streams(words, 3, 7)  # (100 - 1) // 3 = 33 words a stream, of which 28 fill four steps
    assert streams.per_pass == 4
    for step in range(9):
        inputs, targets, first = streams.batch(step)
        expected = [[s * 28 + step % 4 * 7 + j for j in range(7)] for s in range(3)]
        assert inputs.tolist() == expected
        assert torch.equal(targets, inputs + 1)
        assert first == (step % 4 == 0)


@pytest.mark.parametrize("count", [1, 7, 20, 101])
def test_mean_loss_counts_every_word_once(count: int) -> None:
    """A model that only looks at the word before: its loss is that of the pairs, whatever the streams."""
    torch.manual_seed(0)
    scores = torch.randn(6, 6)

    def model(words: torch.Tensor, state: object) -> tuple[torch.Tensor, object]:
        return scores[words], state

    words = torch.randint(2, 6, (count,))
    before = [1, *words.tolist()[:-1]]
    expected = -sum(scores.log_softmax(1)[b, w].item() for b, w in zip(before, words.tolist(), strict=True)) / count
    for streams in (1, 10):
        assert mean_loss(model, words, 4, streams) == pytest.approx(expected, rel=1e-6)  # type: ignore[arg-type]


def test_a_run_learns_the_chain(base: dict[str, Any], make_run: MakeRun) -> None:
    """19 of 21 words of a line are one of two, equally likely, the others are certain: the best is 2^(19/21) = 1.87."""
    longer = {"training": {"steps": 160, "evaluate_every": 0, "checkpoint_every": 0}, "task": {"hidden": 16}}
    folder = make_run(config=merge(base, {**longer, "precision": {"schedule": "static", "bits": 8}}))
    assert run_task(folder.path) == 0
    metrics = folder.read_result().metrics
    assert set(metrics) == {"test_perplexity", "test_loss", "valid_perplexity", "valid_loss", "train_loss"}
    assert 1.85 < metrics["test_perplexity"] < 2.35
    assert metrics["test_perplexity"] == pytest.approx(math.exp(metrics["test_loss"]))
    assert abs(metrics["valid_loss"] - metrics["test_loss"]) < 0.2


@pytest.mark.parametrize("name", PRECISIONS)
def test_kill_9_then_the_same_command_gives_the_same_bits(
    name: str, base: dict[str, Any], make_run: MakeRun, start: Start, runs: SimpleNamespace
) -> None:
    config = merge(base, PRECISIONS[name])
    if name == "fp32-plateau":
        config["training"]["optimizer"].pop("momentum", None)
    whole, cut = make_run("whole", config=config), make_run("cut", config=config)
    assert run_task(whole.path) == 0
    process = start(cut)
    deadline = time.monotonic() + 200
    while max((path.name for path in cut.checkpoint_path.glob("step-*")), default="") < "step-00000016":
        assert process.poll() is None, cut.log_path.read_text()
        assert time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert not cut.result_path.exists()
    assert run_task(cut.path) == 0
    assert "resumed at step" in cut.log_path.read_text()
    runs.assert_same(cut, whole)
    if name == "fp32-plateau":
        rates = [row["lr"] for row in whole.read_metrics()]
        assert rates[0] == 8.0
        assert rates[-1] < rates[0]


def test_resuming_without_the_carried_state_would_differ(base: dict[str, Any]) -> None:
    """The state is no decoration: the loss of a step depends on the one before."""
    run = build(RunConfig, base)
    job = build_job(run, torch.device("cpu"))
    job.model.eval()
    with torch.no_grad():
        job.loss(job.model, 0)
        carried = job.loss(job.model, 1)
        job.steppers["state"].load_state_dict({"state": None})
        assert job.loss(job.model, 1) != carried
        job.loss(job.model, 0)
        assert job.loss(job.model, 1) == carried


def test_what_is_quantized_is_what_is_counted(base: dict[str, Any]) -> None:
    """LSTM and output layer, not the embedding; MACs of a stream of 10 words by hand; report proves it ran."""
    run = build(RunConfig, merge(base, {"precision": {"schedule": "static", "bits": 8}}))
    job = build_job(run, torch.device("cpu"))
    vocabulary = 6
    macs = 10 * (4 * 12 * 12 * 2 + 12 * vocabulary)
    assert job.observe(5)["bitops"] == macs * 8 * 5 * (8 * 8 + 2 * 8 * 8)
    job.loss(job.model, 0).backward()
    controller: Any = job.steppers["precision"]
    rows = {row.name: row.quantised for row in controller.report()}
    assert rows == {"embedding": False, "lstm:ih_l0": True, "lstm:hh_l0": True, "output": True}
    controller.step()
    assert controller.cost == macs * 8 * 192
    model = LSTMLanguageModel(vocabulary, hidden=12)
    assert not quantizes(model.embedding, "embedding")
    assert sum(layer.macs for layer in layer_macs(model, torch.zeros(1, 10, dtype=torch.int64))) == macs


def test_evaluation_is_at_the_declared_precision(base: dict[str, Any]) -> None:
    """At the lowest step of a schedule, evaluation is at q_max; the bits of the moment give another number."""
    run = build(RunConfig, merge(base, {"precision": {"schedule": "RR", "q_min": 2, "q_max": 8, "num_cycles": 2}}))
    job = build_job(run, torch.device("cpu"))
    job.loss(job.model, 0)  # ranges
    job.model.eval()
    controller: Any = job.steppers["precision"]
    with torch.no_grad():
        assert controller.bits == 2
        found = job.evaluate()["test_loss"]
        with controller.at(2):
            text_ids = torch.from_numpy(run.task.load().test).long()  # type: ignore[attr-defined]
            assert mean_loss(job.model, text_ids, 10) != found
        with controller.at(8):
            assert mean_loss(job.model, text_ids, 10) == found


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"task": {"data": ""}}, "task", "`data` is missing; give the path"),
        ({"task": {"hidden": 0}}, "task", r"`hidden=0` must lie in \[1, 16384\]"),
        ({"task": {"layers": 17}}, "task", "layers=17"),
        ({"task": {"bptt": 0}}, "task", "bptt=0"),
        ({"task": {"dropout": 1.0}}, "task", "dropout=1.0"),
        ({"task": {"vocabulary": 2}}, "task", "`vocabulary=2` must be ≥ 3"),
        ({"task": {"min_count": 0}}, "task", "min_count=0"),
        ({"task": {"held_out": 0.5}}, "task", "held_out=0.5"),
        ({"task": {"train_tokens": -1}}, "task", "train_tokens=-1"),
        ({"task": {"tied": True, "embedding": 3}}, "task", "embedding=3` equal to `hidden=12"),
        ({"task": {"model": "gru"}}, "task.model", "allowed: lstm"),
        ({"task": {"hiddn": 3}}, "task.hiddn", "did you mean 'hidden'"),
        ({"task": {"split_by": "word"}}, "task.split_by", "did you mean 'words'"),
        ({"task": {"command": "x"}}, "task", "belong to a command"),
        (
            {"training": {"schedule": {"name": "plateau"}, "evaluate_every": 0}},
            "training",
            "needs `evaluate_every` > 0",
        ),
    ],
)
def test_refused_when_built(base: dict[str, Any], patch: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(RunConfig, merge(base, patch), file="s.yaml")
    assert [problem.key for problem in caught.value.problems] == [key]


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"task": {"bptt": 1000}}, "task.bptt", r"8 × task.bptt=1000 = 8,000 words a step.*fewer than the 5,040 words"),
        ({"training": {"batch_size": 504}}, "task.bptt", "504 × task.bptt=10"),
        ({"task": {"min_count": 9999}}, "task.data", "no word occurs 9999 times"),
        ({"task": {"train_tokens": 10**6}}, "task.train_tokens", "at most 5040"),
        ({"precision": {"schedule": "RR", "num_cycles": 99}}, "precision", "cycle"),
    ],
)
def test_refused_by_check(base: dict[str, Any], patch: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(RunConfig, merge(base, patch)).check(file="s.yaml")
    assert [problem.key for problem in caught.value.problems] == [key]


def test_plateau_needs_a_validation_part() -> None:
    schedule = {"name": "plateau"}
    training = {"steps": 9, "evaluate_every": 3, "schedule": schedule}
    run = build(RunConfig, {"task": {"model": "resnet8"}, "training": training})
    with pytest.raises(ConfigError, match="image-classification has no validation part"):
        run.check()


def test_missing_text_is_exit_code_2(base: dict[str, Any], make_run: MakeRun) -> None:
    config = merge(base, {"task": {"data": "no-such-text"}})
    with pytest.raises(MissingDataError, match="text 'no-such-text' is not on this machine"):
        build(RunConfig, config).check()
    folder = make_run(config=config)
    assert run_task(folder.path) == 2
    error = folder.read_error()
    assert error is not None
    assert "no-such-text" in error["message"]
    assert not folder.result_path.exists()


def test_a_study_is_counted_planned_tested_and_run(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `trivet cost` asks, `range-test`, and `run` with the warm server, on one study file."""
    import sys

    from trivet.__main__ import main

    shorter = {key: value for key, value in base.items() if key != "seed"}
    shorter["training"] = {**base["training"], "steps": 20, "evaluate_every": 0, "checkpoint_every": 0}
    study = {
        "name": "lm",
        "base": shorter,
        "factors": {"precision": {"fp32": {}, "static8": {"schedule": "static", "bits": 8}}},
        "seeds": 1,
        "metric": {"name": "test_perplexity", "margin": 0.1},
    }
    (tmp_path / "lm.yaml").write_text(json.dumps(study))
    monkeypatch.chdir(tmp_path)

    def trivet(*arguments: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["trivet", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        assert not ended.value.code, shown.err
        return json.loads(shown.out)

    runs = [{"name": run.arm, "config": run.config} for run in plan(StudySpec.from_yaml(tmp_path / "lm.yaml"))]
    cost = {row["name"]: row for row in answer({"runs": runs})["runs"]}
    assert [row["macs_quantized"] / row["macs"] for row in cost.values()] == [1.0, 1.0]
    assert cost["static8"]["bitops"] == cost["fp32"]["bitops"] * 192 / 3072
    found = trivet("range-test", "lm.yaml", "--windows", "3", "--patience", "1", "--levels", "2", "--json")
    assert found["reference_learns"]
    result = trivet("run", "lm.yaml", "--json", "--no-report", "--slots", "1")
    assert [arm["runs"]["finished"] for arm in result["arms"]] == [1, 1]
