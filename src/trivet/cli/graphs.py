"""The side of `trivet graph` that needs torch, in a process of its own.

`python -m trivet.cli.graphs` reads one JSON request on standard input (model, width, input, classes) and writes one
JSON answer on standard output: the graph, and the scalars of every parameter tensor that has no node.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from trivet.cli.child import serve
from trivet.cli.classifier import classifier


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The graph of a model; see the module for the forms."""
    from trivet.graph import graph_of

    model, example = classifier(request)
    graph = graph_of(model, example)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return {"graph": graph.to_dict(), "unplaced_sizes": {name: sizes[name] for name in graph.unplaced}}


if __name__ == "__main__":
    sys.exit(serve(answer))
