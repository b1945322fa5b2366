"""Networks that classify the nodes of a graph: GCN, GraphSAGE and GAT with the layers of PyTorch Geometric.

    h⁰ = features;   hˡ⁺¹ = dropout(act(norm(layer(hˡ))));   logits = the last layer, without any of the three

| kind | layer | act |
|---|---|---|
| gcn | D^−½ (A + I) D^−½ h W + b | ReLU |
| sage | D^−1 A h W₁ + b + h W₂ | ReLU |
| gat | Σ_j α_ij h_j W + b over neighbors j and i itself, `heads` side by side, one in the last layer | ELU |

Parameters, their initialization and the attention are PyTorch Geometric's; the sum over neighbors goes through
`neighbor_sum`, so that trivet.precision can round and count it. The graph is part of the network, its input are the
features of all nodes, as a batch of one graph.

PyTorch Geometric is imported when the first network is made.

Not covered: batches of several graphs or of sampled neighbors, features of edges, PyTorch Geometric's hooks for
explanations.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import unknown_name
from trivet.models.graph_names import KINDS, check_graph_library
from trivet.models.neighbors import in_degrees, neighbor_sum


@lru_cache(maxsize=1)
def layer_classes() -> Mapping[str, type[nn.Module]]:
    """The layers of PyTorch Geometric that sum over neighbors by `neighbor_sum`, by kind.

    They take edges that hold a node's edge to itself where the kind wants one.

    Raises:
        MissingExtraError: PyTorch Geometric is not installed.
    """
    check_graph_library()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it scripts classes of its own while it is imported
        from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    class GCN(GCNConv):
        """x, edges → D^−½ A D^−½ x W + b."""

        def propagate(self, edge_index: Any, size: Any = None, **inputs: Any) -> Tensor:
            x = inputs["x"]
            scale = in_degrees(x, edge_index).clamp(min=1).rsqrt()
            return neighbor_sum(x * scale, edge_index) * scale

    class SAGE(SAGEConv):
        """x, edges → D^−1 A x W₁ + b + x W₂."""

        def propagate(self, edge_index: Any, size: Any = None, **inputs: Any) -> Tensor:
            x, _ = inputs["x"]
            return neighbor_sum(x, edge_index) / in_degrees(x, edge_index).clamp(min=1)

    class GAT(GATConv):
        """x, edges → Σ α_ij x_j W + b."""

        def propagate(self, edge_index: Any, size: Any = None, **inputs: Any) -> Tensor:
            x, _ = inputs["x"]
            return neighbor_sum(x, edge_index, inputs["alpha"])

    return {"gcn": GCN, "sage": SAGE, "gat": GAT}


class GraphNet(nn.Module):
    """Classifies every node of one graph.

    Examples:
        >>> edges = torch.tensor([[1, 0], [0, 1]])
        >>> model = GraphNet("gcn", edges, 3, in_features=4, num_classes=2, hidden=8)  # doctest: +SKIP
        >>> model(torch.zeros(1, 3, 4)).shape  # doctest: +SKIP
        torch.Size([1, 3, 2])
    """

    edges: Tensor

    def __init__(
        self,
        kind: str,
        edges: Tensor,
        num_nodes: int,
        *,
        in_features: int,
        num_classes: int,
        hidden: int = 16,
        layers: int = 2,
        heads: int = 1,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        quantize_aggregation: bool = False,
    ) -> None:
        """Make the layers.

        Args:
            kind: `gcn`, `sage` or `gat`.
            edges: int64 [2, E], from and to, sorted by where they go to; without edges of a node to itself.
            num_nodes: Nodes of the graph.
            in_features: Features of a node.
            num_classes: Classes.
            hidden: Numbers that stand for a node between layers, all heads of a `gat` together.
            layers: Layers, the last one included.
            heads: Heads of every layer of a `gat` but the last, which has one.
            dropout: Share dropped behind every layer but the last, and of the attention of a `gat`.
            input_dropout: Share of the features dropped.
            norm: `none`, or `layer` for a layer norm behind every layer but the last.
            quantize_aggregation: What `rounds_neighbors` of each layer says: whether the sum over neighbors is to be
                rounded as well when the network is quantized.

        Raises:
            MissingExtraError: PyTorch Geometric is not installed.
            ValueError: An unknown kind, or heads that do not divide `hidden`.
        """
        super().__init__()
        if kind not in KINDS:
            raise ValueError(unknown_name("kind of graph network", kind, KINDS))
        if kind == "gat" and hidden % heads:
            raise ValueError(f"`heads={heads}` must divide `hidden={hidden}`")
        self.kind = kind
        if kind != "sage":
            edges = with_loops(edges, num_nodes)
        self.register_buffer("edges", edges, persistent=False)
        widths = [in_features, *[hidden] * (layers - 1), num_classes]
        self.convolutions = nn.ModuleList()
        for number, (before, after) in enumerate(pairwise(widths)):
            last = number == layers - 1
            self.convolutions.append(_layer(kind, before, after, 1 if last else heads, dropout))
        for layer in self.convolutions:
            layer.rounds_neighbors = quantize_aggregation  # pyrefly: ignore[bad-argument-type]
        inner = range(layers - 1)
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) if norm == "layer" else nn.Identity() for _ in inner])
        self.dropout, self.input_dropout = dropout, input_dropout

    def forward(self, features: Tensor) -> Tensor:
        """Logits of every node.

        Args:
            features: [1, N, F].

        Returns:
            [1, N, K].
        """
        x = features.squeeze(0)
        if self.input_dropout:
            x = F.dropout(x, self.input_dropout, self.training)
        for layer, norm in zip(self.convolutions, self.norms, strict=False):
            x = norm(layer(x, self.edges))
            x = F.dropout(F.elu(x) if self.kind == "gat" else F.relu(x), self.dropout, self.training)
        return self.convolutions[-1](x, self.edges).unsqueeze(0)


def _layer(kind: str, before: int, after: int, heads: int, dropout: float) -> nn.Module:
    cls: Any = layer_classes()[kind]
    if kind == "gcn":
        return cls(before, after, normalize=False, add_self_loops=False)
    if kind == "sage":
        return cls(before, after, aggr="mean")
    return cls(before, after // heads, heads=heads, dropout=dropout, add_self_loops=False)


def with_loops(edges: Tensor, num_nodes: int) -> Tensor:
    """Edges and one from every node to itself, sorted by where they go to.

    Examples:
        >>> with_loops(torch.tensor([[1, 0], [0, 1]]), 2).tolist()
        [[0, 1, 0, 1], [0, 0, 1, 1]]
    """
    nodes = torch.arange(num_nodes, device=edges.device)
    both = torch.cat((edges, torch.stack((nodes, nodes))), 1)
    return both[:, (both[1] * num_nodes + both[0]).argsort()]
