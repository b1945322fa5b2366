"""The level-synchronous gated network against one that visits node after node."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trivet.ghn.batch import GraphBatch, join, plan_graph
from trivet.ghn.config import GHNConfig
from trivet.ghn.gated import GatedEncoder, MLPEncoder
from trivet.ghn.shapes import ShapeVocabulary
from trivet.graph.graph import Graph

D = 8
CPU = torch.device("cpu")


def batch_of(graphs: list[Graph], config: GHNConfig) -> GraphBatch:
    return join([plan_graph(graph, config, ShapeVocabulary(10, 11)) for graph in graphs], config, CPU)


def sequential(encoder: GatedEncoder, graph: Graph, x: Tensor, reach: int) -> Tensor:
    """Node after node, edge after edge, as equations 3 and 4 are written."""
    states = list(x.unbind(0))
    distances = graph.distances(max(1, reach)).tolist()
    count = len(states)
    for order, listener, speaker in ((range(count), 1, 0), (range(count - 1, -1, -1), 0, 1)):
        for v in order:
            message = torch.zeros(1, D, dtype=x.dtype)
            for pair in distances:
                if pair[listener] == v:
                    u = states[pair[speaker]].unsqueeze(0)
                    if pair[2] == 1:
                        message = message + encoder.message(u)
                    if encoder.virtual_message is not None:
                        message = message + encoder.virtual_message(u) / pair[2]
            states[v] = encoder.gru(message, states[v].unsqueeze(0))[0]
    return torch.stack(states)


def encoder_of(reach: int) -> tuple[GatedEncoder, GHNConfig]:
    config = GHNConfig(hid=D, virtual_edges=reach)
    torch.manual_seed(reach)
    return GatedEncoder(config).double(), config


@pytest.mark.parametrize("reach", [0, 1, 3, 50])
@pytest.mark.parametrize("seed", [0, 1])
def test_states_and_gradients_are_those_of_the_sequential_network(
    reach: int, seed: int, make_graph: Callable[..., Graph]
) -> None:
    encoder, config = encoder_of(reach)
    graph = make_graph(seed)
    x = torch.randn(len(graph.nodes), D, dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(x)
    results = []
    for run in (
        lambda: sequential(encoder, graph, x, reach),
        lambda: encoder(x, batch_of([graph], config)),
    ):
        out = run()
        results.append((out.detach(), *torch.autograd.grad((out * weight).sum(), [x, *encoder.parameters()])))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, batch_of([graph], config)), results[0][0], rtol=1e-6, atol=1e-7)


def test_gradient_against_finite_differences(make_graph: Callable[..., Graph]) -> None:
    encoder, config = encoder_of(50)
    batch = batch_of([make_graph(3, count=6)], config)
    x = torch.randn(len(batch.words), D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: encoder(value, batch), (x,))


def test_a_batch_is_its_graphs_one_by_one(make_graph: Callable[..., Graph]) -> None:
    encoder, config = encoder_of(50)
    graphs = [make_graph(seed, count=5 * seed + 2) for seed in range(4)]
    parts = [torch.randn(len(graph.nodes), D, dtype=torch.float64) for graph in graphs]
    together = encoder(torch.cat(parts), batch_of(graphs, config))
    alone = [encoder(part, batch_of([graph], config)) for part, graph in zip(parts, graphs, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_levels_of_all_graphs_run_together(make_graph: Callable[..., Graph]) -> None:
    _, config = encoder_of(50)
    graphs = [make_graph(seed, count=5 * seed + 2) for seed in range(4)]
    steps = [len(sweep.sizes) for sweep in batch_of(graphs, config).sweeps]
    assert steps == [max(len(graph.levels) for graph in graphs)] * 2


def test_the_baseline_sees_no_neighbors(make_graph: Callable[..., Graph]) -> None:
    config = GHNConfig(hid=D, encoder="mlp")
    encoder, batch = MLPEncoder(config), batch_of([make_graph(0)], config)
    x = torch.randn(len(batch.words), D)
    changed = x.clone()
    changed[3] += 1
    before, after = encoder(x, batch), encoder(changed, batch)
    assert torch.equal(before[4:], after[4:])
    assert torch.equal(before[:3], after[:3])
    assert not torch.equal(before[3], after[3])
