"""Rule for the sum over neighbors of a graph (`trivet.models.neighbors.neighbor_sum`).

What is summed is rounded with one range, and so are the weights of the edges where there are any (attention); without
them the other operand is a matrix of zeros and ones, which is exact at any bits. The gradient of the sum is rounded
like that of any product. Multiply-accumulates: edges × features, as published costs count it, though without weights a
sum needs no multiplication.

Not covered: the aggregation of other libraries' layers, which stays in full precision and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trivet.precision.scope import ScopedForward


def neighbor_sum(scope: ScopedForward, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`neighbor_sum(x, edges, weight)`."""
    x, edges, weight = args
    site = scope.site("neighbors", weighted=False)
    kind = scope.current_pass()
    rounded = site.round_input(x, kind)
    if weight is not None:
        weight = site.round_input(weight, kind, 1)
    y = func(rounded, edges, weight)
    return site.finish(y, edges.shape[1] * math.prod(x.shape[1:]), kind)
