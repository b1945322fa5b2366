"""Which functional calls are products, by the name torch gives the function, and the rule that computes each.

Not covered: sparse products, chained products, factorizations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trivet.precision import aggregation, attention, products, recurrent

Rule = Callable[[Any, str, Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""`rule(scope, name, func, args, kwargs)` computes what `func(*args, **kwargs)` computes, at few bits."""

_RULES: dict[str, Rule] = {
    **dict.fromkeys(products.PRODUCTS, products.multiply),
    "einsum": products.einsum,
    "embedding": products.embedding,
    "embedding_bag": products.embedding_bag,
    "bilinear": products.bilinear,
    "scaled_dot_product_attention": attention.scaled_dot_product_attention,
    "multi_head_attention_forward": attention.multi_head_attention,
    **dict.fromkeys(recurrent.LAYERS, recurrent.layers),
    **dict.fromkeys(recurrent.CELLS, recurrent.cell),
    "neighbor_sum": aggregation.neighbor_sum,
}

RULES: dict[str, tuple[Rule, str]] = {name: (rule, name) for name, rule in _RULES.items()}
"""Rule and name by the name of the function; the name again because compiled code may only use a constant."""
