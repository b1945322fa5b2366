from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trivet.core.config import merge
from trivet.core.io import FileLock
from trivet.core.runfolder import RunFolder, RunResult
from trivet.tasks.run import StopFlag, run_task

MakeRun = Callable[..., RunFolder]
Start = Callable[[RunFolder], "subprocess.Popen[str]"]

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "RR-adam": {
        "precision": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 2},
        "training": {"optimizer": {"name": "adam", "lr": 0.01, "momentum": 0.0}},
    },
}


def _wait_for_checkpoint(folder: RunFolder, process: subprocess.Popen[str], step: int) -> None:
    for _ in range(3000):
        names = [path.name for path in folder.checkpoint_path.glob("step-*")]
        if names and max(names) >= f"step-{step:08d}":
            return
        assert process.poll() is None, folder.log_path.read_text()
        time.sleep(0.01)
    raise AssertionError("no checkpoint appeared")


def test_a_run_fills_its_folder(make_run: MakeRun) -> None:
    folder = make_run()
    assert run_task(folder.path) == 0
    result = folder.read_result()
    assert result.outcome == "finished"
    assert set(result.metrics) == {"test_accuracy", "test_loss", "train_loss"}
    assert 0 <= result.metrics["test_accuracy"] <= 1
    assert result.steps == 24
    assert result.bitops > 0
    assert 0 < result.train_seconds < result.seconds
    rows = folder.read_metrics()
    assert [row["step"] for row in rows] == [5, 10, 15, 20, 24]
    assert rows[-1]["test_loss"] == result.metrics["test_loss"]
    assert rows[-1]["bitops"] == result.bitops
    record = folder.read_environment()
    found = {name: record["realised"][name] for name in ("device", "threads", "deterministic", "matmul_precision")}
    assert found == {"device": "cpu", "threads": 1, "deterministic": False, "matmul_precision": "highest"}
    assert record["not_realised"] == []
    assert "trivet" in (folder.source_path / "versions.txt").read_text()
    assert "step 24/24" in folder.log_path.read_text()


def test_a_run_that_is_done_is_left_alone(make_run: MakeRun) -> None:
    folder = make_run()
    folder.write_result(RunResult(outcome="finished", metrics={"a": 1.0}))
    before = folder.result_path.read_bytes()
    assert run_task(folder.path) == 0
    assert folder.result_path.read_bytes() == before
    assert not folder.metrics_path.exists()


def test_something_else_in_the_place_of_a_result_is_not_overwritten(make_run: MakeRun) -> None:
    folder = make_run()
    folder.result_path.write_text("my notes")
    assert run_task(folder.path) == 1
    assert folder.result_path.read_text() == "my notes"


def test_two_processes_never_share_a_run(make_run: MakeRun, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_run()
    with FileLock(folder.lock_path):
        assert run_task(folder.path) == 1
    assert not folder.error_path.exists()
    assert not folder.metrics_path.exists()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("task: {model: resnet9}\ntraining: {steps: 5}\n", "resnet8"),
        ("task: {model: resnet8, data: cifar100}\ntraining: {steps: 5}\n", "cifar100"),
        ("- a list\n", "mapping"),
        ("task: {model: resnet8}\ntraining: {steps: 5}\nseed: -1\n", "seed"),
        ("task: {model: resnet8, data: cifar10}\ntraining: {steps: 5, batch_size: 129}\n", "batch_size"),
    ],
)
def test_bad_input_is_exit_code_2(text: str, word: str, make_run: MakeRun) -> None:
    folder = make_run()
    folder.config_path.write_text(text)
    assert run_task(folder.path) == 2
    error = folder.read_error()
    assert error is not None
    assert word in error["message"]
    assert not folder.result_path.exists()


def test_no_folder_is_exit_code_2(tmp_path: Path) -> None:
    assert run_task(tmp_path / "nowhere") == 2
    assert not (tmp_path / "nowhere").exists()


MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.layer = torch.nn.Linear(3072, 10)

    def forward(self, x):
        self.calls += self.training
        if self.calls == NUMBER:
            ACTION
        return self.layer(x.flatten(1))

def make(num_classes):
    return Model()
