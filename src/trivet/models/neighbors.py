"""The sum over neighbors of a graph, the aggregation of graph networks, as one function that can be seen from outside.

    y_i = Σ_{j → i} w_ji x_j

torch's function modes see it as they see `functional.linear`, so trivet.precision can round what is summed
(`precision/aggregation.py`). With weights it is computed edge by edge, without them as a sparse product.

Not covered: maxima, products and other aggregations; half precision (summed in float32).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary


def neighbor_sum(x: Tensor, edges: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum of the features of each node's neighbors.

    Args:
        x: Features, [N, C]; with weights [N, H, C].
        edges: int64 [2, E], from and to; sorted by where they go to.
        weight: A number for each edge and head, [E, H]; None stands for ones.

    Returns:
        The shape of x; zero for a node that no edge goes to.

    Examples:
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> neighbor_sum(x, torch.tensor([[1, 2, 0], [0, 0, 2]])).tolist()
        [[110.0], [0.0], [1.0]]
    """
    if has_torch_function_unary(x):
        return handle_torch_function(neighbor_sum, (x,), x, edges, weight)
    if x.is_meta:
        return torch.empty_like(x)
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    source, target = edges
    if weight is None:
        ones = torch.ones(edges.shape[1], dtype=wide.dtype, device=x.device)
        matrix = torch.sparse_coo_tensor(
            torch.stack((target, source)), ones, (len(x), len(x)), is_coalesced=True, check_invariants=False
        )
        return torch.sparse.mm(matrix, wide).to(x.dtype)
    messages = wide[source] * weight.unsqueeze(-1)
    return torch.zeros_like(wide).index_add(0, target, messages).to(x.dtype)


def in_degrees(x: Tensor, edges: Tensor) -> Tensor:
    """How many edges go to each node, in the type of the features.

    Args:
        x: Features of the nodes, [N, …].
        edges: int64 [2, E].

    Returns:
        [N, 1].

    Examples:
        >>> in_degrees(torch.zeros(3, 1), torch.tensor([[1, 2, 0], [0, 0, 2]])).tolist()
        [[2.0], [0.0], [1.0]]
    """
    ones = torch.ones(edges.shape[1], dtype=x.dtype, device=x.device)
    return torch.zeros(len(x), dtype=x.dtype, device=x.device).index_add(0, edges[1], ones).unsqueeze(1)
