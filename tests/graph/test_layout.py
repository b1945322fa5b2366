"""Layered layout: nothing overlaps, everything goes down, wires arrive; networkx is the oracle for paths."""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.graph.layout import Arrangement, Link, Part, _inversions, arrange, topological
from trivet.graph.placing import BESIDE_PART, BETWEEN_LANES, BETWEEN_PARTS

SLACK = 1e-6


@st.composite
def networks(draw: Any, most: int = 14) -> tuple[list[Part], list[Link]]:
    """Parts of any size and links that go from smaller to larger numbers, some off the axis."""
    count = draw(st.integers(1, most))
    sizes = st.floats(1, 120)
    parts = [
        Part(left=draw(sizes), right=draw(sizes), height=draw(sizes), weight=draw(st.integers(1, 9)))
        for _ in range(count)
    ]
    pairs = list(combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=3 * count, unique=True)) if pairs else []
    return parts, [Link(a, b, draw(st.sampled_from([0.0, 5.0])), 0.0) for a, b in chosen]


def spread(found: Arrangement, parts: list[Part]) -> list[list[tuple[float, float, float, bool]]]:
    """Left border, axis, right border and whether it is a part, of what stands in each layer, from left to right."""
    rows: list[list[tuple[float, float, float, bool]]] = [[] for _ in found.layers]
    for v, part in enumerate(parts):
        x = found.x[v]
        rows[found.depth[v]].append((x - part.left, x, x + part.right, True))
    for lane in found.lanes:
        rows[lane.layer].append((lane.x, lane.x, lane.x, False))
    return [sorted(row, key=lambda item: item[1]) for row in rows]


@given(networks())
@settings(deadline=None, max_examples=50)
def test_parts_and_lanes_keep_their_distance(network: tuple[list[Part], list[Link]]) -> None:
    parts, links = network
    for row in spread(arrange(parts, links), parts):
        for (_, _, end, part), (start, _, _, other) in pairwise(row):
            least = BETWEEN_PARTS if part and other else BESIDE_PART if part or other else BETWEEN_LANES
            assert start - end >= least - SLACK


@given(networks())
@settings(deadline=None, max_examples=50)
def test_every_part_has_one_place_and_every_link_goes_down(network: tuple[list[Part], list[Link]]) -> None:
    parts, links = network
    found = arrange(parts, links)
    assert sorted(v for layer in found.layers for v in layer) == list(range(len(parts)))
    assert all(v in found.layers[found.depth[v]] for v in range(len(parts)))
    assert all(found.depth[link.source] < found.depth[link.target] for link in links)
    graph = nx.DiGraph([(link.source, link.target) for link in links])
    graph.add_nodes_from(range(len(parts)))
    assert len(found.layers) == nx.dag_longest_path_length(graph) + 1


@given(networks())
@settings(deadline=None, max_examples=50)
def test_wires_lead_from_each_output_to_all_it_feeds(network: tuple[list[Part], list[Link]]) -> None:
    parts, links = network
    found = arrange(parts, links)
    lanes = {(lane.source, lane.layer): lane.x for lane in found.lanes}
    assert len(lanes) == len(found.lanes), "an output has two lanes in one layer"
    for net in {(link.source, link.leave) for link in links}:
        steps = [step for step in found.steps if step.source == net]
        assert {step.part for step in steps} - {-1} == {
            link.target for link in links if (link.source, link.leave) == net
        }
        for step in steps:
            own = found.depth[net[0]]
            assert step.start == pytest.approx(
                found.x[net[0]] + net[1] if step.layer == own else lanes[net, step.layer]
            )
            stop = found.x[step.part] if step.part >= 0 else lanes[net, step.layer + 1]
            assert step.stop == pytest.approx(stop)
            assert step.part < 0 or found.depth[step.part] == step.layer + 1


@given(networks(), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_the_order_of_the_links_does_not_matter(network: tuple[list[Part], list[Link]], seed: int) -> None:
    parts, links = network
    shuffled = random.Random(seed).sample(links, len(links))
    assert arrange(parts, shuffled) == arrange(parts, links) == arrange(parts, [*links, *links])


@given(st.integers(2, 12), st.data())
@settings(deadline=None, max_examples=40)
def test_the_longest_path_is_straight(count: int, data: Any) -> None:
    """A chain with skips beside it, as residual networks are."""
    parts = [Part(left=30, right=30, height=20) for _ in range(count)]
    skips = data.draw(st.lists(st.sampled_from(list(combinations(range(count), 2))), max_size=count))
    links = [Link(v, v + 1) for v in range(count - 1)] + [Link(a, b) for a, b in skips]
    found = arrange(parts, links)
    assert set(found.x) == {0.0}
    assert all(abs(lane.x) >= 30 + BESIDE_PART for lane in found.lanes)


def test_ports_stand_above_and_below_everything() -> None:
    part = Part(left=10, right=10, height=10)
    port, end = Part(left=0, right=0, height=0, end=-1), Part(left=0, right=0, height=0, end=1)
    found = arrange([part, part, part, port, end, end], [Link(3, 0), Link(0, 1), Link(0, 4), Link(1, 5)])
    assert found.depth == (1, 2, 1, 0, 3, 3)
    assert found.layers[0] == (3,)
    assert sorted(found.layers[-1]) == [4, 5]


def test_a_source_stands_right_above_what_it_feeds() -> None:
    part = Part(left=10, right=10, height=10)
    found = arrange([part] * 6, [Link(0, 1), Link(1, 2), Link(2, 3), Link(4, 5), Link(5, 3)])
    assert found.depth == (0, 1, 2, 3, 1, 2)


def test_crossings_are_undone() -> None:
    part = Part(left=10, right=10, height=10)
    links = [Link(0, 5), Link(1, 4), Link(2, 3)]
    assert arrange([part] * 6, links).crossings == 0
    pairs = [Link(a, b) for a in (0, 1) for b in (2, 3)]
    assert arrange([part] * 4, pairs).crossings == 1, "two above two, all joined, always cross once"


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_crossings_are_counted_right(ends: list[tuple[int, int]]) -> None:
    expected = sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(ends, 2))
    assert _inversions([(float(a), float(b)) for a, b in ends]) == expected


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20, unique=True))
def test_topological_order_leaves_out_what_cannot_be_ordered(pairs: list[tuple[int, int]]) -> None:
    graph = nx.DiGraph(pairs)
    graph.add_nodes_from(range(8))
    order = topological(8, pairs)
    stuck = {v for part in nx.strongly_connected_components(graph) if len(part) > 1 for v in part}
    stuck |= {a for a, b in pairs if a == b}
    behind = stuck.union(*(nx.descendants(graph, v) for v in stuck)) if stuck else set()
    assert set(order) == set(range(8)) - behind
    position = {v: index for index, v in enumerate(order)}
    assert all(position[a] < position[b] for a, b in pairs if b in position)


def test_a_circle_is_refused() -> None:
    part = Part(left=1, right=1, height=1)
    with pytest.raises(ValueError, match="circle"):
        arrange([part, part], [Link(0, 1), Link(1, 0)])


def test_nothing_to_arrange() -> None:
    assert arrange([], []).layers == ()
