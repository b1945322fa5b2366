"""`trivet bisect`: two trainings by their bits, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trivet.cli import bisect, traces

Trivet = Callable[..., Any]

RUN = """
task: {name: image-classification, data: fashion-mnist, model: resnet8, width: 4, train_examples: 64}
training: {steps: 6, batch_size: 8, optimizer: {name: sgd, lr: 0.1}}
seed: 3
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    return path


def test_a_run_equals_itself_bit_for_bit(trivet: Trivet, run: Path) -> None:
    ended = trivet("bisect", run, "--steps", "3", "--exit-code")
    assert ended.code == 0
    assert "bit-equal over 3 steps" in ended.out


def test_where_two_trainings_part(trivet: Trivet, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process: importing torch four more times would show nothing new.
    monkeypatch.setattr(bisect, "ask", lambda module, request, problem, variables: traces.traced(request))
    arguments = (
        "bisect",
        run,
        "--steps",
        "3",
        "--set",
        "precision={schedule: static, bits: 8}",
        "--json",
        "--exit-code",
    )
    ended = trivet(*arguments)
    assert ended.code == 3
    found = json.loads(ended.out)
    assert (found["step"], found["loss_step"]) == (1, 1)
    assert (found["tensor"]["kind"], found["tensor"]["name"]) == ("forward", "conv")
    assert found["tensor"]["before"] == 1  # the images are the same
    assert [row["step"] for row in found["curve"]] == [1, 2, 3]
    assert all(row["distance"] > 0 for row in found["curve"])
    assert found["not_realised"] == {"a": [], "b": []}


def test_refusals_come_before_any_training(trivet: Trivet, run: Path, tmp_path: Path) -> None:
    command = tmp_path / "command.yaml"
    command.write_text("task: {command: 'python x.py', metrics: {loss: 'loss: (.*)'}}\nseed: 0\n")
    study = tmp_path / "study.yaml"
    study.write_text(
        "name: s\nbase:\n  task: {data: fashion-mnist, model: resnet8}\n  training: {steps: 2}\n"
        "factors: {precision: {fp32: {}, RR: {schedule: RR, q_min: 3, q_max: 8, num_cycles: 2}}}\n"
        "seeds: 2\nmetric: {name: test_accuracy}\n"
    )
    for arguments, words in [
        ((tmp_path / "nothing.yaml",), "nothing.yaml"),
        ((command,), "cannot be bisected"),
        ((study, "--arms", "fp32,RS"), "did you mean 'RR'"),
        ((study, "--arms", "fp32,RR,RR"), "must name one arm, or two"),
        ((run, "--arms", "fp32"), "has no arms"),
        ((run, "--set", "environment.thread=2"), "did you mean"),
    ]:
        ended = trivet("bisect", *arguments)
        assert ended.code == 2, arguments
        assert words in ended.err, ended.err
        assert "training both" not in ended.err
