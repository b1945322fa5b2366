"""Kinds of graph networks, and whether the library they need is there. Torch-free."""

from __future__ import annotations

import importlib.util

from trivet.core.errors import MissingExtraError

KINDS = ("gcn", "sage", "gat")


def check_graph_library() -> None:
    """Look for PyTorch Geometric without importing it.

    Raises:
        MissingExtraError: It is not installed.
    """
    if importlib.util.find_spec("torch_geometric") is None:
        raise MissingExtraError("torch_geometric", "graphs")
