"""Layered layout of a directed acyclic graph: who stands in which row, in which order, and how the wires run.

Sugiyama, Tagawa & Toda 1981 (doi:10.1109/TSMC.1981.4308636) in its usual four steps, tuned to networks:

1. layers: the longest path from the top, sources pulled down to what they feed;
2. wires that skip layers get a lane in each layer they pass, and all wires from one output share their lanes, so that a
   part that feeds fifty others has one trunk and not fifty lines;
3. order in a layer: barycenter sweeps from both ends, the order with the fewest crossings wins;
4. positions: Brandes and Köpf (see `placing`), with the longest path through the picture, its spine, kept straight.

Nothing here knows what the parts are. The result depends on nothing but the arguments.

Not covered: cycles, wires that go sideways or upwards.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from trivet.graph.placing import INNER, LOOSE, SPINE, Edge, place

SWEEPS = 16
"""Sweeps over all layers when crossings are reduced, at most; four in a row without gain end them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something with a size; wires enter it at its top and leave it at its bottom."""

    left: float
    """Pixels from its axis to its left border."""
    right: float
    """Pixels from its axis to its right border."""
    height: float
    """Pixels."""
    weight: float = 1.0
    """How much it counts when the spine is chosen."""
    end: int = 0
    """-1: stands above all others (where wires come from outside); 1: below all others; 0: where its wires want it."""


@dataclass(frozen=True, slots=True)
class Link:
    """A wire from one part to another."""

    source: int
    """Index of the part it leaves."""
    target: int
    """Index of the part it enters."""
    leave: float = 0.0
    """Where it leaves, in pixels from the axis of the source."""
    enter: float = 0.0
    """Where it enters, in pixels from the axis of the target."""


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of wire in the gap below a layer."""

    layer: int
    """The layer above."""
    source: tuple[int, float]
    """The output it carries: part and `leave`."""
    start: float
    """Where it comes from, x in pixels."""
    stop: float
    """Where it goes to, x in pixels."""
    part: int
    """The part it enters, or -1 when it goes on as a lane."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A piece of wire that passes a layer."""

    layer: int
    source: tuple[int, float]
    x: float


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Where everything stands; x in pixels, layers from 0 at the top."""

    layers: tuple[tuple[int, ...], ...]
    """Parts of each layer from left to right."""
    depth: tuple[int, ...]
    """Layer of each part."""
    x: tuple[float, ...]
    """Axis of each part."""
    steps: tuple[Step, ...]
    lanes: tuple[Lane, ...]
    crossings: int
    """Crossings of wires, counted gap by gap."""


def arrange(parts: Sequence[Part], links: Sequence[Link]) -> Arrangement:
    """Lay parts out in layers.

    Args:
        parts: What to place.
        links: Wires between them, without a cycle; two with the same ends are drawn as one.

    Raises:
        ValueError: The links form a cycle.

    Examples:
        >>> part = Part(left=10, right=10, height=20)
        >>> found = arrange([part, part, part], [Link(0, 1), Link(1, 2), Link(0, 2)])
        >>> found.layers, found.x, [(lane.layer, lane.x) for lane in found.lanes]
        (((0,), (1,), (2,)), (0.0, 0.0, 0.0), [(1, 24.0)])
    """
    links = sorted(set(links), key=lambda link: (link.source, link.target, link.leave, link.enter))
    depth = _depths(parts, links)
    grid = _Grid(parts, links, depth)
    crossings = grid.untangle()
    x = place(grid.layers, grid.edges, grid.left, grid.right, len(parts))
    steps = tuple(
        Step(
            layer=grid.depth[edge.above],
            source=grid.source[edge.above] if edge.above >= len(parts) else (edge.above, edge.leave),
            start=x[edge.above] + edge.leave,
            stop=x[edge.below] + edge.enter,
            part=edge.below if edge.below < len(parts) else -1,
        )
        for edge in grid.edges
    )
    lanes = tuple(Lane(grid.depth[v], grid.source[v], x[v]) for v in range(len(parts), len(x)))
    rows = tuple(tuple(v for v in layer if v < len(parts)) for layer in grid.layers)
    return Arrangement(rows, tuple(depth), tuple(x[: len(parts)]), steps, lanes, crossings)


def topological(count: int, links: Sequence[tuple[int, int]]) -> list[int]:
    """Indices in an order in which every link goes forward, the smallest first where there is a choice.

    What lies on a cycle, or behind one, is left out.

    Examples:
        >>> topological(3, [(2, 0), (0, 1)])
        [2, 0, 1]
    """
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for source, target in links:
        waiting[target] += 1
        after[source].append(target)
    ready = [v for v in range(count) if not waiting[v]]
    order: list[int] = []
    while ready:
        first = ready.pop(0)
        order.append(first)
        for target in after[first]:
            waiting[target] -= 1
            if not waiting[target]:
                insort(ready, target)
    return order


def _depths(parts: Sequence[Part], links: Sequence[Link]) -> list[int]:
    """Layer of each part: the longest path, then sources (and what only they feed) as far down as they can go."""
    order = topological(len(parts), [(link.source, link.target) for link in links])
    if len(order) < len(parts):
        lost = sorted(set(range(len(parts))) - set(order))
        raise ValueError(
            f"`links` go in a circle through part {lost[0]}; a layered layout needs a graph without cycles"
        )
    before: list[list[int]] = [[] for _ in parts]
    after: list[list[int]] = [[] for _ in parts]
    for link in links:
        before[link.target].append(link.source)
        after[link.source].append(link.target)
    lowest = 1 if any(part.end < 0 for part in parts) else 0
    depth = [0] * len(parts)
    for v in order:
        floor = 0 if parts[v].end < 0 else lowest
        depth[v] = max([floor, *(depth[u] + 1 for u in before[v])])
    floating = [False] * len(parts)
    for v in order:
        floating[v] = parts[v].end == 0 and all(floating[u] for u in before[v])
    for v in reversed(order):
        if floating[v] and after[v]:
            depth[v] = min(depth[w] for w in after[v]) - 1
    bottom = max((depth[v] + 1 for v in range(len(parts)) if parts[v].end == 0), default=lowest)
    bottom = max([bottom, *(depth[v] for v in range(len(parts)) if parts[v].end > 0)])
    return [bottom if part.end > 0 else depth[v] for v, part in enumerate(parts)]


class _Grid:
    """Parts and lanes in layers, with edges from each layer to the next."""

    def __init__(self, parts: Sequence[Part], links: Sequence[Link], depth: Sequence[int]) -> None:
        self.depth = list(depth)
        self.left = [part.left for part in parts]
        self.right = [part.right for part in parts]
        self.layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
        for v, layer in enumerate(depth):
            self.layers[layer].append(v)
        self.source: dict[int, tuple[int, float]] = {}
        self.edges: list[Edge] = []
        spine = set(_spine(parts, links, depth))
        nets: dict[tuple[int, float], list[Link]] = {}
        for link in links:
            nets.setdefault((link.source, link.leave), []).append(link)
        for net, members in nets.items():
            self._wire(net, members, spine)
        self.edges.sort()

    def _wire(self, net: tuple[int, float], members: Sequence[Link], spine: set[tuple[int, int]]) -> None:
        """Lanes of one output and the edges along them."""
        part, leave = net
        first, last = self.depth[part], max(self.depth[link.target] for link in members)
        on_spine = max((self.depth[link.target] for link in members if (part, link.target) in spine), default=first)
        trunk, offset, count = part, leave, len(self.left)
        for layer in range(first, last):
            strength = SPINE if layer + 1 < on_spine else INNER
            for link in members:
                if self.depth[link.target] == layer + 1:
                    main = SPINE if (part, link.target) in spine else LOOSE
                    self.edges.append(Edge(trunk, link.target, main, offset, link.enter))
            if layer + 1 == last:
                break
            lane = len(self.left)
            for values in (self.left, self.right):
                values.append(0.0)
            self.depth.append(layer + 1)
            self.source[lane] = net
            self.layers[layer + 1].append(lane)
            loose = LOOSE if trunk < count and strength == INNER else strength
            self.edges.append(Edge(trunk, lane, loose, offset, 0.0))
            trunk, offset = lane, 0.0

    def untangle(self) -> int:
        """Order the layers so that few edges cross; returns how many do."""
        above: list[list[tuple[int, float]]] = [[] for _ in self.left]
        below: list[list[tuple[int, float]]] = [[] for _ in self.left]
        for edge in self.edges:
            above[edge.below].append((edge.above, self._share(edge.above, edge.leave)))
            below[edge.above].append((edge.below, self._share(edge.below, edge.enter)))
        position = [0.0] * len(self.left)
        for layer in self.layers:
            _number(layer, position)
        best, fewest, idle = [list(layer) for layer in self.layers], self._crossings(position), 0
        for sweep in range(SWEEPS):
            if not fewest or idle == 4:
                break
            down = sweep % 2 == 0
            for layer in self.layers if down else reversed(self.layers):
                _sort(layer, above if down else below, position)
            found = self._crossings(position)
            idle += 1
            if found < fewest:
                best, fewest, idle = [list(layer) for layer in self.layers], found, 0
        self.layers = best
        return fewest

    def _share(self, v: int, offset: float) -> float:
        """Where on a part an edge meets it, as a share of a place in the order."""
        width = self.left[v] + self.right[v]
        return offset / width * 0.9 if width else 0.0

    def _crossings(self, position: Sequence[float]) -> int:
        gaps: list[list[tuple[float, float]]] = [[] for _ in self.layers]
        for edge in self.edges:
            ends = (
                position[edge.above] + self._share(edge.above, edge.leave),
                position[edge.below] + self._share(edge.below, edge.enter),
            )
            gaps[self.depth[edge.above]].append(ends)
        return sum(_inversions(gap) for gap in gaps)


def _number(layer: Sequence[int], position: list[float]) -> None:
    for index, v in enumerate(layer):
        position[v] = float(index)


def _sort(layer: list[int], neighbors: Sequence[Sequence[tuple[int, float]]], position: list[float]) -> None:
    """Order a layer by the mean position of each member's neighbors; who has none stays where it is."""
    wish = {
        v: sum(position[u] + share for u, share in neighbors[v]) / len(neighbors[v]) if neighbors[v] else position[v]
        for v in layer
    }
    layer.sort(key=lambda v: (wish[v], position[v]))
    _number(layer, position)


