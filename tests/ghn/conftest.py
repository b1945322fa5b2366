"""Small graphs for the tests of hypernetworks."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from trivet.graph.graph import Graph, Node

MakeGraph = Callable[..., Graph]


def random_graph(seed: int, count: int = 20, classes: int = 10) -> Graph:
    """A graph of convolutions, norms, sums and pools with skips of any length, and a classifier at its end."""
    draw = random.Random(seed)
    nodes = [Node(name="input", op="input")]
    for index in range(count):
        op = draw.choice(["conv", "conv", "sep_conv", "bn", "sum", "concat", "max_pool", "embedding"])
        name, channels = f"n{index}", draw.choice([3, 8, 10, 20, 64, 100])
        kernel = draw.choice([1, 3, 5])
        if op in ("conv", "sep_conv"):
            shape = (channels, 1 if op == "sep_conv" else draw.choice([3, 7, 16]), kernel, kernel)
            nodes.append(Node(name=name, op=op, parameters=(f"{name}.weight",), shape=shape))
        elif op == "bn":
            nodes.append(Node(name=name, op=op, parameters=(f"{name}.weight", f"{name}.bias"), shape=(channels,)))
        elif op == "embedding":
            nodes.append(Node(name=name, op=op, parameters=(f"{name}.weight",), shape=(11, 8)))
        else:
            nodes.append(Node(name=name, op=op, kernel=(kernel, kernel) if op == "max_pool" else ()))
    nodes.append(Node(name="fc", op="conv", parameters=("fc.weight",), shape=(classes, 24)))
    nodes.append(Node(name="fc.bias", op="bias", parameters=("fc.bias",), shape=(classes,)))
    edges = {(len(nodes) - 2, len(nodes) - 1)}
    for index in range(1, len(nodes) - 1):
        for _ in range(draw.choice([1, 1, 2, 3])):
            edges.add((max(0, index - draw.choice([1, 1, 2, 5, 30])), index))
    return Graph(nodes=tuple(nodes), edges=tuple(sorted(edges)), inputs=(0,), outputs=(len(nodes) - 1,))


@pytest.fixture(scope="session")
def make_graph() -> MakeGraph:
    """`random_graph`."""
    return random_graph
