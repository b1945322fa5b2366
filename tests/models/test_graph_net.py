"""Sums over neighbors, and networks made of PyTorch Geometric's layers around them."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.core.errors import MissingExtraError
from trivet.models.graph_net import GraphNet, with_loops
from trivet.models.neighbors import in_degrees, neighbor_sum

needs_pyg = pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric") is None, reason="needs `pip install 'trivet[graphs]'`"
)
EDGES = torch.tensor([[1, 2, 0, 0, 2, 1], [0, 0, 1, 2, 3, 4]])
"""Five nodes and one without edges, sorted by target."""
NODES = 6


def dense(edges: torch.Tensor, nodes: int) -> torch.Tensor:
    matrix = torch.zeros(nodes, nodes, dtype=torch.float64)
    matrix[edges[1], edges[0]] = 1.0
    return matrix


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_neighbor_sum_against_a_dense_matrix(nodes: int, heads: int, seed: int) -> None:
    """Sum, its gradient, weighted or not, and the degrees."""
    random = torch.Generator().manual_seed(seed)
    matrix = (torch.rand(nodes, nodes, generator=random) < 0.4).double()
    target, source = matrix.nonzero(as_tuple=True)
    edges = torch.stack((source, target))
    x = torch.randn(nodes, 3, dtype=torch.float64, generator=random, requires_grad=True)
    torch.testing.assert_close(neighbor_sum(x, edges), matrix @ x)
    assert torch.equal(in_degrees(x, edges), matrix.sum(1, keepdim=True))
    if len(source):
        (found,) = torch.autograd.grad(neighbor_sum(x, edges).square().sum(), x)
        (wanted,) = torch.autograd.grad((matrix @ x).square().sum(), x)
        torch.testing.assert_close(found, wanted)
    y = torch.randn(nodes, heads, 2, dtype=torch.float64, generator=random)
    weight = torch.rand(len(source), heads, dtype=torch.float64, generator=random)
    full = torch.zeros(heads, nodes, nodes, dtype=torch.float64)
    full[:, target, source] = weight.T
    torch.testing.assert_close(neighbor_sum(y, edges, weight), torch.einsum("hij,jhc->ihc", full, y))


def test_half_precision_is_summed_in_float32() -> None:
    x = torch.full((NODES, 2), 0.1, dtype=torch.bfloat16)
    found = neighbor_sum(x, EDGES)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), dense(EDGES, NODES) @ x.double(), rtol=0.01, atol=0)


def net(kind: str, **options: Any) -> GraphNet:
    torch.manual_seed(0)
    return GraphNet(kind, EDGES, NODES, in_features=5, num_classes=3, hidden=8, **options)


@needs_pyg
@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_layers_compute_what_those_of_pytorch_geometric_compute(kind: str) -> None:
    import torch_geometric.nn as pyg

    model = net(kind, heads=2 if kind == "gat" else 1).eval()
    first: Any = model.convolutions[0]
    theirs: Any = {"gcn": lambda: pyg.GCNConv(5, 8), "sage": lambda: pyg.SAGEConv(5, 8)}.get(
        kind, lambda: pyg.GATConv(5, 4, heads=2)
    )()
    assert isinstance(first, type(theirs))
    theirs.load_state_dict(first.state_dict())
    x = torch.randn(NODES, 5)
    torch.testing.assert_close(first(x, model.edges), theirs.eval()(x, EDGES), rtol=1e-5, atol=1e-6)


@needs_pyg
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_networks(kind: str) -> None:
    """Shapes, depth, dropout in training alone; the graph is in no checkpoint; copies compute the same."""
    model = net(kind, layers=3, norm="layer", input_dropout=0.2)
    x = torch.randn(1, NODES, 5)
    assert model(x).shape == (1, NODES, 3)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), copy.deepcopy(model)(x))
    assert not any("edges" in name for name in model.state_dict())
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@needs_pyg
def test_a_node_without_edges_is_classified_by_its_own_features() -> None:
    x, other = torch.randn(1, NODES, 5), torch.randn(1, NODES, 5)
    other[0, 5] = x[0, 5]
    for kind in ("gcn", "sage", "gat"):
        model = net(kind).eval()
        torch.testing.assert_close(model(x)[0, 5], model(other)[0, 5])
        assert not torch.allclose(model(x)[0, 0], model(other)[0, 0])


@needs_pyg
@pytest.mark.parametrize(
    ("options", "words"), [({"kind": "gnc"}, "did you mean 'gcn'"), ({"kind": "gat", "heads": 3}, "divide")]
)
def test_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        net(**options)


def test_loops_come_in_order() -> None:
    found = with_loops(EDGES, NODES)
    assert found.shape[1] == EDGES.shape[1] + NODES
    keys = found[1] * NODES + found[0]
    assert torch.equal(keys, keys.sort().values)
    assert (found[0] == found[1]).sum() == NODES


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from trivet.models import graph_net

    graph_net.layer_classes.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'trivet\[graphs\]'"):
        net("gcn")
