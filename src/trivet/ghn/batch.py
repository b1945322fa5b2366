"""Several graphs as one batch: nodes in a row, edges as CSR, and the order in which a graph network visits them.

What belongs to one graph alone (`GraphPlan`) is plain arrays that can be kept by the graph's key. A `GraphBatch` joins
plans and lays out, for each sweep of a gated network, all levels of all graphs together; for a graphormer, the index of
each pair of nodes in the table of edge biases.

Not covered: padding. Graphs of different sizes stand behind each other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trivet.ghn.config import GHNConfig
from trivet.ghn.shapes import ShapeVocabulary
from trivet.ghn.sweep import Bags, SweepPlan
from trivet.ghn.targets import reading, view_of
from trivet.graph.graph import Graph

T = TypeVar("T")

MAX_DEGREE = 100
"""Largest number of neighbors that a graphormer tells apart."""
MAX_INPUT_DISTANCE = 1000
"""Longest distance from the input that a graphormer tells apart."""


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """What a hypernetwork reads off one graph."""

    words: NDArray[np.int64]
    """Index of each node's word [nodes]; the number of words where there is none."""
    sizes: NDArray[np.int64]
    """Indices of each node's sizes [nodes, 4]."""
    depths: NDArray[np.int64]
    """Longest path to each node [nodes]."""
    heights: NDArray[np.int64]
    """Longest path from each node [nodes]."""
    pairs: NDArray[np.int32]
    """From, to and distance of all pairs within reach [3, pairs], sorted."""
    input_distances: NDArray[np.int64]
    """Distance from the nearest input [nodes]; 0 for inputs and what they do not reach."""


def plan_graph(graph: Graph, config: GHNConfig, sizes: ShapeVocabulary) -> GraphPlan:
    """Read a graph as a hypernetwork of this configuration does."""
    count = len(graph.nodes)
    heights = [0] * count
    for source, target in reversed(graph.edges):
        heights[source] = max(heights[source], heights[target] + 1)
    table = np.tile(sizes.absent, (count, 1))
    for row, node in zip(table, graph.nodes, strict=True):
        if node.parameters:
            seen = view_of(node)
            if not isinstance(seen, str):
                row[:] = sizes.index(seen[1])
        elif len(node.kernel) >= 2:
            row[:] = sizes.index((1, 1, node.kernel[-2], node.kernel[-1]))
    pairs = np.ascontiguousarray(graph.distances(config.reach).T, dtype=np.int32)
    near = np.full(count, MAX_INPUT_DISTANCE + 1, dtype=np.int64)
    inputs = list(graph.inputs or (0,))
    from_inputs = np.isin(pairs[0], inputs)
    np.minimum.at(near, pairs[1, from_inputs], pairs[2, from_inputs])
    near[inputs] = 0
    distances = np.where(near > MAX_INPUT_DISTANCE, 0, near)
    words = np.array([reading(node, config.words) for node in graph.nodes], dtype=np.int64)
    return GraphPlan(words, table, graph.depths, np.asarray(heights), pairs, distances)


@dataclass(frozen=True, slots=True)
class GraphBatch:
    """Graphs behind each other, as tensors."""

    counts: tuple[int, ...]
    """Nodes of each graph."""
    words: Tensor
    """int64 [nodes]."""
    sizes: Tensor
    """int64 [nodes, 4]."""
    sweeps: tuple[SweepPlan, ...] = ()
    """Forward and backward sweep of a gated network."""
    relations: tuple[Tensor, ...] = ()
    """For a graphormer, of each graph: each pair of nodes' entry in the table of edge biases, int64 [nodes · nodes]."""
    degrees: Tensor | None = None
    """For a graphormer: edges into and out of each node, and its distance from the input, int64 [3, nodes]."""


