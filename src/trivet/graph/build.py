"""Nodes and edges while they come into being.

Every parameter gets one node, at its first use. A later use (tied weights, a layer that runs twice) adds the edges that
lead to it as far as the graph stays acyclic; where it would not, what follows hangs on what led there.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trivet.graph.graph import Graph, Node

_BRANCHING = ("sum", "concat", "mul")
"""Words that mean several branches; with one left, such a node says nothing."""


class Draft:
    """A node that may still change."""

    __slots__ = ("after", "before", "calls", "gone", "kernel", "macs", "module", "name", "op", "output", "parameters")

    def __init__(self, op: str, name: str, module: str) -> None:
        self.op = op
        self.name = name
        self.module = module
        self.parameters: list[str] = []
        self.before: set[int] = set()
        self.after: set[int] = set()
        self.kernel: tuple[int, ...] = ()
        self.output: tuple[int, ...] = ()
        self.macs = 0
        self.calls = 1
        self.gone = False


class Builder:
    """Collects nodes and edges and turns them into a `Graph`.

    Args:
        shapes: Name of every parameter → its shape.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.drafts: list[Draft] = []
        self.placed: dict[str, int] = {}
        self.used: set[str] = set()
        self.inputs: list[int] = []
        self.outputs: set[int] = set()
        self.absorbed: set[int] = set()

    def extend(self, index: int, parameters: Iterable[str]) -> None:
        """Give a node further parameters; those that have a node keep it."""
        self._own(index, [name for name in parameters if name not in self.placed])

    def add(
        self,
        op: str,
        before: Iterable[int],
        *,
        module: str = "",
        name: str = "",
        parameters: Iterable[str] = (),
        kernel: tuple[int, ...] = (),
        output: tuple[int, ...] = (),
        macs: int = 0,
    ) -> int:
        """Add a node after others; returns its index."""
        index = len(self.drafts)
        draft = Draft(op, name or (f"{module}.{op}" if module else op), module)
        draft.kernel, draft.output, draft.macs = kernel, output, macs
        draft.before.update(before)
        for source in draft.before:
            self.drafts[source].after.add(index)
        self.drafts.append(draft)
        self._own(index, parameters)
        return index

    def place(
        self,
        op: str,
        parameters: tuple[str, ...],
        before: frozenset[int],
        *,
        module: str = "",
        output: tuple[int, ...] = (),
        macs: int = 0,
    ) -> frozenset[int]:
        """Put parameters on the way that leads from `before`; returns what the way goes on from."""
        found = [self.placed[name] for name in parameters if name in self.placed]
        if not found:
            # The largest names the node: of a weight in two factors, such as weight norm's, the one of its shape.
            ordered = list(parameters)
            if op != "recurrent":
                ordered.sort(key=lambda name: -math.prod(self.shapes[name]))
            return frozenset(
                [self.add(op, before, module=module, name=ordered[0], parameters=ordered, output=output, macs=macs)]
            )
        index = found[0]
        draft = self.drafts[index]
        draft.calls += 1
        draft.macs += macs
        self.extend(index, parameters)
        added, left = False, set()
        for source in before:
            if source not in draft.before and self._leads(index, source):
                left.add(source)
                continue
            added = True
            draft.before.add(source)
            self.drafts[source].after.add(index)
        return frozenset(left if left and not added else {*left, index})

    def _own(self, index: int, parameters: Iterable[str]) -> None:
        for name in parameters:
            self.placed[name] = index
            self.drafts[index].parameters.append(name)

    def _leads(self, start: int, goal: int) -> bool:
        """Whether a path leads from one node to another."""
        seen, ahead = {start}, [start]
        while ahead:
            index = ahead.pop()
            if index == goal:
                return True
            fresh = self.drafts[index].after - seen
            seen |= fresh
            ahead.extend(fresh)
        return False

    def contract(self, index: int) -> None:
        """Take a node out and join what was before it with what was after it."""
        draft = self.drafts[index]
        if draft.gone:
            return
        draft.gone = True
        for source in draft.before:
            self.drafts[source].after.discard(index)
            self.drafts[source].after |= draft.after
        for target in draft.after:
            self.drafts[target].before.discard(index)
            self.drafts[target].before |= draft.before
        if index in self.outputs:
            self.outputs.discard(index)
            self.outputs |= draft.before

    def _tidy(self) -> None:
        """Drop what leads nowhere and contract joints of a single branch."""
        goals = [i for i, d in enumerate(self.drafts) if not d.gone and (d.parameters or i in self.outputs)]
        alive = set(goals)
        while goals:
            fresh = self.drafts[goals.pop()].before - alive
            alive |= fresh
            goals.extend(fresh)
        if not alive & set(self.inputs):
            alive.update(self.inputs)
        for index, draft in enumerate(self.drafts):
            if draft.gone:
                continue
            if index not in alive:
                draft.before, draft.after = draft.before & alive, draft.after & alive
                for source in draft.before:
                    self.drafts[source].after.discard(index)
                draft.gone = True
        for index, draft in enumerate(self.drafts):
            if not draft.gone and draft.op in _BRANCHING and not draft.parameters and len(draft.before) < 2:
                self.contract(index)

    def finish(self, method: str, missing: Mapping[str, str]) -> Graph:
        """The graph, in an order in which every edge goes up.

        Args:
            method: How the module was run.
            missing: Parameters without a node → the reason.
        """
        for index in self.absorbed:
            self.contract(index)
        self._tidy()
        order = self._order()
        position = {index: place for place, index in enumerate(order)}
        names: dict[str, int] = {}
        nodes = []
        for index in order:
            draft = self.drafts[index]
            number = names[draft.name] = names.get(draft.name, 0) + 1
            nodes.append(
                Node(
                    name=draft.name if number == 1 else f"{draft.name}#{number}",
                    op=draft.op,
                    parameters=tuple(draft.parameters),
                    shape=self.shapes[draft.parameters[0]] if draft.parameters else (),
                    size=sum(math.prod(self.shapes[name]) for name in draft.parameters),
                    kernel=draft.kernel,
                    output=draft.output,
                    macs=draft.macs,
                    module=draft.module,
                    calls=draft.calls,
                )
            )
        edges = sorted((position[source], position[index]) for index in order for source in self.drafts[index].before)
        return Graph(
            nodes=tuple(nodes),
            edges=tuple(edges),
            unplaced=MappingProxyType(dict(missing)),
            inputs=tuple(sorted(position[index] for index in self.inputs if index in position)),
            outputs=tuple(sorted(position[index] for index in self.outputs)),
            method=method,
        )

    def _order(self) -> list[int]:
        """Topological, and as executed wherever that leaves a choice."""
        waiting = {i: len(d.before) for i, d in enumerate(self.drafts) if not d.gone}
        ready = [index for index, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        order = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for target in self.drafts[index].after:
                waiting[target] -= 1
                if waiting[target] == 0:
                    heapq.heappush(ready, target)
        return order
