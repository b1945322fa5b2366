"""Horizontal positions for a layered layout: Brandes and Köpf 2002, with strengths.

U. Brandes, B. Köpf: Fast and simple horizontal coordinate assignment (doi:10.1007/3-540-45848-4_3). Four extreme
alignments (downwards or upwards, to the left or to the right) each tie vertices into straight columns; the mean of the
two middle positions of the four is taken, which keeps what is straight in all four straight. Two changes: an edge has
one of three strengths instead of two, and where two edges cross, the weaker one gives up being straight; and a column
is set by one pass from each side over the blocks (as the longest path in the graph of neighbors), which needs neither
classes nor shifts between them.

Not covered: edges that span several layers; they are to be broken into lanes before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

LOOSE, INNER, SPINE = 0, 1, 2
"""Strengths of edges: any, one inside a lane, one on the longest path of the picture."""

BETWEEN_PARTS, BESIDE_PART, BETWEEN_LANES = 22.0, 14.0, 9.0
"""Least pixels between two neighbors in a layer, by what they are."""


class Edge(NamedTuple):
    """An edge from one layer to the next."""

    above: int
    below: int
    strength: int
    leave: float
    """Where it leaves the vertex above, in pixels from its axis."""
    enter: float
    """Where it enters the vertex below, in pixels from its axis."""


def place(
    layers: Sequence[Sequence[int]],
    edges: Sequence[Edge],
    left: Sequence[float],
    right: Sequence[float],
    parts: int,
) -> list[float]:
    """Axis of each vertex, in pixels; the order in a layer stays, and no two overlap.

    Args:
        layers: Vertices of each layer from left to right.
        edges: Edges between neighboring layers.
        left: Pixels from each vertex's axis to its left border.
        right: The same to the right.
        parts: Vertices from this number on are lanes.

    Examples:
        >>> place([[0], [1, 2]], [Edge(0, 1, SPINE, 0.0, 0.0), Edge(0, 2, LOOSE, 0.0, 0.0)], [5] * 3, [5] * 3, 3)
        [0.0, 0.0, 32.0]
    """
    if not left:
        return []
    weak = _crossed(layers, edges)
    found: list[list[float]] = []
    for up in (False, True):
        for mirrored in (False, True):
            rows = [list(reversed(row)) if mirrored else list(row) for row in (reversed(layers) if up else layers)]
            near, far = (right, left) if mirrored else (left, right)
            columns = _columns(rows, _neighbors(edges, weak, up, len(left)), len(left))
            x = _compact(rows, columns, near, far, parts)
            found.append([-value for value in x] if mirrored else x)
    spans = [(min(x[v] - left[v] for v in range(len(x))), max(x[v] + right[v] for v in range(len(x)))) for x in found]
    low, high = min(spans, key=lambda span: span[1] - span[0])
    shifts = [low - span[0] if index % 2 == 0 else high - span[1] for index, span in enumerate(spans)]
    mean: list[float] = []
    for v in range(len(left)):
        values = sorted(x[v] + shift for x, shift in zip(found, shifts, strict=True))
        mean.append((values[1] + values[2]) / 2)
    origin = next((mean[edge.above] for edge in edges if edge.strength == SPINE), mean[0])
    return [value - origin for value in mean]


def _crossed(layers: Sequence[Sequence[int]], edges: Sequence[Edge]) -> set[tuple[int, int]]:
    """Edges that cross a stronger one, or share an end with it."""
    position = {v: index for row in layers for index, v in enumerate(row)}
    depth = {v: index for index, row in enumerate(layers) for v in row}
    gaps: dict[int, list[Edge]] = {}
    for edge in edges:
        gaps.setdefault(depth[edge.above], []).append(edge)
    weak: set[tuple[int, int]] = set()
    for gap in gaps.values():
        strong = [edge for edge in gap if edge.strength > LOOSE]
        for edge in gap:
            a, b = position[edge.above], position[edge.below]
            if any(
                other.strength > edge.strength and (position[other.above] - a) * (position[other.below] - b) <= 0
                for other in strong
            ):
                weak.add((edge.above, edge.below))
    return weak


def _neighbors(
    edges: Sequence[Edge], weak: set[tuple[int, int]], up: bool, count: int
) -> list[list[tuple[int, int, bool]]]:
    """For each vertex its neighbors in the layer before: vertex, strength, whether the edge may be straight."""
    found: list[list[tuple[int, int, bool]]] = [[] for _ in range(count)]
    for edge in edges:
        straight = (edge.above, edge.below) not in weak
        here, there = (edge.above, edge.below) if up else (edge.below, edge.above)
        found[here].append((there, edge.strength, straight))
    return found


def _columns(
    rows: Sequence[Sequence[int]], neighbors: Sequence[Sequence[tuple[int, int, bool]]], count: int
) -> list[int]:
    """Tie each vertex to a neighbor in the row before, where that leaves the columns straight; returns their roots."""
    root, taken = list(range(count)), [False] * count
    position = [0] * count
    for row in rows:
        for index, v in enumerate(row):
            position[v] = index
    for row in rows:
        last = -1
        for v in row:
            for u in _wanted(neighbors[v], position):
                if root[v] == v and not taken[u] and last < position[u]:
                    root[v], taken[u], last = root[u], True, position[u]
    return root


def _wanted(neighbors: Sequence[tuple[int, int, bool]], position: Sequence[int]) -> list[int]:
    """Neighbors to be straight with, the best first: the strongest, else the middle ones."""
    if not neighbors:
        return []
    top = max(strength for _, strength, _ in neighbors)
    best = sorted((item for item in neighbors if item[1] == top), key=lambda item: position[item[0]])
    middle = best[(len(best) - 1) // 2 : len(best) // 2 + 1]
    return [u for u, _, straight in middle if straight]


def _compact(
    rows: Sequence[Sequence[int]], root: Sequence[int], left: Sequence[float], right: Sequence[float], parts: int
) -> list[float]:
    """Positions of columns as far left as they go, then those with room moved up to their right neighbors."""
    after: dict[int, dict[int, float]] = {r: {} for r in root}
    waiting = dict.fromkeys(after, 0)
    for row in rows:
        for a, b in pairwise(row):
            gap = right[a] + left[b] + _gap(a < parts, b < parts)
            here = after[root[a]]
            if root[b] not in here:
                waiting[root[b]] += 1
            here[root[b]] = max(here.get(root[b], 0.0), gap)
    x = dict.fromkeys(after, 0.0)
    ready = [r for r, count in waiting.items() if not count]
    order: list[int] = []
    while ready:
        r = ready.pop()
        order.append(r)
        for s, gap in after[r].items():
            x[s] = max(x[s], x[r] + gap)
            waiting[s] -= 1
            if not waiting[s]:
                ready.append(s)
    for r in reversed(order):
        room = min((x[s] - gap for s, gap in after[r].items()), default=x[r])
        x[r] = max(x[r], room)
    return [x[r] for r in root]


def _gap(is_part: bool, other_is_part: bool) -> float:
    if is_part and other_is_part:
        return BETWEEN_PARTS
    return BESIDE_PART if is_part or other_is_part else BETWEEN_LANES