def _inversions(ends: list[tuple[float, float]]) -> int:
    """Pairs of edges between two layers that cross; edges that share an end do not."""
    seen: list[float] = []
    total = 0
    ends.sort()
    start = 0
    while start < len(ends):
        stop = start
        while stop < len(ends) and ends[stop][0] == ends[start][0]:
            stop += 1
        for _, low in ends[start:stop]:
            total += len(seen) - bisect_left(seen, low) - _equal(seen, low)
        for _, low in ends[start:stop]:
            insort(seen, low)
        start = stop
    return total


def _equal(values: Sequence[float], wanted: float) -> int:
    index = bisect_left(values, wanted)
    count = 0
    while index + count < len(values) and values[index + count] == wanted:
        count += 1
    return count


def _spine(parts: Sequence[Part], links: Sequence[Link], depth: Sequence[int]) -> list[tuple[int, int]]:
    """Links along the heaviest path from top to bottom."""
    before: list[list[int]] = [[] for _ in parts]
    for link in links:
        before[link.target].append(link.source)
    weight = [0.0] * len(parts)
    came: list[int] = [-1] * len(parts)
    for v in sorted(range(len(parts)), key=lambda v: (depth[v], v)):
        if before[v]:
            came[v] = max(before[v], key=lambda u: (weight[u], -u))
        weight[v] = parts[v].weight + (weight[came[v]] if before[v] else 0.0)
    if not parts:
        return []
    v = max(range(len(parts)), key=lambda v: (weight[v], -v))
    path: list[tuple[int, int]] = []
    while came[v] >= 0:
        path.append((came[v], v))
        v = came[v]
    return path
