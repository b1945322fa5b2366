"""Parameters of a batch of graphs, grouped so that everything alike is decoded in one go.

A group is what one decoder makes from a set of nodes: blocks of equal sizes, or all scales and biases. Within it, what
becomes parameters of equal shape is one part, so that tiling and scaling are done once for all of them.

Not covered: what a parameter is decoded as (`targets.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trivet.ghn.config import GHNConfig
from trivet.ghn.targets import Target

if TYPE_CHECKING:
    from trivet.ghn.targets import View


@dataclass(slots=True)
class Part:
    """Parameters of one group that have the same shape and scale."""

    target: Target
    """The first of them; they differ in name and node alone."""
    names: list[tuple[int, str]] = field(default_factory=list)
    """Graph and parameter of each."""
    rows: list[int] = field(default_factory=list)
    """Which block of the group each is made of."""
    picked: Tensor | None = None
    """The same as a tensor, or None when they are all blocks in order."""


@dataclass(slots=True)
class Group:
    """What is decoded together."""

    kind: Literal["weight", "class_weight", "class_bias", "vector"]
    view: View
    """Sizes (out, in, height, width) of the blocks."""
    nodes: Tensor
    """Node of each block, in the batch, int64 [blocks]."""
    parts: list[Part]


def group_targets(
    targets: Sequence[Sequence[Target]], counts: Sequence[int], config: GHNConfig, device: torch.device
) -> list[Group]:
    """Group the targets of each graph of a batch, whose graphs have `counts` nodes."""
    found: dict[tuple[str, View], tuple[dict[int, int], dict[object, Part]]] = {}
    start = 0
    for graph, (own, count) in enumerate(zip(targets, counts, strict=True)):
        for target in own:
            rows, parts = found.setdefault(_group(target, config), ({}, {}))
            part = parts.setdefault(replace(target, name="", node=0), Part(target))
            part.names.append((graph, target.name))
            part.rows.append(rows.setdefault(start + target.node, len(rows)))
        start += count
    groups = []
    for (kind, view), (rows, parts) in found.items():
        for part in parts.values():
            if part.rows != list(range(len(rows))):
                part.picked = torch.tensor(part.rows, device=device)
        nodes = torch.tensor(list(rows), device=device)
        groups.append(Group(kind, view, nodes, list(parts.values())))  # pyrefly: ignore[bad-argument-type]
    return groups


def _group(target: Target, config: GHNConfig) -> tuple[str, View]:
    """Which decoder, and which sizes, a parameter needs."""
    if target.kind in ("factor", "offset"):
        return "vector", (0, 0, 0, 0)
    if target.kind == "class_bias":
        return "class_bias", (target.view[0], 0, 0, 0)
    out, inputs, height, width = target.view
    largest = config.max_shape
    if target.kind == "class_weight":  # as many rows as there are classes
        return target.kind, (out, min(inputs, largest[1]), height, width)
    return target.kind, (min(out, largest[0]), min(inputs, largest[1]), height, width)
