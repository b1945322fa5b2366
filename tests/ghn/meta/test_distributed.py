"""Two processes, with the variables that torchrun sets, do what one does, up to the order of sums."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from trivet.core.io import read_jsonl
from trivet.ghn.meta.group import Group

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, worker: ModuleType) -> Path:
    """Six steps of one process in `one`, of two in `two`; half by one, half by two in `begun`, and back in `half`."""
    made = tmp_path_factory.mktemp("group")
    worker.train(made / "begun", Group(), steps=3)
    _together(made, 2)
    worker.train(made / "half", Group())
    worker.train(made / "one", Group())
    return made


def _together(folder: Path, size: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder)],
            env={**common, "WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=250)
        assert process.returncode == 0, errors[-2000:]


def parameters(root: Path, name: str, rank: int, size: int) -> dict[str, Any]:
    return torch.load(root / name / f"rank-{rank}-of-{size}.pt", weights_only=True)


def test_two_processes_are_one(root: Path) -> None:
    first, second = (parameters(root, "two", rank, 2) for rank in range(2))
    for name, expected in parameters(root, "one", 0, 1).items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], expected, rtol=1e-4, atol=1e-5)
    rows = [read_jsonl(root / folder / "metrics.jsonl") for folder in ("one", "two")]
    assert [row["step"] for row in rows[1]] == [2, 4, 6]  # one of the two writes
    for one, two in zip(*rows, strict=True):
        assert abs(one["train_loss"] - two["train_loss"]) < 1e-4


@pytest.mark.parametrize(("name", "size"), [("half", 1), ("begun", 2)])
def test_one_goes_on_where_two_stopped_and_back(root: Path, name: str, size: int) -> None:
    found = parameters(root, name, 0, size)
    for key, expected in parameters(root, "one", 0, 1).items():
        torch.testing.assert_close(found[key], expected, rtol=1e-4, atol=1e-5)
