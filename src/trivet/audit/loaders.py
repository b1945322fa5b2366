"""The random numbers of a data loader's workers: do all workers draw the same ones, or the same ones every epoch?

torch seeds Python, numpy and itself differently in every worker and epoch. A `worker_init_fn` can undo that, and a
generator that the data set keeps (`numpy.random.default_rng(0)`, `random.Random`, `torch.Generator`) is copied to every
worker with its state, and again in every epoch: the "random" augmentations are then the same everywhere.

Each worker is started as the loader starts it and makes one example; only generators that it draws from then count.

Not covered: generators in global variables, and state that other libraries keep for themselves.
"""

from __future__ import annotations

import hashlib
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from trivet.audit.finding import Finding
from trivet.training.checkpoint import rng_state, set_rng_state

ADVICE = {
    "global": "let `worker_init_fn` derive its seed from torch.initial_seed(), which differs by worker and epoch, or "
    "leave it out: torch seeds Python, numpy and itself",
    "own": "make the generator in the worker, seeded with torch.utils.data.get_worker_info().seed, or draw from "
    "torch's global generator",
}
GLOBAL = ("random", "numpy.random", "torch")
DEPTH = 3
"""How deep generators are looked for in the data set's attributes."""

_before: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersAudit:
    """What `workers` found."""

    workers: int
    """Worker processes of the loader; with 0 there is nothing to compare."""
    drawn: tuple[str, ...]
    """Generators from which a worker draws when it makes an example."""
    findings: tuple[Finding, ...]
    """Generators that are in the same state in several workers, or at the start of every epoch."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return asdict(self)

    def __str__(self) -> str:
        drawn = ", ".join(self.drawn) or "none"
        head = f"workers: {self.workers} workers, random numbers drawn from: {drawn}"
        return "\n".join([head if self.workers else "workers: the loader has none", *map(str, self.findings)])


def workers(loader: DataLoader[Any]) -> WorkersAudit:
    """Start a loader's workers twice, as two epochs do, and compare the random numbers that each would draw.

    Args:
        loader: It is not changed, and neither are the global random states.

    Examples:
        >>> from trivet import audit
        >>> audit.workers(DataLoader(torch.arange(4))).workers
        0
    """
    count = loader.num_workers
    if not count:
        return WorkersAudit(workers=0, drawn=(), findings=())
    state, own = rng_state(), loader.generator.get_state() if loader.generator is not None else None
    try:
        epochs = [_epoch(loader) for _ in range(1 if loader.persistent_workers else 2)]
    finally:
        set_rng_state(state)
        if loader.generator is not None and own is not None:
            loader.generator.set_state(own)
    drawn = sorted({name for report in epochs[0] for name in report["drawn"]})
    findings = [finding for name in drawn if (finding := _finding(name, epochs)) is not None]
    return WorkersAudit(workers=count, drawn=tuple(drawn), findings=tuple(findings))


def _finding(name: str, epochs: list[list[dict[str, Any]]]) -> Finding | None:
    states = [[report["states"].get(name, "") for report in epoch] for epoch in epochs]
    most = Counter(states[0]).most_common(1)[0][1]
    advice = ADVICE["global" if name in GLOBAL else "own"]
    if most > 1:
        what = "workers draw the same random numbers"
        return Finding(
            check="workers", what=what, where=name, size=f"{most} of {len(states[0])} workers agree", advice=advice
        )
    if len(states) > 1 and states[0] == states[1]:
        what = "a worker draws the same random numbers in every epoch"
        return Finding(
            check="workers", what=what, where=name, size=f"all of {len(states[0])} workers, 2 epochs", advice=advice
        )
    return None


def _epoch(loader: DataLoader[Any]) -> list[dict[str, Any]]:
    """One report of each worker."""
    more: dict[str, Any] = {"batch_size": 1}
    if not isinstance(loader.dataset, IterableDataset):
        source: Any = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        first = next(iter(source))
        key = first[0] if isinstance(first, list) else first
        more = {"batch_sampler": [[key]] * loader.num_workers}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # the user's own loader has said so already
        probe: DataLoader[Any] = DataLoader(
            loader.dataset,
            num_workers=loader.num_workers,
            worker_init_fn=_Begin(loader.worker_init_fn),
            collate_fn=_Report(loader.collate_fn),
            generator=loader.generator,
            multiprocessing_context=loader.multiprocessing_context,
            **more,
        )
    reports: dict[int, dict[str, Any]] = {}
    for report in probe:
        reports.setdefault(report["worker"], report)
        if len(reports) == loader.num_workers:
            break
    return [reports[number] for number in sorted(reports)]


class _Begin:
    """The loader's own `worker_init_fn`, and then a note of all random states. Runs in the worker."""

    def __init__(self, inner: Callable[[int], None] | None) -> None:
        self.inner = inner

    def __call__(self, worker: int) -> None:
        if self.inner is not None:
            self.inner(worker)
        _before.clear()
        _before.update(_states())


class _Report:
    """The loader's own `collate_fn`, and then which generators were drawn from. Runs in the worker."""

    def __init__(self, inner: Callable[[Any], Any]) -> None:
        self.inner = inner

    def __call__(self, items: Any) -> dict[str, Any]:
        self.inner(items)
        after, info = _states(), get_worker_info()
        drawn = [name for name, state in _before.items() if after.get(name) != state]
        return {"worker": info.id if info is not None else 0, "states": dict(_before), "drawn": drawn}


def _states() -> dict[str, str]:
    """Digest of every random state that a worker has."""
    info = get_worker_info()
    numpy_state: Any = np.random.get_state(legacy=False)
    found = {
        "random": _digest(random.getstate()),
        "numpy.random": _digest((numpy_state["state"]["key"].tobytes(), numpy_state["state"]["pos"])),
        "torch": _digest(torch.get_rng_state().numpy().tobytes()),
    }
    if info is not None:
        found.update(_generators(info.dataset, "dataset", DEPTH))
    return found


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _generators(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Generators among the attributes of an object, and digests of their states."""
    if isinstance(value, np.random.Generator):
        yield path, _digest(value.bit_generator.state)
    elif isinstance(value, np.random.RandomState):
        yield path, _digest(value.get_state(legacy=False))
    elif isinstance(value, random.Random):
        yield path, _digest(value.getstate())
    elif isinstance(value, torch.Generator):
        yield path, _digest(value.get_state().numpy().tobytes())
    elif depth and isinstance(value, (list, tuple)) and len(value) <= 64:
        for place, item in enumerate(value):
            yield from _generators(item, f"{path}[{place}]", depth - 1)
    elif depth and hasattr(value, "__dict__"):
        for name, item in vars(value).items():
            yield from _generators(item, f"{path}.{name}", depth - 1)
