"""Signals, kill -9 and full disks, done for real to a parent process.

Afterwards the same study must come out to the bit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from trivet.core.errors import RunFolderError
from trivet.core.io import FileLock
from trivet.study import Results


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.06")


def processes(lab: Any) -> list[int]:
    """Every living process whose command line names this test's folder, or that serves for it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if str(lab.count_file).encode() in content and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def running(lab: Any, number: int = 1) -> Any:
    """Whether so many starts have been counted."""
    return lambda: len(lab.counted("start")) >= number


@pytest.mark.parametrize(
    ("number", "code", "kind"),
    [
        (signal.SIGINT, 130, "warm"),
        (signal.SIGINT, 130, "plain"),
        (signal.SIGTERM, 143, "warm"),
        (signal.SIGHUP, 129, "plain"),
    ],
)
def test_a_signal_stops_in_order_and_the_same_command_resumes(
    lab: Any, truth: dict[str, Any], slow: None, number: int, code: int, kind: str
) -> None:
    lab.write()
    parent = lab.start(kind)
    lab.wait_for(running(lab, 3))
    os.killpg(parent.pid, number)  # as a terminal does: to the whole group
    out, err = parent.communicate(timeout=60)
    assert parent.returncode == code, err
    assert "the same command goes on from here" in out
    assert "Traceback" not in err
    before = Results.load(lab.folder)
    assert 0 < before.counts["pending"] < 6
    assert not lab.locked()
    assert any("it resumes from its checkpoint" in record.reason for record in before.records)
    assert lab.outcomes(lab.run()) == truth
    assert sorted(lab.counted("done")) == sorted(truth)


def test_a_second_signal_kills(lab: Any, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"0": "deaf"}))
    lab.write({"base": {"training": {"steps": 400}}})
    parent = lab.start()
    lab.wait_for(running(lab, 2))
    parent.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert parent.poll() is None  # the children do not listen
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=30)
    assert parent.returncode == 130
    assert not lab.locked()


def test_a_deaf_run_is_killed_after_the_grace(lab: Any, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"0": "deaf"}))
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match="stopped by a signal"):
        lab.run({"base": {"training": {"steps": 400}}}, grace=0.2)
    timer.join()
    assert not lab.locked()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # handlers are put back


def test_ten_kills_of_the_parent_at_random_moments(
    lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.05")
    lab.write()
    moments = random.Random(0)
    for kill in range(10):
        parent = lab.start("plain" if kill % 3 == 2 else "warm")
        time.sleep(moments.uniform(0.5, 1.3))
        parent.kill()
        parent.communicate()
    parent = lab.start()
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 0, err
    assert lab.outcomes(Results.load(lab.folder)) == truth
    assert sorted(lab.counted("done")) == sorted(truth)  # nothing twice
    lab.wait_for(lambda: not processes(lab), 15)  # nothing is left over


def test_orphans_of_a_killed_parent_are_waited_for_and_used(lab: Any, truth: dict[str, Any], slow: None) -> None:
    lab.write({"base": {"training": {"steps": 6}}})
    parent = lab.start("plain")
    lab.wait_for(running(lab, 2))
    parent.kill()
    parent.wait()
    assert len(lab.locked()) == 2
    assert lab.outcomes(lab.run(warm=False)) == truth
    assert len(lab.counted("start")) == 6  # the orphans were not started again


def test_a_killed_child_of_a_living_parent(lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.2")
    lab.write({"seeds": 1})
    parent = lab.start()
    lab.wait_for(running(lab))
    victim = FileLock.holder(lab.folder / lab.counted("start")[0] / ".lock")
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 0, err
    found = lab.outcomes(Results.load(lab.folder))
    assert found == {run_id: truth[run_id] for run_id in found}
    assert len(lab.counted("start")) == 3  # two runs, one of them twice


def test_two_parents_never_run_one_study(lab: Any, slow: None) -> None:
    lab.write()
    parent = lab.start()
    lab.wait_for(running(lab))
    with pytest.raises(RunFolderError, match=r"being run by another process \(process \d+\)"):
        lab.run()
    assert "running" in Results.load(lab.folder).counts  # reading is always allowed
    assert parent.wait(60) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 400 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(
    lab: Any, truth: dict[str, Any], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    monkeypatch.setattr(type(lab), "folder", small_disk / "out")
    lab.write()
    parent = lab.start("warm", slots=1)
    out, err = parent.communicate(timeout=60)
    assert parent.returncode == 1, err
    assert "is full" in out
    assert "once there is room" in out
    assert len(lab.counted("done")) < 6
    ballast.unlink()
    parent = lab.start()
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 0, err
    assert lab.outcomes(Results.load(lab.folder)) == truth
    assert sorted(lab.counted("done")) == sorted(truth)
