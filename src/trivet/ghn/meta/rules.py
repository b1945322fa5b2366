"""Which architectures a hypernetwork is trained and tested on: those of DeepNets-1M that a budget allows.

A pool takes networks of `DeepNets` in the order of their indices under a `Budget` of parameters and
multiply-accumulates; it can leave out attention and fix the share of networks without normalisation. Splits keep their
genotypes, so pools of different splits are disjoint as those are.

The splits that test beyond the training distribution keep their sense at this size: `wide` has twice the channels,
`deep` up to twice as many cells as training networks can have, `dense` up to 10 steps a cell, `bn_free` no
normalisation. Their limits are four times as high.

Torch-free. Not covered: limits by measured time, which would differ between machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from trivet.core.config import UNSET_IS_LEFT_OUT
from trivet.ghn.deepnets.architecture import Architecture, CellArchitecture
from trivet.ghn.deepnets.budget import Budget
from trivet.ghn.deepnets.dataset import DeepNets
from trivet.ghn.deepnets.tensors import LARGE

BEYOND = 4
"""How many times higher the limits of the splits beyond the training distribution are."""
INSIDE = ("train", "val", "test")
"""Splits of the training distribution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolConfig:
    """The `pool` section.

    Examples:
        >>> PoolConfig(max_cells=2)
        Traceback (most recent call last):
        ...
        ValueError: `max_cells=2` must be ≥ 4, the fewest cells in DeepNets-1M
    """

    size: int = 1000
    """Architectures to train on."""
    max_cells: int = 8
    """Most cells of an architecture."""
    channels: tuple[int, ...] = (16, 24, 32)
    """Channels of the first cell, drawn with equal chances."""
    fc_dim: tuple[int, ...] = (64, 128)
    """Widths of a classifier of two layers, drawn with equal chances."""
    max_parameters: int = 500_000
    """Most parameters."""
    max_macs: int = 5_000_000
    """Most multiply-accumulates of one image's forward pass."""
    attention: bool = True
    """Admit networks with attention; they compute slowly for their multiply-accumulates."""
    bn_free: float = 0.0
    """Share of networks without normalisation; 0 takes them as they come, about one in five."""
    even_channels: bool = field(default=False, metadata=UNSET_IS_LEFT_OUT)
    """As many networks of each number of channels; else as they come, and limited operations leave few wide ones."""
    published: bool = False
    """Take the networks of DeepNets-1M as published, with none of the limits above: for GPUs."""
    seed: int = 0
    """Another number is another pool."""

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"`size={self.size}` must be ≥ 2; 1000 is the default")
        if self.max_cells < 4:
            raise ValueError(f"`max_cells={self.max_cells}` must be ≥ 4, the fewest cells in DeepNets-1M")
        if not 0 <= self.bn_free <= 1:
            raise ValueError(f"`bn_free={self.bn_free}` must lie in [0, 1]; 0 takes networks as they come")
        self.budget("train")

    def budget(self, split: str, *, num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Budget:
        """What the networks of a split may cost.

        Raises:
            ValueError: A rule that no budget can have.

        Examples:
            >>> PoolConfig().budget("deep").num_cells, PoolConfig().budget("wide").channels
            ((9, 16), (32, 48, 64))
        """
        factor = 1 if split in INSIDE else BEYOND
        return Budget(
            num_cells=(self.max_cells + 1, 2 * self.max_cells) if split == "deep" else (4, self.max_cells),
            channels=tuple(value * (2 if split == "wide" else 1) for value in self.channels),
            fc_dim=self.fc_dim,
            max_parameters=factor * self.max_parameters,
            max_macs=factor * self.max_macs,
            num_classes=num_classes,
            in_channels=in_channels,
            image_size=image_size,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One architecture of a pool."""

    number: int
    """Its index in `DeepNets` under the pool's budget."""
    architecture: Architecture
    """The network."""


def admitted(split: str, rules: PoolConfig, budget: Budget) -> Iterator[Entry]:
    """Networks of a split that the rules admit, in the order of their indices."""
    for number, network in enumerate(DeepNets(split, seed=rules.seed, size=10**9, budget=budget)):
        if isinstance(network, CellArchitecture) and (rules.attention or not network.is_transformer):
            yield Entry(number=number, architecture=network)


class Everything(Sequence[Entry]):
    """The published networks of a split, each drawn when it is asked for: a million need no memory.

    Examples:
        >>> nets = Everything(DeepNets("train"))
        >>> len(nets), nets[999_999].number
        (1000000, 999999)
    """

    def __init__(self, nets: DeepNets) -> None:
        self._nets = nets

    def __len__(self) -> int:
        return len(self._nets)

    def __getitem__(self, index: int) -> Entry:  # type: ignore[override]
        return Entry(number=index, architecture=self._nets[index])


def pool(
    split: str, rules: PoolConfig, size: int, *, num_classes: int = 10, in_channels: int = 3, image_size: int = 32
) -> Sequence[Entry]:
    """The first `size` networks; where the rules fix shares, the first of each kind.

    Those without normalisation are spread evenly over the pool, and so are numbers of channels in either kind.

    Args:
        split: A split of `DeepNets` that is drawn.
        rules: What is admitted.
        size: How many.
        num_classes: Classes of the data.
        in_channels: Channels of the images.
        image_size: Their height and width.

    Raises:
        ValueError: An unknown split, or next to nothing fits the budget.

    Examples:
        >>> [entry.number for entry in pool("test", PoolConfig(attention=True), 3)]
        [0, 1, 2]
    """
    if rules.published:
        return Everything(DeepNets(split, seed=rules.seed, size=size, large_images=image_size >= LARGE))
    budget = rules.budget(split, num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    entries = admitted(split, rules, budget)
    fixes_norm = bool(rules.bn_free) and split != "bn_free"
    if not fixes_norm and not rules.even_channels:
        return list(islice(entries, size))
    wanted = _kinds(size, rules.bn_free if fixes_norm else 0.0, budget.channels if rules.even_channels else (0,))
    missing = Counter(wanted)
    queues: dict[tuple[bool, int], list[Entry]] = {kind: [] for kind in missing}
    while missing.total():
        entry = next(entries)
        kind = (fixes_norm and _is_bn_free(entry), _channels(entry) if rules.even_channels else 0)
        if missing[kind] > 0:
            missing[kind] -= 1
            queues[kind].append(entry)
    sources = {kind: iter(queue) for kind, queue in queues.items()}
    return [next(sources[kind]) for kind in wanted]


def _kinds(size: int, bn_free: float, channels: tuple[int, ...]) -> list[tuple[bool, int]]:
    """Whether each network of a pool is without normalisation, and its channels (0: any)."""
    kinds: list[tuple[bool, int]] = []
    count = {True: 0, False: 0}
    for place in range(size):
        free = int((place + 1) * bn_free + 1e-9) > int(place * bn_free + 1e-9)
        kinds.append((free, channels[count[free] % len(channels)]))
        count[free] += 1
    return kinds


def _is_bn_free(entry: Entry) -> bool:
    return isinstance(entry.architecture, CellArchitecture) and entry.architecture.norm == "none"


def _channels(entry: Entry) -> int:
    return entry.architecture.channels if isinstance(entry.architecture, CellArchitecture) else 0


def shares(entries: Sequence[Entry]) -> dict[str, float]:
    """What a pool is made of: means, and shares of its networks.

    Raises:
        ValueError: The pool is empty.

    Examples:
        >>> shares(pool("train", PoolConfig(), 4))["count"]
        4
    """
    if not entries:
        raise ValueError("an empty pool has no shares")
    nets = [entry.architecture for entry in entries if isinstance(entry.architecture, CellArchitecture)]
    columns = {
        "parameters": [net.num_parameters() for net in nets],
        "macs": [net.macs() for net in nets],
        "cells": [net.num_cells for net in nets],
        "channels": [net.channels for net in nets],
        "batch norm": [net.norm == "bn" for net in nets],
        "imagenet stem": [net.stem == "imagenet" for net in nets],
        "attention": [net.is_transformer for net in nets],
        "flattened": [not net.global_average for net in nets],
    }
    return {"count": len(nets), **{name: sum(column) / len(column) for name, column in columns.items()}}