def join(plans: Sequence[GraphPlan], config: GHNConfig, device: torch.device) -> GraphBatch:
    """Make a batch of plans, with what the configuration's encoder needs."""
    counts = tuple(len(plan.words) for plan in plans)

    def tensor(arrays: Sequence[NDArray[np.int64]]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    words, sizes = tensor([plan.words for plan in plans]), tensor([plan.sizes for plan in plans])
    if config.encoder == "gated":
        starts = np.cumsum([0, *counts[:-1]], dtype=np.int32)
        source, target = (
            np.concatenate([plan.pairs[side] + start for plan, start in zip(plans, starts, strict=True)])
            for side in (0, 1)
        )
        distance = np.concatenate([plan.pairs[2] for plan in plans])
        depths = np.concatenate([plan.depths for plan in plans])
        heights = np.concatenate([plan.heights for plan in plans])
        forward = _sweep_plan(depths, source, target, distance, config.virtual, device)
        backward = _sweep_plan(heights, target, source, distance, config.virtual, device)
        return GraphBatch(counts, words, sizes, sweeps=(forward, backward))
    if config.encoder == "graphormer":
        relations = tuple(torch.from_numpy(_relations(plan, config.reach)).to(device) for plan in plans)
        degrees = np.concatenate([_degrees(plan) for plan in plans], axis=1)
        return GraphBatch(counts, words, sizes, relations=relations, degrees=torch.from_numpy(degrees).to(device))
    return GraphBatch(counts, words, sizes)


def _sweep_plan(
    levels: NDArray[np.int64],
    speakers: NDArray[np.int32],
    listeners: NDArray[np.int32],
    distances: NDArray[np.int32],
    virtual: bool,
    device: torch.device,
) -> SweepPlan:
    """Lay out a sweep by level; with virtual edges, a node has two messages, for edges and for paths."""
    count = len(levels)
    order = _order(levels)
    row = np.empty(count, dtype=np.int32)
    row[order] = np.arange(count, dtype=np.int32)
    near = np.flatnonzero(distances == 1)
    messages, listening = row[speakers[near]], row[listeners[near]]
    weights = np.ones(len(near), dtype=np.float32)
    if virtual:
        messages = np.concatenate([2 * messages, 2 * row[speakers] + 1])
        listening = np.concatenate([listening, row[listeners]])
        weights = np.concatenate([weights, np.float32(1) / distances.astype(np.float32)])
    sizes = np.bincount(levels)
    return SweepPlan(
        order=torch.from_numpy(order).to(device),
        back=torch.from_numpy(row.astype(np.int64)).to(device),
        sizes=tuple(sizes.tolist()),
        heard=_bags(listening, messages, weights, sizes, device),
        spoken=_bags(messages, listening, weights, sizes * (2 if virtual else 1), device),
    )


def _bags(
    bags: NDArray[np.int32],
    rows: NDArray[np.int32],
    weights: NDArray[np.float32],
    sizes: NDArray[np.int64],
    device: torch.device,
) -> Bags:
    """Sort terms by the bag that they are summed into, and cut them by level."""
    order = _order(bags)
    pointer = np.concatenate([[0], np.cumsum(np.bincount(bags, minlength=int(sizes.sum())))])
    first = np.concatenate([[0], np.cumsum(sizes)])
    begin = pointer[first]
    terms = np.diff(begin).tolist()
    starts = (pointer[:-1] - np.repeat(begin[:-1], sizes)).astype(np.int32)
    return Bags(
        rows=torch.from_numpy(rows[order]).to(device).split(terms),
        weights=torch.from_numpy(weights[order]).to(device).split(terms),
        starts=torch.from_numpy(starts).to(device).split(sizes.tolist()),
    )


def _order(keys: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int64]:
    """Stable order by small whole numbers. Those of 16 bits are sorted in linear time."""
    small = not len(keys) or int(keys.max()) < 2**16
    return np.argsort(keys.astype(np.uint16) if small else keys, kind="stable")


def _relations(plan: GraphPlan, reach: int) -> NDArray[np.int64]:
    """0 for a pair that no path joins, s for one at distance s, reach + s for the same pair the other way round."""
    count = len(plan.words)
    matrix = np.zeros((count, count), dtype=np.int64)
    source, target, distance = plan.pairs
    matrix[source, target] = distance
    matrix[target, source] = distance + reach
    return matrix.ravel()


def _degrees(plan: GraphPlan) -> NDArray[np.int64]:
    count = len(plan.words)
    edges = plan.pairs[:, plan.pairs[2] == 1]
    degrees = np.stack([np.bincount(edges[side], minlength=count) for side in (1, 0)])
    return np.concatenate([degrees.clip(max=MAX_DEGREE), plan.input_distances[None].clip(max=MAX_INPUT_DISTANCE)])


class Cache:
    """A dictionary that forgets what was not used for longest, beyond a number of entries.

    Examples:
        >>> cache = Cache(1)
        >>> cache.get("a", lambda: 1), cache.get("a", lambda: 2), cache.get("b", lambda: 3), cache.get("a", lambda: 4)
        (1, 1, 3, 4)
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[Hashable, object] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value kept under a key, made if there is none."""
        if key not in self._entries:
            self._entries[key] = make()
            if len(self._entries) > self.size:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        return self._entries[key]  # pyrefly: ignore[bad-return]

    def __len__(self) -> int:
        return len(self._entries)

    def __deepcopy__(self, memo: object) -> Cache:
        return Cache(self.size)

    def __getstate__(self) -> dict[str, object]:
        return {"size": self.size, "_entries": OrderedDict()}
