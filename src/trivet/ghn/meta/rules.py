"""Which architectures a hypernetwork is trained and tested on: DeepNets-1M's, in a size that a budget allows.

DeepNets-1M is made for GPUs. A pool draws from its splits with fewer cells, draws channels and classifier width anew
from short lists, and keeps what stays below a number of parameters and of multiply-accumulates. All of it is counted
without building a network. Genotypes keep to their splits, so pools of different splits are disjoint as those are.

The splits that test beyond the training distribution keep their sense at this size: `wide` has twice the channels of
`test`, `deep` one to two times as many cells as training networks can have, `dense` up to 10 steps a cell, `bn_free`
no normalisation. Their limits are four times as high.

Torch-free. Not covered: limits by measured time, which would differ between machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from trivet.core.seeding import derive
from trivet.ghn.deepnets.architecture import CellArchitecture
from trivet.ghn.deepnets.draws import Draws
from trivet.ghn.deepnets.sample import sample
from trivet.ghn.deepnets.splits import Split, get_split

SEARCH_LIMIT = 5_000
"""Architectures looked at for one that is kept, before a pool's rules are called too strict."""
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
    seed: int = 0
    """Another number is another pool."""

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"`size={self.size}` must be ≥ 2; 1000 is the default")
        if self.max_cells < 4:
            raise ValueError(f"`max_cells={self.max_cells}` must be ≥ 4, the fewest cells in DeepNets-1M")
        for name in ("channels", "fc_dim"):
            values = getattr(self, name)
            if not values or any(value < 8 or value % 8 for value in values):
                raise ValueError(f"`{name}={list(values)}` must be multiples of 8, one or more")
        if not 0 <= self.bn_free <= 1:
            raise ValueError(f"`bn_free={self.bn_free}` must lie in [0, 1]; 0 takes networks as they come")
        for name in ("max_parameters", "max_macs"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}={getattr(self, name)}` must be ≥ 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One architecture of a pool."""

    number: int
    """Its number among the draws of its split."""
    architecture: CellArchitecture
    """The network."""


def admitted(
    split: str, rules: PoolConfig, *, in_channels: int = 3, image_size: int = 32, num_classes: int = 10
) -> Iterator[Entry]:
    """Architectures of a split that the rules admit, in the order of their numbers, without end.

    Args:
        split: A split of DeepNets that is drawn.
        rules: What is admitted.
        in_channels: Channels of the images.
        image_size: Their height and width.
        num_classes: Classes of the data.

    Raises:
        ValueError: An unknown split, or the rules admit next to nothing.

    Examples:
        >>> next(admitted("test", PoolConfig())).architecture.num_cells <= 8
        True
    """
    factor = 1 if split in INSIDE else BEYOND
    last = 0
    for number in count():
        if number - last > SEARCH_LIMIT:
            raise ValueError(
                f"none of {SEARCH_LIMIT} architectures of the split {split!r} in a row obeys the pool's rules; raise "
                "`max_macs` or `max_parameters`"
            )
        entry = draw(split, number, rules)
        found = entry.architecture
        if (
            (rules.attention or not found.is_transformer)
            and found.num_parameters(num_classes, in_channels, image_size) <= factor * rules.max_parameters
            and found.macs(num_classes, in_channels, image_size) <= factor * rules.max_macs
        ):
            last = number
            yield entry


def pool(
    split: str, rules: PoolConfig, size: int, *, in_channels: int = 3, image_size: int = 32, num_classes: int = 10
) -> list[Entry]:
    """The first `size` of `admitted`; where the rules set a share of networks without normalisation, the first of each.

    Networks with and without are then spread evenly over the pool.
    """
    entries = admitted(split, rules, in_channels=in_channels, image_size=image_size, num_classes=num_classes)
    if not rules.bn_free or split == "bn_free":
        return list(islice(entries, size))
    wanted = [int((place + 1) * rules.bn_free + 1e-9) - int(place * rules.bn_free + 1e-9) for place in range(size)]
    queues: tuple[list[Entry], list[Entry]] = ([], [])
    while len(queues[1]) < sum(wanted) or len(queues[0]) < size - sum(wanted):
        entry = next(entries)
        queues[entry.architecture.norm == "none"].append(entry)
    sources = (iter(queues[0]), iter(queues[1]))
    return [next(sources[free]) for free in wanted]


def _smaller(split: str, rules: PoolConfig) -> Split:
    drawn = get_split(split)
    cells = (rules.max_cells + 1, 2 * rules.max_cells) if split == "deep" else (4, rules.max_cells)
    return dataclasses.replace(drawn, num_cells=cells)


def draw(split: str, number: int, rules: PoolConfig) -> Entry:
    """The architecture of a split with this number, admitted or not; `wide` has those of `test`.

    Raises:
        ValueError: An unknown split.

    Examples:
        >>> draw("test", 3, PoolConfig()) == draw("test", 3, PoolConfig())
        True
    """
    name = "test" if split == "wide" else split
    draws = Draws(derive(rules.seed, "pool", name, number))
    network = sample(draws, _smaller(split, rules))
    channels = draws.choice(rules.channels) * (2 if split == "wide" else 1)
    network = dataclasses.replace(network, channels=channels, fc_dim=draws.choice(rules.fc_dim))
    return Entry(number=number, architecture=network)


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
    nets = [entry.architecture for entry in entries]
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
