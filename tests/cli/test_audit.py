"""`trivet audit` on studies, runs and a model with a fault of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

STUDY = """
name: s
base:
  task: {name: image-classification, model: MODEL}
  training: {steps: 20, batch_size: 8, optimizer: {name: adam, lr: 0.01}}
  environment: {threads: 2}
factors: {precision: {fp32: {}, RR: {schedule: RR, num_cycles: 2}}}
seeds: 2
metric: {name: test_accuracy}
"""

MODEL = """
import numpy as np, torch
from torch import nn

class Buffered(nn.Module):
    def __init__(self, classes, channels):
        super().__init__()
        self.buffer = np.zeros((8, channels, 28, 28), np.float32)
        self.conv, self.out = nn.Conv2d(channels, 2, 3), nn.Linear(2, classes)

    def forward(self, x):
        if len(x) != len(self.buffer):
            return self.out(self.conv(x.float()).mean((2, 3)))
        self.buffer[:] = x.numpy()
        hidden = self.conv(torch.from_numpy(self.buffer))
        self.buffer[:] = 0.5
        return self.out(hidden.mean((2, 3)))

def make(num_classes, in_channels, **more):
    return Buffered(num_classes, in_channels)
"""


def write(folder: Path, model: str = "resnet8, width: 4") -> Path:
    file = folder / "s.yaml"
    file.write_text(STUDY.replace("MODEL", model), encoding="utf-8")
    return file


def test_what_is_asked_and_shown(trivet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is a stand-in here; the next test asks the real one."""
    asked: list[Any] = []
    check = {
        "check": "alias",
        "ok": True,
        "summary": "0 of 9 tensors",
        "notes": ["a note"],
        "findings": [],
        "seconds": 1.0,
    }

    def ask(module: str, request: Any, problem: str, variables: Any) -> Any:
        asked.append((module, request, variables))
        return {"steps": 3, "checks": [check, {**check, "check": "gradient", "ok": None}]}

    monkeypatch.setattr("trivet.cli.audit.ask", ask)
    ended = trivet("audit", write(tmp_path), "--arm", "RR", "--seed", "5", "--steps", "3", "--json")
    assert ended.code == 0, ended.err
    content = json.loads(ended.out)
    assert (content["found"], content["seed"], content["steps"]) == (0, 5, 3)
    assert content["run"].endswith("s.yaml, arm 'RR'")
    module, request, variables = asked[0]
    assert module == "trivet.cli.audits"
    assert request["steps"] == 3
    assert request["config"]["seed"] == 5
    assert request["config"]["precision"]["schedule"] == "RR"
    assert variables["OMP_NUM_THREADS"] == "2"
    (tmp_path / "config.yaml").write_text("task: {model: resnet8}\ntraining: {steps: 9}\nseed: 4\n", encoding="utf-8")
    ended = trivet("audit", tmp_path, "--set", "training.steps=7")
    assert ended.code == 0, ended.err
    assert "note: alias: a note" in ended.out
    assert "not done" in ended.out
    assert asked[1][1]["config"]["training"]["steps"] == 7
    assert "seed 4" in ended.err


def test_a_model_with_a_reused_buffer(real_trivet: Any, tmp_path: Path) -> None:
    (tmp_path / "buffered.py").write_text(MODEL, encoding="utf-8")
    ended = real_trivet("audit", write(tmp_path, "python:buffered:make"), "--steps", "2")
    assert ended.code == 1, ended.err
    verdicts = {line.split()[0]: line.split()[1] for line in ended.out.splitlines()[2:7]}
    assert verdicts == {"alias": "FOUND", "gradient": "FOUND", "repeat": "ok", "resume": "ok", "order": "ok"}
    assert re.search(r"where: conv \(Conv2d\), input of convolution, saved at buffered.py:1\d in forward", ended.out)
    assert "do: give each step memory of its own" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("s.yaml", "--arm", "RX"), "unknown arm 'RX'; allowed: fp32, RR; did you mean 'RR'?"),
        (("run.yaml", "--arm", "RR"), "run.yaml is a run, which has no arms"),
        (("command.yaml",), "the task is a command, whose tensors trivet cannot see"),
        (("s.yaml", "--set", "task.model=resnet9"), "resnet8"),
        (("demo",), "trivet cp demo"),
        (("none.yaml",), "none.yaml"),
    ],
)
def test_refusals(trivet: Any, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    write(tmp_path)
    (tmp_path / "run.yaml").write_text("task: {model: resnet8}\ntraining: {steps: 9}\n", encoding="utf-8")
    (tmp_path / "command.yaml").write_text("task: {command: 'true'}\n", encoding="utf-8")
    ended = trivet("audit", *arguments)
    assert ended.code == 2
    assert message in ended.err
