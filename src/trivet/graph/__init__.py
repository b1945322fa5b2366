"""Computational graphs: what a module computes with, node by node, and how its parts are connected.

`graph_of(module, example_input)` makes the graph of any module without touching it; `Graph` and `Node` are plain data
that load without torch; `register_rule` teaches it functions that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.graph.graph import Graph, Node
    from trivet.graph.rules import Call, register_rule
    from trivet.graph.trace import graph_of
    from trivet.graph.vocabulary import PRIMITIVES, Word, register_word, word, words

__all__ = [
    "PRIMITIVES",
    "Call",
    "Graph",
    "Node",
    "Word",
    "graph_of",
    "register_rule",
    "register_word",
    "word",
    "words",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "PRIMITIVES": ".vocabulary",
        "Call": ".rules",
        "Graph": ".graph",
        "Node": ".graph",
        "Word": ".vocabulary",
        "graph_of": ".trace",
        "register_rule": ".rules",
        "register_word": ".vocabulary",
        "word": ".vocabulary",
        "words": ".vocabulary",
    },
)
