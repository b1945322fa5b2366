"""A pool of networks, each built when it is first asked for, or ahead by other processes, and kept.

What a hypernetwork reads of a network (its graph) and what runs with predicted parameters (its skeleton) depend on the
architecture alone. Making the graph takes about as long as a training step of the network, so graphs are kept, and a
large pool has worker processes make those of the coming steps.

Not covered: graphs on disk.
"""

from __future__ import annotations

import multiprocessing
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trivet.ghn.deepnets.architecture import Architecture
from trivet.ghn.ghn import GHN
from trivet.ghn.meta.rules import Entry
from trivet.ghn.meta.skeleton import Skeleton
from trivet.graph import Graph, graph_of

if TYPE_CHECKING:
    from trivet.ghn.task_encoder import Task

Shape = tuple[int, int, int]
"""Classes, channels of the images, their height and width."""


@dataclass(frozen=True, slots=True)
class PoolNetwork:
    """One network of a pool."""

    entry: Entry
    """Its description."""
    graph: Graph
    """What the hypernetwork reads."""
    skeleton: Skeleton
    """What runs with predicted parameters."""
    task: Task | None = None
    """Labelled images that show what the parameters are for, if the hypernetwork is told."""


class Pool:
    """Networks by number.

    Args:
        entries: Their descriptions.
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Their height and width.
        device: Where the networks run.
        dropout: Keep their dropout layers.
        keep: Networks kept, the last used; one takes about 0.2 MB.
        workers: Processes that make graphs ahead, see `ahead`.

    Examples:
        >>> from trivet.ghn.meta.rules import PoolConfig, pool
        >>> networks = Pool(pool("train", PoolConfig(), 2))
        >>> len(networks), networks[0] is networks[0]
        (2, True)
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        num_classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        device: torch.device | str = "cpu",
        dropout: bool = False,
        keep: int = 5000,
        workers: int = 0,
    ) -> None:
        self.entries = entries
        self._shape: Shape = (num_classes, in_channels, image_size)
        self._device = device
        self._dropout = dropout
        self.keep = keep
        self._made: OrderedDict[int, PoolNetwork] = OrderedDict()
        self._coming: dict[int, Future[dict[str, Any]]] = {}
        self._executor: ProcessPoolExecutor | None = None
        if workers:
            self._executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> PoolNetwork:
        """The network with this number in the pool.

        Raises:
            IndexError: There is none.
        """
        if not 0 <= index < len(self.entries):
            raise IndexError(f"network {index}; the pool has {len(self.entries)}")
        if index not in self._made:
            self._made[index] = self._make(index)
            if len(self._made) > self.keep:
                self._made.popitem(last=False)
        self._made.move_to_end(index)
        return self._made[index]

    def prepare(self) -> None:
        """Make all networks now, if they are few enough to be kept; a large pool's are left to the workers."""
        if len(self.entries) <= self.keep:
            for number in range(len(self.entries)):
                self[number]

    def ahead(self, numbers: Iterable[int]) -> None:
        """Have the graphs of these networks made, if there are workers; asking again costs nothing."""
        if self._executor is None:
            return
        for number in numbers:
            if number not in self._made and number not in self._coming:
                plain = self.entries[number].architecture.to_dict()
                self._coming[number] = self._executor.submit(make_graph, plain, self._shape)

    def close(self) -> None:
        """End the worker processes."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _make(self, index: int) -> PoolNetwork:
        entry = self.entries[index]
        with torch.device("meta"):
            module = entry.architecture.build(*self._shape)
        coming = self._coming.pop(index, None)
        graph = _graph(module, self._shape) if coming is None else Graph.from_dict(coming.result())
        skeleton = Skeleton(module, device=self._device, dropout=self._dropout, unused=graph.unplaced)
        return PoolNetwork(entry, graph, skeleton)


def make_graph(plain: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """The graph of an architecture, both as plain values: what a worker process does."""
    torch.set_num_threads(1)
    with torch.device("meta"):
        module = Architecture.from_dict(plain).build(*shape)
    return _graph(module, shape).to_dict()


def _graph(module: nn.Module, shape: Shape) -> Graph:
    _, channels, size = shape
    return graph_of(module, torch.empty(2, channels, size, size, device="meta"))


def predict(module: nn.Module, networks: Sequence[PoolNetwork]) -> list[dict[str, Tensor]]:
    """Parameters for networks of a pool.

    Raises:
        TypeError: The module is no `GHN`.
    """
    if not isinstance(module, GHN):
        raise TypeError(f"a {type(module).__name__} predicts nothing; give a GHN")
    tasks = [network.task for network in networks if network.task is not None]
    return module.predict_batch([network.graph for network in networks], tasks=tasks or None)
