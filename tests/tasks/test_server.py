from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trivet.core.runfolder import RunFolder

MakeRun = Callable[..., RunFolder]


class Client:
    """The study's end of a server."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trivet.tasks", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
            text=True,
        )
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self.next() == {"ready": self.process.pid}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.messages.put(json.loads(line))

    def next(self, timeout: float = 120) -> dict[str, Any]:
        return self.messages.get(timeout=timeout)

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def run(self, folder: RunFolder, **environment_: str) -> int:
        """Start a run; its process number."""
        self.send(json.dumps({"run": str(folder.path), "env": environment_}))
        message = self.next()
        assert message["run"] == str(folder.path)
        return message["pid"]

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self._reader.join(timeout=10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def shared_server(runs: SimpleNamespace, data_root: Path) -> Iterator[Client]:
    client = Client({**runs.environment(), "TRIVET_DATA_ROOT": str(data_root)})
    yield client
    if client.process.poll() is None:
        assert client.close() == 0


@pytest.fixture
def server(runs: SimpleNamespace) -> Iterator[Client]:
    client = Client(runs.environment())
    yield client
    client.process.kill()
    client.close()


LONG = {"training": {"steps": 100_000, "checkpoint_every": 0, "evaluate_every": 0}}


def _wait_for_rows(folder: RunFolder) -> None:
    for _ in range(3000):
        if folder.read_metrics():
            return
        time.sleep(0.01)
    raise AssertionError("the run wrote no row")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "precision", [{}, {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 2}], ids=["fp32", "RR"]
)
def test_a_forked_run_is_bit_equal_to_a_fresh_one(
    precision: dict[str, Any], make_run: MakeRun, shared_server: Client, runs: SimpleNamespace
) -> None:
    patch = {"precision": precision}
    fresh, forked, again = (make_run(name, patch) for name in ("fresh", "forked", "again"))
    assert (
        subprocess.run(runs.command_line(fresh), env=runs.environment(), capture_output=True, check=False).returncode
        == 0
    )
    for folder in (forked, again):
        shared_server.run(folder)
        assert shared_server.next() == {"run": str(folder.path), "exit": 0}
        runs.assert_same(folder, fresh)
    assert "step 24/24" in forked.log_path.read_text()


def test_the_server_runs_no_threads_and_starts_no_cuda(shared_server: Client) -> None:
    """A process with OpenMP threads or CUDA would break the children that it forks."""
    status = Path(f"/proc/{shared_server.process.pid}/status").read_text()
    assert "Threads:\t1\n" in status


def test_children_have_their_own_session_input_and_variables(make_run: MakeRun, shared_server: Client) -> None:
    folder = make_run(patch=LONG)
    pid = shared_server.run(folder, CUDA_VISIBLE_DEVICES="7")
    _wait_for_rows(folder)
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert os.readlink(f"/proc/{pid}/fd/1") == os.readlink(f"/proc/{pid}/fd/2") == str(folder.log_path)
    assert folder.read_environment()["variables"]["CUDA_VISIBLE_DEVICES"] == "7"
    shared_server.send(json.dumps({"run": str(folder.path)}))
    assert "running already" in shared_server.next()["error"]
    shared_server.send(json.dumps({"terminate": str(folder.path)}))
    assert shared_server.next() == {"run": str(folder.path), "exit": 143}
    assert list(folder.checkpoint_path.glob("step-*"))


def test_kill(make_run: MakeRun, shared_server: Client) -> None:
    folder = make_run(patch=LONG)
    shared_server.run(folder)
    _wait_for_rows(folder)
    shared_server.send(json.dumps({"kill": str(folder.path)}))
    assert shared_server.next() == {"run": str(folder.path), "exit": -9}


def test_terminate_right_after_the_fork(make_run: MakeRun, shared_server: Client) -> None:
    folder = make_run(patch=LONG)
    shared_server.send(json.dumps({"run": str(folder.path)}) + "\n" + json.dumps({"terminate": str(folder.path)}))
    assert "pid" in shared_server.next()
    assert shared_server.next()["exit"] in (143, -15)


def test_two_at_once_and_a_failure(make_run: MakeRun, shared_server: Client) -> None:
    good, bad = make_run("good"), make_run("bad", {"task": {"data": "cifar100"}})
    shared_server.run(good)
    shared_server.send(json.dumps({"run": str(bad.path)}))
    messages = [shared_server.next() for _ in range(3)]
    exits = {message["run"]: message["exit"] for message in messages if "exit" in message}
    assert exits == {str(good.path): 0, str(bad.path): 2}


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"run": 1}', '{"terminate": "/no/such"}'])
def test_lines_that_are_no_use(line: str, shared_server: Client) -> None:
    shared_server.send(line)
    if "terminate" not in line:
        assert "not a request" in shared_server.next()["error"]
    assert shared_server.process.poll() is None


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
def test_the_end_of_the_server_stops_its_children_cleanly(how: str, make_run: MakeRun, server: Client) -> None:
    folder = make_run(patch=LONG)
    pid = server.run(folder)
    _wait_for_rows(folder)
    if how == "SIGTERM":
        server.process.terminate()
        assert server.process.wait(timeout=60) == 0
    else:
        assert server.close() == 0
    assert not _is_alive(pid)
    assert list(folder.checkpoint_path.glob("step-*"))


def test_a_killed_server_takes_its_children_along(make_run: MakeRun, server: Client) -> None:
    folder = make_run(patch=LONG)
    pid = server.run(folder)
    _wait_for_rows(folder)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(timeout=30)
    for _ in range(500):
        if not _is_alive(pid):
            break
        time.sleep(0.01)
    assert not _is_alive(pid)
