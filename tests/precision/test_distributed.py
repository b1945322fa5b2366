"""Two processes: DistributedDataParallel and fully_shard (FSDP2) on CPU, with gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch import nn

from trivet.precision import PrecisionController, PrecisionSchedule, quantize_
from trivet.precision.inject import quantized_sites

STEPS = 4

WRAPS = ("ddp", "fsdp")

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.attention, self.head = nn.Linear(8, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 3)
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.inner(x)) @ self.weight
        return self.head(self.attention(x, x, x)[0])


def train(wrap: str, rank: int) -> dict[str, object]:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel

    model: nn.Module = quantize_(Net())
    ctl = PrecisionController(
        model, PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=STEPS), seed=1
    )
    if wrap == "ddp":
        running: nn.Module = DistributedDataParallel(model)
    else:
        for part in (model.inner, model.attention):
            fully_shard(part)
        running = fully_shard(model)
    optimizer = torch.optim.SGD(running.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        running(x).square().mean().backward()
        optimizer.step()
        ctl.step()
    weights = [p.full_tensor() if isinstance(p, DTensor) else p for p in running.parameters()]
    site = quantized_sites(model)[0]
    return {
        "weights": [w.detach().clone() for w in weights],
        "cost": ctl.cost,
        "bits": ctl.bits,
        "calls": [row.calls for row in ctl.report()],
        "rank": ctl._rank,
        "errors": [row.activation_error for row in ctl.report() if row.quantised],
        "range": site.ranges[0].bounds.clone(),
        "keys": list(model.state_dict()),
    }


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        for wrap in WRAPS:
            torch.save(train(wrap, rank), Path(folder, f"{wrap}{rank}.pt"))
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both processes found, for each way of wrapping."""
    made = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(port), str(made)], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    return made


@pytest.mark.parametrize("wrap", WRAPS)
def test_two_processes(wrap: str, folder: Path) -> None:
    a, b = (torch.load(folder / f"{wrap}{rank}.pt", weights_only=True) for rank in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a["weights"], b["weights"], strict=True))
    assert (a["bits"], a["cost"], a["calls"]) == (b["bits"], b["cost"], b["calls"])
    assert a["calls"] == [STEPS] * len(a["calls"])
    assert (a["rank"], b["rank"]) == (0, 1)
    assert all(0 < error < 0.5 for error in a["errors"])
    assert not torch.equal(a["range"], b["range"])  # each process saw other data
    assert a["keys"] == list(Net().state_dict())


if __name__ == "__main__":
    worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
