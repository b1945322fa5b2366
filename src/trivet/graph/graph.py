"""The computational graph of a network: nodes in topological order, edges, and what a hypernetwork reads off them.

As in DeepNets-1M, parameters are nodes: a weight is one, its bias is the next, and a normalization is one with its
scale and shift. Operations that only pass information on are contracted. Plain data: nothing here imports torch.

Not covered: making a graph from a module (`trace.py`) and pictures of it (`draw.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trivet.graph.vocabulary import word

METHODS = ("meta", "fake", "real")
"""Ways in which a module can have been run to see its graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node.

    Examples:
        >>> Node(name="fc.weight", op="conv", parameters=("fc.weight",), shape=(10, 64)).kernel
        ()
    """

    name: str
    """Unique within its graph: that of the first parameter, or module path and word."""
    op: str
    """A word of `vocabulary.words()`."""
    parameters: tuple[str, ...] = ()
    """Names as in `named_parameters()`; tied ones once, by their first name."""
    shape: tuple[int, ...] = ()
    """Shape of the first parameter; empty if there is none."""
    size: int = 0
    """Scalars in its parameters, together."""
    kernel: tuple[int, ...] = ()
    """Height and width of a pooling window; empty elsewhere."""
    output: tuple[int, ...] = ()
    """Shape of what the node produces for the example it was made with."""
    macs: int = 0
    """Multiply-accumulates of a forward pass of that example, all calls together."""
    module: str = ""
    """Path of the module that executes it; empty for the outermost."""
    calls: int = 1
    """How often it ran in that pass."""


@dataclass(frozen=True)
class Graph:
    """A directed acyclic graph whose edges always go from a smaller to a larger index.

    Examples:
        >>> nodes = (Node(name="input", op="input"), Node(name="w", op="conv", parameters=("w",)))
        >>> g = Graph(nodes=nodes, edges=((0, 1),))
        >>> g.count("conv"), g.parameters, g.distances().tolist()
        (1, {'w': 1}, [[0, 1, 1]])
    """

    nodes: tuple[Node, ...]
    """In topological order."""
    edges: tuple[tuple[int, int], ...]
    """Pairs (from, to), sorted."""
    unplaced: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Parameters that have no node → the reason."""
    inputs: tuple[int, ...] = ()
    """Nodes that stand for what the network is given."""
    outputs: tuple[int, ...] = ()
    """Nodes whose results the network returns."""
    method: str = "meta"
    """How the module was run: "meta" (shapes alone), "fake" (shapes and devices) or "real" (numbers, on a copy)."""

    def __post_init__(self) -> None:
        count = len(self.nodes)
        if self.method not in METHODS:
            raise ValueError(f"`method={self.method!r}` must be one of {', '.join(METHODS)}")
        if len({node.name for node in self.nodes}) != count:
            raise ValueError("`nodes` must have names that differ; two are equal")
        for source, target in self.edges:
            if not 0 <= source < target < count:
                raise ValueError(f"edge {(source, target)} must go from a smaller to a larger index below {count}")
        if any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("`edges` must be sorted and differ; sort them and drop the repeated ones")
        if not all(0 <= index < count for index in (*self.inputs, *self.outputs)):
            raise ValueError(f"`inputs` and `outputs` must be indices below {count}")
        placed = [name for node in self.nodes for name in node.parameters]
        if len(set(placed)) != len(placed) or set(placed) & set(self.unplaced):
            raise ValueError("every parameter must be in one node or in `unplaced`, not in two places")

    @cached_property
    def parameters(self) -> Mapping[str, int]:
        """Parameter name → index of its node."""
        return {name: index for index, node in enumerate(self.nodes) for name in node.parameters}

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of a forward pass of the example."""
        return sum(node.macs for node in self.nodes)

    @cached_property
    def key(self) -> str:
        """Name of what a hypernetwork sees, 16 hex digits: words, parameters, shapes, windows and edges.

        Equal for two sizes of input as long as the structure is: sizes of results and multiply-accumulates are left
        out.
        """
        seen = [(node.name, node.op, node.parameters, node.shape, node.kernel) for node in self.nodes]
        text = repr((seen, self.edges, self.inputs, self.outputs, sorted(self.unplaced)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def count(self, op: str) -> int:
        """How many nodes carry a word; a word that does not exist raises `ValueError` with the nearest one."""
        word(op)
        return sum(node.op == op for node in self.nodes)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Longest path that leads to each node, in edges: int array [nodes]."""
        depth = [0] * len(self.nodes)
        for source, target in self.edges:
            depth[target] = max(depth[target], depth[source] + 1)
        return np.asarray(depth, dtype=np.int64)

    @cached_property
    def levels(self) -> tuple[NDArray[np.int64], ...]:
        """Indices of the nodes of each depth, beginning with depth 0; no edge lies within a level."""
        if not self.nodes:
            return ()
        order = np.argsort(self.depths, kind="stable")
        return tuple(np.split(order, np.cumsum(np.bincount(self.depths))[:-1]))

    def distances(self, cutoff: int = 50) -> NDArray[np.int64]:
        """Shortest directed paths between all pairs that are joined by one: the "virtual edges" of GHN-2.

        Args:
            cutoff: Longest distance that is listed, at least 1.

        Returns:
            Int array [pairs, 3] of (from, to, distance ≥ 1), sorted by from, then to; not to be written to.

        Raises:
            ValueError: `cutoff` is below 1.
        """
        if cutoff < 1:
            raise ValueError(f"`cutoff={cutoff}` must be at least 1")
        cache: dict[int, NDArray[np.int64]] = self.__dict__.setdefault("_distances", {})
        if cutoff not in cache:
            cache[cutoff] = _distances(len(self.nodes), self.edges, cutoff)
        return cache[cutoff]

    def to_networkx(self) -> Any:
        """The graph as a `networkx.DiGraph`, with the fields of each node as attributes."""
        import networkx as nx

        result = nx.DiGraph()
        result.add_nodes_from((index, asdict(node)) for index, node in enumerate(self.nodes))
        result.add_edges_from(self.edges)
        return result

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dictionaries, for a JSON file."""
        return {
            "format": 1,
            "nodes": [
                {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(node).items()}
                for node in self.nodes
            ],
            "edges": [list(edge) for edge in self.edges],
            "unplaced": dict(self.unplaced),
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "method": self.method,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Graph:
        """The graph that `to_dict` wrote.

        Raises:
            ValueError: The content is no such graph.
        """
        try:
            if content["format"] != 1:
                raise ValueError(f"format {content['format']!r} is not 1")
            nodes = tuple(_node(entry) for entry in content["nodes"])
            return cls(
                nodes=nodes,
                edges=tuple((int(source), int(target)) for source, target in content["edges"]),
                unplaced=MappingProxyType(dict(content["unplaced"])),
                inputs=tuple(content["inputs"]),
                outputs=tuple(content["outputs"]),
                method=content["method"],
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a graph as `Graph.to_dict` writes it: {error!r}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as plain values."""
        return Graph.from_dict, (self.to_dict(),)

    def draw(self, path: str | Path) -> Path:
        """Draw the graph into an SVG or PNG file, by the file's suffix; returns its path."""
        from trivet.graph.draw import draw

        return draw(self, path)

    def __str__(self) -> str:
        """Count nodes, edges, parameters and multiply-accumulates on one line."""
        return (
            f"graph of {len(self.nodes)} nodes and {len(self.edges)} edges: {len(self.parameters)} parameter tensors "
            f"placed, {len(self.unplaced)} not; {self.macs / 1e6:.4g} M multiply-accumulates"
        )


def _node(content: Mapping[str, Any]) -> Node:
    """A node from plain lists; texts, whole numbers and lists of them stay what they are."""
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    node = Node(**given)
    for entry in fields(Node):
        value, kind = getattr(node, entry.name), type(entry.default) if entry.default is not MISSING else str
        if type(value) is not kind:
            raise ValueError(f"{entry.name}={value!r} must be of type {kind.__name__}")
    word(node.op)
    return node


def _distances(count: int, edges: tuple[tuple[int, int], ...], cutoff: int) -> NDArray[np.int64]:
    """All shortest distances up to the cutoff: a node's are those of its nearest successors, plus one."""
    far = np.iinfo(np.int32).max // 2
    matrix = np.full((count, count), far, dtype=np.int32)
    successors: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        successors[source].append(target)
    for source in range(count - 1, -1, -1):
        row, after = matrix[source], successors[source]
        if after:
            row[:] = matrix[after].min(axis=0) if len(after) > 1 else matrix[after[0]]
            row += 1
        row[source] = 0
    row_index, column_index = np.nonzero((matrix <= cutoff) & (matrix > 0))
    result = np.stack([row_index, column_index, matrix[row_index, column_index]], axis=1).astype(np.int64)
    result.flags.writeable = False
    return result
