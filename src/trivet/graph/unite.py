"""Two graphs of one module, seen in two modes, made one."""

from __future__ import annotations

from collections.abc import Mapping

from trivet.graph.build import Builder
from trivet.graph.graph import Graph


def unite(first: Graph, second: Graph, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """The first graph with the parameters that only the second has, and with the joints among those.

    Where the second has all that the first has, it is the better picture and is returned as it is.

    Args:
        first: The graph that is completed.
        second: Where the missing parameters may be.
        shapes: Name of every parameter → its shape.

    Returns:
        A graph in which every parameter of either has a node.
    """
    fresh = {name for name in second.parameters if name in first.unplaced}
    if not fresh:
        return first
    if set(second.parameters) >= set(first.parameters):
        return second
    builder = Builder(shapes)
    for index, node in enumerate(first.nodes):
        _copy(builder, first, index, {i: i for i in range(index)})
        if node.op == "input":
            builder.inputs.append(index)
    builder.outputs.update(first.outputs)
    # Of the second, nodes that the first has stand for those; of the others, those behind missing parameters are added.
    same = {name: index for index, node in enumerate(first.nodes) for name in (*node.parameters, node.name)}
    place: dict[int, int] = {}
    near = _near(second, fresh)
    for index, node in enumerate(second.nodes):
        known = [same[name] for name in (*node.parameters, node.name) if name in same]
        if known:
            place[index] = known[0]
        elif index in near:
            place[index] = _copy(builder, second, index, place)
            if index in second.outputs:
                builder.outputs.add(place[index])
    for source, target in second.edges:
        if target in place and source in near and place[source] < len(first.nodes) <= place[target]:
            builder.drafts[place[target]].before.add(place[source])
            builder.drafts[place[source]].after.add(place[target])
    missing = {name: reason for name, reason in first.unplaced.items() if name not in fresh}
    return builder.finish(first.method, missing)


def _near(graph: Graph, fresh: set[str]) -> set[int]:
    """Nodes with missing parameters, and all that is reached from them."""
    reached = {graph.parameters[name] for name in fresh}
    for source, target in graph.edges:
        if source in reached:
            reached.add(target)
    return reached


def _copy(builder: Builder, graph: Graph, index: int, place: dict[int, int]) -> int:
    node = graph.nodes[index]
    before = [place[source] for source, target in graph.edges if target == index and source in place]
    made = builder.add(
        node.op,
        before,
        module=node.module,
        name=node.name,
        parameters=node.parameters,
        kernel=node.kernel,
        output=node.output,
        macs=node.macs,
    )
    builder.drafts[made].calls = node.calls
    return made
