"""The graphormer against one that makes the bias of each pair of nodes by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from trivet.ghn.batch import GraphBatch, join, plan_graph
from trivet.ghn.config import GHNConfig
from trivet.ghn.graphormer import GraphormerEncoder
from trivet.ghn.shapes import ShapeVocabulary
from trivet.graph.graph import Graph

CONFIG = GHNConfig(encoder="graphormer", decoder="linear", hid=16, layers=2, heads=4, virtual_edges=6)


def batch_of(*graphs: Graph) -> GraphBatch:
    plans = [plan_graph(graph, CONFIG, ShapeVocabulary(10, 11)) for graph in graphs]
    return join(plans, CONFIG, torch.device("cpu"))


def plain(encoder: GraphormerEncoder, graph: Graph, x: Tensor) -> Tensor:
    """Dense and padded-free, with embeddings of both distances for every pair, as published code does it."""
    count = len(x)
    s = torch.zeros(count, count, dtype=torch.long)
    for source, target, distance in graph.distances(CONFIG.reach).tolist():
        s[source, target] = distance
    near = (s == 1).long()
    x = x + encoder.in_degree(near.sum(0)) + encoder.out_degree(near.sum(1)) + encoder.input_distance(s[0])
    edge = encoder.edge_bias
    pairs = edge.distances(torch.stack((s, s.t()), -1) + 2).flatten(2)
    bias = edge.second(F.relu(edge.first(pairs))).permute(2, 0, 1)
    for layer in encoder.layers:
        query, key, value = (
            part.view(count, 4, 4).transpose(0, 1) for part in layer.qkv(layer.norm1(x)).chunk(3, dim=1)
        )
        weights = (query @ key.transpose(1, 2) / 2 + bias).softmax(-1)
        x = x + layer.out((weights @ value).transpose(0, 1).reshape(count, 16))
        x = x + layer.contract(F.gelu(layer.expand(layer.norm2(x))))
    return x


def make_encoder() -> GraphormerEncoder:
    torch.manual_seed(0)
    return GraphormerEncoder(CONFIG).double()


def test_states_and_gradients_are_those_of_the_plain_network(make_graph: Callable[..., Graph]) -> None:
    encoder, graph = make_encoder(), make_graph(0)
    x = torch.randn(len(graph.nodes), 16, dtype=torch.float64)
    weights = list(encoder.parameters())
    results = [
        (out.detach(), *torch.autograd.grad(out.square().sum(), weights))
        for out in (plain(encoder, graph, x), encoder(x, batch_of(graph)))
    ]
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_batch_is_its_graphs_one_by_one(make_graph: Callable[..., Graph]) -> None:
    encoder = make_encoder()
    graphs = [make_graph(seed, count=5 * seed + 2) for seed in range(3)]
    parts = [torch.randn(len(graph.nodes), 16, dtype=torch.float64) for graph in graphs]
    alone = [encoder(part, batch_of(graph)) for part, graph in zip(parts, graphs, strict=True)]
    torch.testing.assert_close(encoder(torch.cat(parts), batch_of(*graphs)), torch.cat(alone))


def test_no_tensor_has_pairs_times_states(make_graph: Callable[..., Graph]) -> None:
    class Largest(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                Largest.made = max(Largest.made, result.numel())
            return result

    encoder, graph = make_encoder(), make_graph(0, count=150)
    batch = batch_of(graph)
    with Largest(), torch.no_grad():
        encoder(torch.zeros(len(graph.nodes), 16, dtype=torch.float64), batch)
    assert Largest.made == CONFIG.heads * len(graph.nodes) ** 2


def test_the_table_of_distances_begins_as_waves() -> None:
    encoder = make_encoder()
    encoder.reset_distances()
    table = encoder.edge_bias.distances.weight
    assert not table[0].any()
    assert table[5, :2].tolist() == pytest.approx([math.sin(5), math.cos(5)], abs=1e-6)


def test_several_inputs_count_the_nearest(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(1)
    two = Graph(nodes=graph.nodes, edges=graph.edges, inputs=(0, 4))
    plan = plan_graph(two, CONFIG, ShapeVocabulary(10, 11))
    s = {(a, b): d for a, b, d in two.distances(CONFIG.reach).tolist()}
    for node in range(len(two.nodes)):
        known = [s[source, node] for source in (0, 4) if (source, node) in s]
        assert plan.input_distances[node] == (0 if node in (0, 4) else min(known, default=0))
