"""Graphs of networks whose published graphs are given: node types, edges and all distances must be equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trivet.graph import Graph, graph_of, word

FILES = ("ghn2_cifar10_predictions.pt", "ghn3t_cifar10_predictions.pt")


def small_resnet(name: str) -> nn.Module:
    """A torchvision network with the stem of the fixtures: 3x3, stride 1, no pooling."""
    models = pytest.importorskip("torchvision.models", reason="needs torchvision")
    with torch.device("meta"):
        model = models.get_model(name, num_classes=10)
        model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = nn.Identity()
    return model


def published_order(graph: Graph, words: list[int], edges: list[list[int]]) -> dict[int, int]:
    """Our node → the published node, by an isomorphism that keeps node types."""
    nx = pytest.importorskip("networkx")
    ours, theirs = nx.DiGraph(), nx.DiGraph()
    ours.add_nodes_from((i, {"word": word(node.op).index}) for i, node in enumerate(graph.nodes))
    theirs.add_nodes_from((i, {"word": index}) for i, index in enumerate(words))
    ours.add_edges_from(graph.edges)
    theirs.add_edges_from((source, target) for source, target, distance in edges if distance == 1)
    same: Any = lambda a, b: a["word"] == b["word"]  # noqa: E731
    matcher = nx.algorithms.isomorphism.DiGraphMatcher(ours, theirs, node_match=same)
    assert matcher.is_isomorphic()
    return matcher.mapping


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_published_graph(shared_dir: Path, file: str, name: str) -> None:
    path = shared_dir / "spec" / "fixtures" / "ghn" / file
    if not path.is_file():
        pytest.skip(f"needs {path}")
    published = torch.load(path, weights_only=True)[name]
    words, edges = published["node_feat"].flatten().tolist(), published["edges"].tolist()
    graph = graph_of(small_resnet(name), torch.zeros(1, 3, 32, 32))
    order = published_order(graph, words, edges)
    assert {order[i]: word(node.op).index for i, node in enumerate(graph.nodes)} == dict(enumerate(words))
    mapped = sorted([order[source], order[target], distance] for source, target, distance in graph.distances().tolist())
    assert mapped == edges
    assert sum(node.size for node in graph.nodes) == published["n_params"]
