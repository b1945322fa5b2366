"""Two processes under torchrun do what one does, up to the order of sums."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from trivet.core.io import read_jsonl

WORKER = Path(__file__).with_name("worker.py")


def _run(folder: Path, processes: int) -> list[dict[str, Any]]:
    folder.mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, str(WORKER), str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [torch.load(folder / f"rank-{rank}-of-{processes}.pt", weights_only=True) for rank in range(processes)]


def test_two_processes_are_one(tmp_path: Path) -> None:
    alone = _run(tmp_path / "one", 1)[0]
    first, second = _run(tmp_path / "two", 2)
    for name, expected in alone.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], expected, rtol=1e-4, atol=1e-5)
    rows = [read_jsonl(tmp_path / folder / "metrics.jsonl") for folder in ("one", "two")]
    assert [row["step"] for row in rows[1]] == [2, 4, 6]  # one of the two writes
    for one, two in zip(*rows, strict=True):
        assert abs(one["train_loss"] - two["train_loss"]) < 1e-4
