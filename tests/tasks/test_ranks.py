"""Two processes with the variables that torchrun sets take the steps of one, and go on where one or two stopped."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import distributed, nn

from trivet.core.io import read_jsonl
from trivet.training.batchnorm import share_batch_norm_
from trivet.training.ranks import Ranks

WORKER = Path(__file__).with_name("ranks_worker.py")
NAMES = ("plain", "quantized", "published", "text", "fsdp2")
RESUMED = ("quantized", "text", "fsdp2")

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()), reason="torch was built without gloo"
)


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ranks_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, worker: ModuleType) -> Path:
    """Runs of one process in `one`, of two in `two`; half of the way by the one, the rest by the other in `half`s."""
    made = tmp_path_factory.mktemp("ranks")
    words = made / "words.txt"
    words.write_text("\n".join(" ".join(f"w{(7 * i * i + j) % 23}" for j in range(9)) for i in range(90)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORDS", str(words))
        patch.setenv("PYTHONPATH", str(WORKER.parent))
        patch.syspath_prepend(str(WORKER.parent))
        for name in RESUMED:
            worker.train(name, made / "begun", Ranks(), stop_after=worker.STEPS // 2)
        _together(made)
        for name in NAMES:
            worker.train(name, made / "one", Ranks())
        for name in RESUMED:
            worker.train(name, made / "two" / "half", Ranks())
    return made


def _together(made: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    own = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, str(WORKER), str(made / "two"), str(made / "begun")]
    with subprocess.Popen(
        command, env={**os.environ, **own}, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors[-3000:]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def curve(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_jsonl(folder / "metrics.jsonl")]


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_take_the_steps_of_one(root: Path, worker: ModuleType, name: str) -> None:
    one, two = curve(root / "one" / name), curve(root / "two" / name)
    assert [row["step"] for row in two] == list(range(1, worker.STEPS + 1))  # one of the two writes
    for first, second in zip(one, two, strict=True):
        assert first == pytest.approx(second, rel=2e-5)
    assert "parameters" in two[-1]


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("place", ["begun", "two/half"])
def test_one_goes_on_where_two_stopped_and_back(root: Path, name: str, place: str) -> None:
    for first, second in zip(curve(root / "one" / name), curve(root / place / name), strict=True):
        assert first == pytest.approx(second, rel=2e-5)


def test_a_checkpoint_of_two_holds_the_tensors_of_one(root: Path) -> None:
    from trivet.training.checkpoint import Checkpoints

    for name in NAMES:
        one, two = (Checkpoints(root / folder / name / "checkpoint").load() for folder in ("one", "two"))
        assert one is not None
        assert two is not None
        assert {key: value.shape for key, value in one.model.items()} == {k: v.shape for k, v in two.model.items()}
        torch.testing.assert_close(one.state["optimizer"], two.state["optimizer"], rtol=1e-3, atol=1e-5)


def test_parts() -> None:
    batch = torch.arange(6)
    assert torch.cat([Ranks(rank=rank, size=3).part(batch) for rank in range(3)]).tolist() == batch.tolist()
    with pytest.raises(ValueError, match="cannot be cut into 4 equal parts"):
        Ranks(rank=0, size=4).part(batch)


def test_shared_batch_norm_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sums that are whole already (one process that takes itself for two halves of the same data)."""
    monkeypatch.setattr(distributed, "all_reduce", lambda tensor: tensor.mul_(2))
    torch.manual_seed(0)
    x = torch.randn(6, 3, 4, 4) * 5 + 100
    own, shared = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    share_batch_norm_(shared, Ranks(rank=0, size=2))
    assert isinstance(shared, nn.BatchNorm2d)
    y, z = own(torch.cat((x, x))), shared(x)
    torch.testing.assert_close(y[:6], z, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(own.running_var, shared.running_var)
    torch.testing.assert_close(own.running_mean, shared.running_mean)
    assert torch.equal(own.eval()(x), nn.Sequential(shared).eval()(x)) or torch.allclose(own(x), shared(x), rtol=1e-4)
