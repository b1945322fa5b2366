"""A pool of networks, each built when it is first asked for and kept.

What a hypernetwork reads of a network (its graph) and what runs with predicted parameters (its skeleton) depend on the
architecture alone; making both takes about as long as one training step of the network, so they are kept, and may be
made ahead.

Not covered: pools larger than memory; a network takes about 0.2 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trivet.ghn.ghn import GHN
from trivet.ghn.meta.rules import Entry
from trivet.ghn.meta.skeleton import Skeleton
from trivet.graph import Graph, graph_of


@dataclass(frozen=True, slots=True)
class PoolNetwork:
    """One network of a pool."""

    entry: Entry
    """Its description."""
    graph: Graph
    """What the hypernetwork reads."""
    skeleton: Skeleton
    """What runs with predicted parameters."""


class Pool:
    """Networks by number.

    Args:
        entries: Their descriptions.
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Their height and width.
        device: Where the networks run.
        dropout: Keep their dropout layers.

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
    ) -> None:
        self.entries = list(entries)
        self._shape = (num_classes, in_channels, image_size)
        self._device = device
        self._dropout = dropout
        self._made: dict[int, PoolNetwork] = {}

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
            self._made[index] = self._make(self.entries[index])
        return self._made[index]

    def _make(self, entry: Entry) -> PoolNetwork:
        classes, channels, size = self._shape
        with torch.device("meta"):
            module = entry.architecture.build(classes, channels, size)
            graph = graph_of(module, torch.empty(2, channels, size, size))
        return PoolNetwork(entry, graph, Skeleton(module, device=self._device, dropout=self._dropout))


def predict(module: nn.Module, networks: Sequence[PoolNetwork]) -> list[dict[str, Tensor]]:
    """Parameters for networks of a pool.

    Raises:
        TypeError: The module is no `GHN`.
    """
    if not isinstance(module, GHN):
        raise TypeError(f"a {type(module).__name__} predicts nothing; give a GHN")
    return module.predict_batch([network.graph for network in networks])
