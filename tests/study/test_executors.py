"""Placing a job: variables, process groups, falling back; and small parts of the scheduler's judgement."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trivet.core.runfolder import RunFolder
from trivet.study import LocalExecutor, PlannedRun, StudyInterrupted
from trivet.study.capacity import count_cores, find_gpus, measure_capacity
from trivet.study.executors.base import RUN_COMMAND, Exit, Job, shell_line
from trivet.study.executors.make import make_executor
from trivet.study.failures import command_signal, describe_exit, is_disk_full, is_full_disk_error, log_tail
from trivet.study.stop import StopSignals


def job(folder: Path, *, command: str = "", gpu: str = "") -> Job:
    folder.mkdir(exist_ok=True)
    config: dict[str, Any] = {"task": {"command": command}, "seed": 0}
    run = PlannedRun(run_id=folder.name, arm="a", levels={}, seed=0, block=0, config=config)
    return Job(run=run, folder=folder, variables={"OMP_NUM_THREADS": "3"}, gpu=gpu)


def finish(executor: LocalExecutor, handle: Any) -> Exit:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = executor.poll(handle)
        if found is not None:
            return found
        executor.wait(0.05)
    raise TimeoutError


def python(code: str) -> LocalExecutor:
    return LocalExecutor(command=(sys.executable, "-c", code), warm=False)


def test_a_plain_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; "
        "print(os.environ['OMP_NUM_THREADS'], os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1]); sys.exit(7)"
    )
    executor = python(code)
    found = finish(executor, executor.start(job(tmp_path / "r", gpu="5")))
    assert found.code == 7
    assert found.ran > 0
    assert log_tail(RunFolder(tmp_path / "r")).split() == ["3", "5", str(tmp_path / "r")]
    executor.close()


def test_what_a_run_leaves_behind_is_ended(tmp_path: Path) -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid)"
    executor = python(code)
    finish(executor, executor.start(job(tmp_path / "r")))
    left = int(log_tail(RunFolder(tmp_path / "r")))
    deadline = time.monotonic() + 10
    while Path(f"/proc/{left}").exists() and "Z" not in Path(f"/proc/{left}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_cancel_reaches_the_whole_group(tmp_path: Path) -> None:
    executor = python("import subprocess; print('up', flush=True); subprocess.run(['sleep', '60'])")
    handle = executor.start(job(tmp_path / "r"))
    while "up" not in log_tail(RunFolder(tmp_path / "r")):
        time.sleep(0.01)
    executor.cancel(handle, force=False)
    assert finish(executor, handle).code == -signal.SIGTERM
    executor.cancel(handle, force=True)  # after the end: nothing


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    executor = LocalExecutor(command=("/nonexistent/python",))
    with pytest.raises(FileNotFoundError):
        executor.start(job(tmp_path / "r"))


def test_commands_get_plain_processes_and_the_rest_a_server(lab: Any) -> None:
    fake = (sys.executable, str(Path(__file__).with_name("fake_child.py")))
    executor = LocalExecutor(command=fake)
    handle = executor.start(job(lab.root / "r", command="python x.py"))
    assert handle.process is not None
    finish(executor, handle)
    handle = executor.start(job(lab.root / "s"))
    assert handle.server is not None
    assert finish(executor, handle).code == 1  # no config.yaml there
    assert executor.start_seconds > 0
    assert executor.command(job(lab.root / "s")) == [*fake, str(lab.root / "s")]
    executor.close()


def test_names_of_executors() -> None:
    assert isinstance(make_executor("local"), LocalExecutor)
    own = LocalExecutor()
    assert make_executor(own) is own
    with pytest.raises(ValueError, match=r"unknown executor 'locl'.*did you mean 'local'"):
        make_executor("locl")
    assert RUN_COMMAND[1:] == ("-m", "trivet.tasks")
    assert shell_line(["a b"], {"X": "1 2"}) == "X='1 2' 'a b'"


def test_judging_failures(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not is_disk_full(folder)
    folder.log_path.write_text("x" * 9000 + "\nOSError: [Errno 28] No space left on device\n")
    assert len(log_tail(folder)) == 4000
    assert is_disk_full(folder)
    folder.error_path.write_text(json.dumps({"type": "ValueError", "message": "other"}))
    assert not is_disk_full(folder)  # its own error says what it was
    folder.error_path.write_text(json.dumps({"type": "OSError", "message": "[Errno 122] Disk quota exceeded"}))
    assert is_disk_full(folder)
    assert is_full_disk_error(OSError(errno.EDQUOT, "quota"))
    assert not is_full_disk_error(OSError(errno.EACCES, "no"))
    assert describe_exit(143, folder) == "killed by SIGTERM"
    assert describe_exit(-250, folder) == "killed by signal 250"
    assert "exit code 3" in describe_exit(3, folder)
    killed = {"type": "CommandFailed", "message": "the command was ended by SIGKILL: python x.py"}
    folder.error_path.write_text(json.dumps(killed))
    assert command_signal(folder) == "SIGKILL"


def test_signals_are_caught_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)  # nohup: stays ignored
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert (signals.count, signals.number) == (2, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, ignored)
    assert signal.getsignal(signal.SIGINT) == before
    assert StudyInterrupted("x", signal.SIGTERM).exit_code == 143


def test_looking_at_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_cores() >= 1
    assert find_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == ()
    assert measure_capacity(3, {"CUDA_VISIBLE_DEVICES": ""}).slots == 3
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert find_gpus({}) == ("0", "1")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus({}) == ()
