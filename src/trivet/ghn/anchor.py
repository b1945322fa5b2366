"""Anchors: fixed weights that decoded ones are added to, with which any network passes its inputs on.

A new hypernetwork gives each network another random function. Channel 5 of the last layer means something else in each
of them, so the gradients that they send back to the hypernetwork are orthogonal: training begins with hundreds of steps
in which nothing is learned (`benchmarks/ghn_alignment.py` measures it). With an anchor, a layer starts as

    output o = gain · mean of the inputs i with i ≡ o (mod g),        g = gcd(inputs, outputs),

the identity where both are equal and a mean over the parts of a concatenation; a depthwise convolution starts as the
identity, and one over the one to four channels of an image as fixed filters: cosines in both directions (the basis of
the discrete cosine transform), with both signs, as a ReLU would drop one. Channel 5 then means nearly the same in every
network, at every depth, and the hypernetwork learns what to change. Starting deep networks as the identity is old
(Saxe et al. 2014, arXiv:1312.6120; Le, Jaitly, Hinton 2015, arXiv:1504.00941; Zhao et al. 2022, arXiv:2110.12661, whose
networks begin with identities alone); that it aligns what a hypernetwork learns from is our own observation.

Not covered: recurrent weights, which no published word stands for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

GAIN = 0.6
"""Of layers that mix channels: two of them often are summed, which this keeps from growing."""
FEWEST = 4
"""Least g; below it outputs would repeat each other, and there is no anchor."""
LARGEST_CENTERED = 7
"""Kernels up to this size have filters of 3 × 3 in their middle; larger ones are patches, filled by the filters."""
_BASIS = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1))
"""Frequencies down and across of the filters."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The fixed part of one weight.

    Examples:
        >>> anchor_of((4, 8, 3, 3), grouped=False)
        Anchor(kind='identity', value=0.3, period=4)
    """

    kind: Literal["identity", "filters"]
    """`filters` look at an image, `identity` passes channels on."""
    value: float
    """Of each entry that is not zero; of filters, their factor."""
    period: int = 0
    """g: input i and output o belong together if they are equal modulo g."""


def anchor_of(view: tuple[int, int, int, int], *, grouped: bool, parts: int = 1) -> Anchor | None:
    """The anchor of a weight, or None where it has none.

    Args:
        view: Its sizes (out, in of one group, height, width).
        grouped: Whether each output sees one group of inputs, as in depthwise convolutions.
        parts: Over how many places the anchor is repeated, such as the depth of a three-dimensional kernel.

    Examples:
        >>> anchor_of((16, 1, 3, 3), grouped=True).value, anchor_of((16, 3, 3, 3), grouped=False).kind
        (1.0, 'filters')
    """
    out, inputs, height, width = view
    period = math.gcd(out, inputs)
    if grouped:
        return Anchor("identity", (1.0 if inputs == 1 else GAIN * period / inputs) / parts, period)
    if inputs <= FEWEST and min(height, width) >= 3:
        return Anchor("filters", math.sqrt(2.0) / parts)
    if period < FEWEST:
        return None
    return Anchor("identity", GAIN * period / inputs / parts, period)


def add_(weight: Tensor, anchor: Anchor, *, everywhere: bool = False) -> None:
    """Add an anchor in place.

    Args:
        weight: [..., out, in, height, width], of any strides.
        anchor: What is added; the identity to the middle of the kernel.
        everywhere: Add it at all positions of the kernel instead, which are then images' pixels and no kernel.

    Examples:
        >>> weight = torch.zeros(4, 4, 1, 1)
        >>> add_(weight, Anchor("identity", 0.5, 4))
        >>> torch.equal(weight[..., 0, 0], 0.5 * torch.eye(4))
        True
    """
    out, inputs, height, width = weight.shape[-4:]
    if anchor.kind == "filters":
        weight += _filters(out, inputs, height, width).to(weight) * anchor.value
        return
    rows = weight.unflatten(-4, (out // anchor.period, anchor.period))
    both = rows.unflatten(-3, (inputs // anchor.period, anchor.period))
    same = both.diagonal(dim1=-5, dim2=-3)  # [..., rows, columns, height, width, period]
    place = same if everywhere else same[..., height // 2, width // 2, :]
    place += anchor.value


def _filters(out: int, inputs: int, height: int, width: int) -> Tensor:
    """Filters [out, in, height, width], norm 1 over a kernel where all inputs are equal."""
    centered = max(height, width) <= LARGEST_CENTERED
    size = (3, 3) if centered else (height, width)
    basis = torch.stack([torch.outer(_cosine(down, size[0]), _cosine(across, size[1])) for down, across in _BASIS])
    basis /= torch.linalg.vector_norm(basis, dim=(1, 2), keepdim=True)
    filters = torch.zeros(out, inputs, height, width)
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    for o in range(out):
        turn, place = divmod(o, len(_BASIS))
        angle = 2.4 * (turn // 2)  # further filters are mixtures; 2.4 is the golden angle, which never repeats
        mixed = math.cos(angle) * basis[place] + math.sin(angle) * basis[(place + 1 + turn) % len(_BASIS)]
        shown = mixed if turn % 2 == 0 else -mixed
        # The first 16 see the mean of an image's channels, further ones one channel each.
        seen = range(inputs) if turn < 2 else [o % inputs]
        for i in seen:
            filters[o, i, top : top + size[0], left : left + size[1]] = shown / len(seen)
    return filters


def _cosine(frequency: int, size: int) -> Tensor:
    return torch.cos(math.pi * frequency * (torch.arange(size) + 0.5) / size)
