"""What is known of a tensor while a module runs: which nodes it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_NOTHING: Mapping[str, Any] = {}


class Value:
    """Where a tensor comes from; shared by all tensors that come from the same place.

    Marks say what pattern the tensor may be part of: `pooled` (global mean: of what these nodes gave, by which node),
    `gate` (squashed, after `pooled`), `scores` (a matrix product of activations: its nodes, weights passed since),
    `attention` (softmax of scores, likewise), `statistic` (mean or variance of what these nodes gave), `centred` and
    `normed` (such a mean taken off, divided by such a statistic; after a weight, its node).
    """

    __slots__ = ("marks", "parameters", "sources")

    def __init__(
        self,
        sources: frozenset[int] = frozenset(),
        parameters: tuple[str, ...] = (),
        marks: Mapping[str, Any] = _NOTHING,
    ) -> None:
        self.sources = sources
        """Nodes whose results it was made from."""
        self.parameters = parameters
        """Parameters it was made from, where no activation has met them yet."""
        self.marks = marks
        """Parts of patterns."""

    def marked(self, **marks: Any) -> Value:
        """The same origin with further marks; `None` takes one away."""
        kept = {key: value for key, value in {**self.marks, **marks}.items() if value is not None}
        return Value(self.sources, self.parameters, kept)


CONSTANT = Value()
"""What comes from neither inputs nor parameters."""


def merge(values: Iterable[Value]) -> Value:
    """Origin of what is made from several tensors.

    Marks of attention survive any company, those of a gate only that of tensors that are global as well.
    """
    distinct = list(dict.fromkeys(value for value in values if value.sources or value.parameters))
    if len(distinct) < 2:
        return distinct[0] if distinct else CONSTANT
    active = [value for value in distinct if value.sources]
    if not active:
        return Value(parameters=tuple(dict.fromkeys(name for value in distinct for name in value.parameters)))
    if len(active) == 1:
        return active[0]
    marks: dict[str, Any] = {}
    for key in ("scores", "attention"):
        found = [value.marks[key] for value in active if key in value.marks]
        if found:
            marks[key] = (frozenset().union(*(nodes for nodes, _ in found)), max(hops for _, hops in found))
    if all("pooled" in value.marks for value in active):
        marks["pooled"] = active[0].marks["pooled"]
    return Value(frozenset().union(*(value.sources for value in active)), marks=marks)
