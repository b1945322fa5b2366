"""What the networks of a split are like, beside what is published of DeepNets-1M.

Nodes, edges, depth and paths are those of the computational graph (`trivet.graph.graph_of`) for 32 × 32 images; the
average path is the mean length of the shortest paths between all pairs of nodes, regardless of direction. Parameters
are counted with 10 classes. Published figures: Knyazev et al. 2021 (arXiv:2110.13100), their notebook of graph
properties and their tables of results on CIFAR-10. Standard deviations are over networks, with n − 1, as
published.

Run as a module it answers a request, so that who asks need not import torch: its argument is JSON (`splits`, `count`,
`seed`, `small`, `graphs`), and it prints a line of JSON for every split.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trivet.ghn.deepnets.architecture import Architecture, CellArchitecture
from trivet.ghn.deepnets.budget import Budget
from trivet.ghn.deepnets.dataset import DeepNets

if TYPE_CHECKING:
    from trivet.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of some networks; None where unknown.

    Examples:
        >>> published("wide").parameters_mean, published("search")
        (51600000.0, None)
    """

    count: int
    """Networks."""
    nodes_min: int | None = None
    """Fewest nodes of a graph."""
    nodes_max: int | None = None
    """Most."""
    nodes_mean: float | None = None
    """Their mean."""
    nodes_sd: float | None = None
    """Their standard deviation."""
    average_path: float | None = None
    """Mean over networks of the mean distance between two nodes."""
    edges_mean: float | None = None
    """Mean edges."""
    depth_mean: float | None = None
    """Mean edges on the longest path."""
    parameters_mean: float | None = None
    """Mean parameters."""
    parameters_max: int | None = None
    """Most parameters."""
    macs_mean: float | None = None
    """Mean multiply-accumulates of one image's forward pass."""
    cells_mean: float | None = None
    """Mean cells."""
    steps_mean: float | None = None
    """Mean steps of a cell."""
    attention: float | None = None
    """Share of networks with attention."""
    without_norm: float | None = None
    """Share of networks without batch norm."""
    partly_unused: float | None = None
    """Share of networks with parameters that reach no output."""


def _known(
    count: int,
    nodes: tuple[int, int],
    mean: float,
    sd: float,
    path: float,
    parameters: tuple[float, float] | None = None,
) -> Figures:
    return Figures(
        count=count,
        nodes_min=nodes[0],
        nodes_max=nodes[1],
        nodes_mean=mean,
        nodes_sd=sd,
        average_path=path,
        parameters_mean=parameters[0] * 1e6 if parameters else None,
        parameters_max=round(parameters[1] * 1e6) if parameters else None,
    )


_PUBLISHED = {
    "train": _known(1000, (35, 681), 192.3, 94.9, 14.5),
    "val": _known(500, (33, 549), 190.5, 94.4, 14.5, (3.28, 7.28)),
    "test": _known(500, (43, 579), 185.5, 91.2, 14.3, (3.34, 34.8)),
    "wide": _known(100, (48, 381), 178.6, 75.1, 14.7, (51.6, 101.4)),
    "deep": _known(100, (74, 1017), 391.2, 176.7, 26.2, (3.99, 15.3)),
    "dense": _known(100, (57, 993), 355.1, 182.3, 15.1, (3.76, 8.82)),
    "bn_free": _known(100, (33, 503), 135.1, 78.1, 10.0, (3.19, 7.73)),
    "predefined": _known(2, (126, 129), 127.5, 2.1, 10.9, (12.27, 23.5)),
}


def published(split: str) -> Figures | None:
    """Published figures of a split, None when there are none ("search")."""
    return _PUBLISHED.get(split)


def measure(networks: Sequence[Architecture], *, graphs: bool = True) -> Figures:
    """Figures of networks.

    Args:
        networks: At least one.
        graphs: Whether to make their graphs, which takes torch and about a tenth of a second each.

    Raises:
        ValueError: No networks.

    Examples:
        >>> found = measure([DeepNets("bn_free")[i] for i in range(3)], graphs=False)
        >>> found.without_norm, found.nodes_mean
        (1.0, None)
    """
    if not networks:
        raise ValueError("no networks to measure; give at least one")
    tensors = [network.tensors() for network in networks]
    sizes = [sum(tensor.size for tensor in found) for found in tensors]
    cells = [network for network in networks if isinstance(network, CellArchitecture)]
    return Figures(
        count=len(networks),
        parameters_mean=statistics.fmean(sizes),
        parameters_max=max(sizes),
        macs_mean=statistics.fmean(network.macs() for network in networks),
        cells_mean=_mean([network.num_cells for network in cells]),
        steps_mean=_mean([network.genotype.num_steps for network in cells]),
        attention=_mean([network.is_transformer for network in cells]),
        without_norm=_mean([network.norm == "none" for network in cells]),
        partly_unused=_mean([not all(tensor.used for tensor in found) for found in tensors]),
        **(_of_graphs(networks) if graphs else {}),
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _of_graphs(networks: Sequence[Architecture]) -> dict[str, Any]:
    graphs = [_graph(network) for network in networks]
    nodes = [len(graph.nodes) for graph in graphs]
    return {
        "nodes_min": min(nodes),
        "nodes_max": max(nodes),
        "nodes_mean": statistics.fmean(nodes),
        "nodes_sd": statistics.stdev(nodes) if len(nodes) > 1 else 0.0,
        "average_path": statistics.fmean(average_path(graph) for graph in graphs),
        "edges_mean": statistics.fmean(len(graph.edges) for graph in graphs),
        "depth_mean": statistics.fmean(len(graph.levels) - 1 for graph in graphs),
    }


def _graph(network: Architecture) -> Graph:
    import torch

    from trivet.graph import graph_of

    with torch.device("meta"):
        return graph_of(network.build(), torch.zeros(1, 3, 32, 32))


def average_path(graph: Graph) -> float:
    """Mean number of edges, in either direction, on the shortest path between two different nodes.

    Args:
        graph: A connected graph of at least two nodes.
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    count = len(graph.nodes)
    source, target = np.array(graph.edges).T
    matrix = coo_array((np.ones(len(source)), (source, target)), shape=(count, count))
    distances = shortest_path(matrix.tocsr(), directed=False, unweighted=True)
    return float(distances.sum() / (count * (count - 1)))


def answer(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """For every split of a request its name, what was measured and what is published.

    Examples:
        >>> [row] = answer({"splits": ["test"], "count": 2, "seed": 0, "small": False, "graphs": False})
        >>> row["measured"]["count"], row["published"]["nodes_mean"]
        (2, 185.5)
    """
    for name in request["splits"]:
        fixed = name == "predefined"
        budget = Budget() if request["small"] and not fixed else None
        nets = DeepNets(name, request["seed"], size=0 if fixed else request["count"], budget=budget)
        measured = measure(list(nets), graphs=request["graphs"])
        known = published(name) if budget is None else None
        yield {"split": name, "measured": asdict(measured), "published": asdict(known) if known else None}


if __name__ == "__main__":
    for row in answer(json.loads(sys.argv[1])):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
