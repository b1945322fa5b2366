"""Random numbers of loader workers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from trivet import audit

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core


class Noisy(Dataset[Any]):
    """Draws from a generator of the data set's own, or from a global one."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.parts = {"x": 1}
        self.rng = {
            "own": np.random.default_rng(0),
            "state": np.random.RandomState(0),
            "torch own": torch.Generator(),
        }.get(source)
        self.nested = [random.Random(0)]
        self.never = np.random.default_rng(1)  # nobody draws from it

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        draw: dict[str, Any] = {
            "numpy": np.random.rand,
            "python": random.random,
            "torch": lambda: torch.rand(1).item(),
            "own": lambda: self.rng.random(),  # type: ignore[union-attr]
            "state": lambda: self.rng.rand(),  # type: ignore[union-attr]
            "torch own": lambda: torch.rand(1, generator=self.rng).item(),  # type: ignore[call-overload]
            "nested": lambda: self.nested[0].random(),
            "none": lambda: 0.0,
        }
        return index + draw[self.source]()


class Stream(IterableDataset[Any]):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __iter__(self) -> Iterator[float]:
        while True:
            yield self.rng.random()


def fixed(worker: int) -> None:
    np.random.seed(0)


def by_worker(worker: int) -> None:
    np.random.seed(worker)


def own_by_seed(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)  # type: ignore[attr-defined]


CLEAN: list[tuple[str, Any]] = [
    ("numpy", None),
    ("python", None),
    ("torch", None),
    ("none", fixed),
    ("own", own_by_seed),
]
FAULTY: list[tuple[str, Any, str, str]] = [
    ("numpy", fixed, "numpy.random", "workers draw the same random numbers"),
    ("numpy", by_worker, "numpy.random", "a worker draws the same random numbers in every epoch"),
    ("own", None, "dataset.rng", "workers draw the same random numbers"),
    ("state", None, "dataset.rng", "workers draw the same random numbers"),
    ("torch own", None, "dataset.rng", "workers draw the same random numbers"),
    ("nested", None, "dataset.nested[0]", "workers draw the same random numbers"),
]


@pytest.mark.parametrize(("source", "init"), CLEAN)
def test_no_false_alarm(source: str, init: Any) -> None:
    before = torch.get_rng_state()
    found = audit.workers(DataLoader(Noisy(source), batch_size=2, shuffle=True, num_workers=2, worker_init_fn=init))
    assert not found.findings, str(found)
    assert bool(found.drawn) == (source != "none")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(("source", "init", "where", "what"), FAULTY)
def test_planted_faults(source: str, init: Any, where: str, what: str) -> None:
    found = audit.workers(DataLoader(Noisy(source), batch_size=2, num_workers=2, worker_init_fn=init))
    assert [(finding.where, finding.what) for finding in found.findings] == [(where, what)]


def test_streams_and_loaders_without_batches() -> None:
    stream = audit.workers(DataLoader(Stream(), batch_size=2, num_workers=2))
    assert [finding.where for finding in stream.findings] == ["dataset.rng"]
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    single = DataLoader(Noisy("own"), batch_size=None, num_workers=2, persistent_workers=True, generator=generator)
    assert audit.workers(single).findings
    assert torch.equal(before, generator.get_state())


def test_no_workers() -> None:
    assert str(audit.workers(DataLoader(Noisy("own")))) == "workers: the loader has none"
