"""Two processes, with the variables that torchrun sets, do what one does, up to the order of sums."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from trivet.core.io import read_jsonl

WORKER = Path(__file__).with_name("worker.py")


def _alone(folder: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    folder.mkdir()
    worker.main(folder)
    return torch.load(folder / "rank-0-of-1.pt", weights_only=True)


def _together(folder: Path, size: int) -> list[dict[str, Any]]:
    folder.mkdir()
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
    return [torch.load(folder / f"rank-{rank}-of-{size}.pt", weights_only=True) for rank in range(size)]


def test_two_processes_are_one(tmp_path: Path) -> None:
    alone = _alone(tmp_path / "one")
    first, second = _together(tmp_path / "two", 2)
    for name, expected in alone.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], expected, rtol=1e-4, atol=1e-5)
    rows = [read_jsonl(tmp_path / folder / "metrics.jsonl") for folder in ("one", "two")]
    assert [row["step"] for row in rows[1]] == [2, 4, 6]  # one of the two writes
    for one, two in zip(*rows, strict=True):
        assert abs(one["train_loss"] - two["train_loss"]) < 1e-4