"""


def _user_model(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, *, at: int, what: str) -> dict[str, Any]:
    (folder / f"{name}.py").write_text(MODULE.replace("NUMBER", str(at)).replace("ACTION", what))
    monkeypatch.syspath_prepend(str(folder))
    return {"task": {"model": f"python:{name}:make", "width": 16}}


def test_nan_is_an_outcome(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = _user_model(tmp_path, "nan_model", monkeypatch, at=7, what="return self.layer(x.flatten(1)) * float('nan')")
    folder = make_run(patch=patch)
    assert run_task(folder.path) == 0
    assert folder.read_result().comparable == ("diverged", {}, 7)
    assert (folder.source_path / "nan_model.py").is_file()


@pytest.mark.parametrize("what", ["raise RuntimeError('my bug')", "raise SystemExit('my bug')"])
def test_a_crash_leaves_its_traceback(
    what: str, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"bug_model_{len(what)}"
    folder = make_run(patch=_user_model(tmp_path, name, monkeypatch, at=3, what=what))
    assert run_task(folder.path) == 1
    error = folder.read_error()
    assert error is not None
    assert error["message"] == "my bug"
    assert f"{name}.py" in error["traceback"]
    assert f"{name}.py" in folder.log_path.read_text()
    assert not folder.result_path.exists()
    (tmp_path / f"{name}.py").write_text(MODULE.replace("NUMBER", "-1").replace("ACTION", "pass"))
    sys.modules.pop(name)
    assert run_task(folder.path) == 0  # mended, and error.json is gone
    assert folder.read_error() is None


@pytest.mark.parametrize("name", PRECISIONS)
def test_kill_9_then_the_same_command_gives_the_same_bits(
    name: str, make_run: MakeRun, start: Start, runs: SimpleNamespace
) -> None:
    whole = make_run("whole", PRECISIONS[name])
    cut = make_run("cut", PRECISIONS[name])
    assert run_task(whole.path) == 0
    process = start(cut)
    _wait_for_checkpoint(cut, process, 4)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(timeout=30) == -9
    assert not cut.result_path.exists()
    assert run_task(cut.path) == 0
    assert "resumed at step" in cut.log_path.read_text()
    runs.assert_same(cut, whole)


def test_sigterm_writes_a_checkpoint_and_exits_143(make_run: MakeRun, start: Start, runs: SimpleNamespace) -> None:
    patch = {"training": {"steps": 60, "log_every": 2, "checkpoint_every": 0, "evaluate_every": 0}}
    whole, cut = make_run("whole", patch), make_run("cut", patch)
    process = start(cut)
    for _ in range(3000):
        if cut.read_metrics():
            break
        assert process.poll() is None, cut.log_path.read_text()
        time.sleep(0.01)
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert list(cut.checkpoint_path.glob("step-*"))
    assert not cut.result_path.exists()
    assert cut.read_error() is None
    assert run_task(cut.path) == 0
    assert run_task(whole.path) == 0
    runs.assert_same(cut, whole)


def test_a_damaged_checkpoint_is_reported_and_the_run_still_right(make_run: MakeRun, runs: SimpleNamespace) -> None:
    whole, cut = make_run("whole"), make_run("cut")
    assert run_task(whole.path) == 0
    assert run_task(cut.path) == 0
    cut.result_path.unlink()
    newest, older = sorted(cut.checkpoint_path.iterdir(), reverse=True)
    (newest / "state.pt").write_bytes((newest / "state.pt").read_bytes()[:100])
    assert run_task(cut.path) == 0
    assert f"{newest.name} cannot be used" in cut.log_path.read_text()
    runs.assert_same(cut, whole)
    cut.result_path.unlink()
    for folder in (newest, older):
        (folder / "model.safetensors").write_bytes(b"")
    assert run_task(cut.path) == 0
    assert "the run starts anew" in cut.log_path.read_text()
    runs.assert_same(cut, whole)


FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
from trivet.tasks.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


def test_a_full_disk_is_a_crash_that_says_so_and_loses_nothing(make_run: MakeRun, runs: SimpleNamespace) -> None:
    """No file may grow beyond a limit, so that the checkpoint cannot be written but error.json can."""
    whole, cut = make_run("whole"), make_run("cut")
    assert run_task(whole.path) == 0
    sizes = [path.stat().st_size for path in whole.checkpoint_path.rglob("state.pt")]
    limit = min(sizes) - 1000
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(limit), str(cut.path)],
        env=runs.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    error = cut.read_error()
    assert error is not None
    assert "checkpoint of step 4 not written: File too large" in error["message"]
    assert not cut.result_path.exists()
    assert list(cut.checkpoint_path.iterdir()) == []
    assert run_task(cut.path) == 0
    runs.assert_same(cut, whole)


def test_bits_depend_on_the_seed_and_nothing_else(make_run: MakeRun, runs: SimpleNamespace) -> None:
    one, same, other = make_run("one"), make_run("same"), make_run("other", {"seed": 4})
    assert all(run_task(folder.path) == 0 for folder in (one, same, other))
    runs.assert_same(one, same)
    assert one.read_result().metrics != other.read_result().metrics


def test_the_command_line(make_run: MakeRun, runs: SimpleNamespace) -> None:
    folder = make_run()
    done = subprocess.run(
        runs.command_line(folder), env=runs.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "step 24/24" in done.stderr
    assert "step 24/24" in folder.log_path.read_text()
    other = make_run("other")
    assert run_task(other.path) == 0
    runs.assert_same(folder, other)


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["a", "b"], 2), (["--what"], 2), (["--help"], 0)])
def test_usage(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    from trivet.tasks.__main__ import main

    assert main(arguments) == code
    assert "usage: python -m trivet.tasks RUN_DIR" in capsys.readouterr().err


def test_the_stop_flag_gives_the_handlers_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopFlag().installed() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        assert stop.signal == signal.SIGINT
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_result_is_free_of_clocks_and_machines(make_run: MakeRun, runs: SimpleNamespace) -> None:
    folder = make_run(config=merge(runs.base, {"training": {"steps": 4, "evaluate_every": 0}}))
    assert run_task(folder.path) == 0
    content = json.loads(folder.result_path.read_text())
    assert set(content) == {"format", "outcome", "metrics", "steps", "bitops", "seconds", "train_seconds"}
