"""Studies with the real child process: a user's command, and a tiny real training that is killed and resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trivet.core.config import dump_yaml
from trivet.core.io import read_jsonl
from trivet.study import Results, Study
from trivet.tasks.task_config import task_class

SCRIPT = """
import os, pathlib, sys, time
seed, lr, mode, root = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
with (root / "count").open("a") as file:
    file.write(f"{seed} {lr}\\n")
mark = root / f"killed-{seed}"
if mode == "kill" and seed == 1 and not mark.exists():
    mark.touch()
    os.kill(os.getpid(), 9)
if mode == "fail" and seed == 1:
    sys.exit("no such column: price")
time.sleep(0.1)
print("epoch 1 loss:", seed)
print("epoch 2 loss:", seed * lr)
"""


def command_study(tmp_path: Path, mode: str, seeds: int = 2) -> Study:
    (tmp_path / "train.py").write_text(SCRIPT)
    content = {
        "name": "command",
        "base": {
            "task": {
                "command": f"python '{tmp_path}/train.py' {{seed}} {{training.optimizer.lr}} {mode} '{tmp_path}'",
                "metrics": {"loss": "loss: ([0-9.]+)"},
            },
            "training": {"steps": 1},
        },
        "factors": {"training": {"low": {"optimizer": {"lr": 0.5}}, "high": {"optimizer": {"lr": 2.0}}}},
        "seeds": seeds,
        "metric": {"name": "loss"},
    }
    file = tmp_path / "c.yaml"
    file.write_text(dump_yaml(content))
    return Study.from_yaml(file, folder=tmp_path / "out")


def counted(tmp_path: Path) -> list[str]:
    return sorted((tmp_path / "count").read_text().splitlines())


def test_a_command_runs_once_for_each_arm_and_seed(tmp_path: Path) -> None:
    results = command_study(tmp_path, "plain").run(slots=2)
    assert results.counts == {"finished": 4}, [record.reason for record in results.records]
    assert results.values("loss", "low") == {0: 0.0, 1: 0.5}
    assert results.values("loss", "high") == {0: 0.0, 1: 2.0}
    assert counted(tmp_path) == ["0 0.5", "0 2.0", "1 0.5", "1 2.0"]
    assert command_study(tmp_path, "plain").run().counts == {"finished": 4}
    assert len(counted(tmp_path)) == 4
    log = (results.records[0].folder / "log.txt").read_text()
    assert "epoch 2 loss" in log


def test_a_command_that_fails_and_one_that_is_killed(tmp_path: Path) -> None:
    results = command_study(tmp_path, "fail").run(slots=2)
    assert results.counts == {"finished": 2, "failed": 2}
    reasons = {record.reason for record in results.records if record.state == "failed"}
    assert all("the command ended with exit code 1" in reason for reason in reasons)
    assert len(counted(tmp_path)) == 4  # not tried twice
    (tmp_path / "kill").mkdir()
    killed = command_study(tmp_path / "kill", "kill").run(slots=1)
    assert killed.counts == {"finished": 4}
    assert len(counted(tmp_path / "kill")) == 5  # one seed marks the file, its first arm is tried twice


def test_print_commands_run_elsewhere(tmp_path: Path) -> None:
    study = command_study(tmp_path, "plain", seeds=1)
    for line in study.commands():
        subprocess.run(line, shell=True, check=True)
    assert study.status().counts == {"finished": 2}
    assert len(counted(tmp_path)) == 2


@pytest.mark.slow
def test_a_real_training_killed_and_resumed_comes_out_to_the_bit(lab: Any) -> None:
    patch = {
        "base": {
            "task": {"model": "resnet8", "width": 4, "train_examples": 512},
            "training": {"steps": 40, "batch_size": 32, "log_every": 1, "checkpoint_every": 4},
        },
        "seeds": 1,
    }
    whole = Study.from_yaml(lab.write(patch), folder=lab.root / "whole").run(slots=2)
    assert whole.counts == {"finished": 2}, [record.reason for record in whole.records]
    assert set(whole.records[0].metrics) == set(task_class("image-classification").reported)
    assert all(record.bitops > 0 for record in whole.records)

    parent = lab.start("real")
    lab.wait_for(lambda: len(list(lab.folder.glob("*/checkpoint/*"))) >= 2, 120)
    lab.wait_for(lambda: any(len(read_jsonl(p)) > 8 for p in lab.folder.glob("*/metrics.jsonl")), 120)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    before = Results.load(lab.folder)
    parent = lab.start("real")
    _, err = parent.communicate(timeout=200)
    assert parent.returncode == 0, err
    assert "finished" not in before.counts or before.counts["finished"] < 2
    after = Results.load(lab.folder)
    assert lab.outcomes(after) == lab.outcomes(whole)

    def rows(results: Results) -> list[dict[str, Any]]:
        logs = [row for record in results.records for row in read_jsonl(record.folder / "metrics.jsonl")]
        return [{key: value for key, value in row.items() if key != "seconds"} for row in logs]

    assert rows(after) == rows(whole)


def test_a_study_starts_no_torch(tmp_path: Path) -> None:
    """A study of commands never pays for torch: neither the parent nor the child loads it."""
    study = command_study(tmp_path, "plain", seeds=1)
    code = (
        f"import sys; from trivet.study import Study; Study.load({str(study.folder)!r}).run(); "
        "print('torch' in sys.modules)"
    )
    study.commands()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert study.status().counts == {"finished": 2}
