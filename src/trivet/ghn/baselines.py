"""What a predicted initialization has to beat, and what it can be improved by.

A prediction brings three things: the size of each layer, the structure of its weights (repeated tiles, anchors), and
the values. Each baseline here keeps some of them, so that a study can say which one helped:

* `orthogonal_`: none of them; orthogonal matrices (Saxe et al. 2014, arXiv:1312.6120).
* `tiled_`: size and tiling of the prediction, random values.
* `anchor_`: anchors alone (`anchor.py`), nothing of what was learned.
* `orthogonalize_`: the prediction, but each weight made orthogonal at its own norm, which undoes what tiling repeats
  (Knyazev et al. 2023, arXiv:2303.04143, who add noise before, as equal rows have no direction of their own).

Not covered: layers that hypernetworks do not predict; they keep their values.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from trivet.ghn.config import GHNConfig, Head
from trivet.ghn.targets import Target, targets_of
from trivet.ghn.tile import write_
from trivet.ghn.writing import why_unwritable
from trivet.graph.graph import Graph

NOISE = 3e-5
"""Standard deviation of what is added before a weight is made orthogonal, as published."""


@torch.no_grad()
def orthogonal_(module: nn.Module, seed: int) -> tuple[str, ...]:
    """Fill every weight of two and more dimensions with an orthogonal matrix of its fan-in's size.

    Weights count as matrices of outputs × the rest; rows (or columns) are orthonormal, times √2 as in front of a ReLU.
    Embeddings, and weights of one input such as depthwise kernels, keep their values.

    Returns:
        Names of the parameters that were filled.

    Examples:
        >>> layer = nn.Linear(4, 2)
        >>> orthogonal_(layer, 0), torch.allclose(layer.weight @ layer.weight.T, 2 * torch.eye(2), atol=1e-5)
        (('weight',), True)
    """
    generator = torch.Generator().manual_seed(seed)
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    filled = []
    for name, parameter in module.named_parameters():
        if id(parameter) in tables or parameter.ndim < 2 or parameter.shape[1] < 2 or why_unwritable(parameter):
            continue
        values = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(_orthogonal(values.flatten(1)).view_as(values) * 2**0.5)
        filled.append(name)
    return tuple(filled)


@torch.no_grad()
def orthogonalize_(parameters: Iterable[Tensor], seed: int) -> None:
    """Make weights orthogonal in place, each at the norm it has; vectors and weights of one input stay.

    Examples:
        >>> weight = torch.tensor([[3.0, 0.0], [3.0, 1.0]])
        >>> orthogonalize_([weight], 0)
        >>> round(float(weight.norm() ** 2), 3), round(abs(float(weight[0] @ weight[1])), 3)
        (19.0, 0.0)
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        if parameter.ndim < 2 or parameter.shape[1] < 2:
            continue
        values = parameter.detach().float().cpu()
        noisy = values + NOISE * torch.randn(values.shape, generator=generator)
        made = _orthogonal(noisy.flatten(1)).view_as(values)
        parameter.copy_(made * (torch.linalg.vector_norm(values) / torch.linalg.vector_norm(made)))


@torch.no_grad()
def tiled_(module: nn.Module, graph: Graph, config: GHNConfig, *, head: Head = "predict", seed: int = 0) -> None:
    """Replace predicted weights by random tiles: repeated and sized as the prediction is. Scales become 1, biases 0.

    Args:
        module: With predicted parameters.
        graph: Its graph.
        config: Of the hypernetwork.
        head: As it was predicted.
        seed: Of the values.
    """
    generator = torch.Generator().manual_seed(seed)
    out, inputs = config.max_shape[:2]
    for parameter, target in _predicted(module, graph, config, head):
        if target.form == "vector":
            parameter.fill_(1.0 if target.kind == "factor" else 0.0)
            continue
        norm = torch.linalg.vector_norm(parameter.float())
        rows, columns = min(target.view[0], out), min(target.view[1], inputs)
        block = torch.randn((rows, columns, *target.view[2:]), generator=generator)
        write_(parameter, block, _bare(target))
        parameter.mul_(norm / torch.linalg.vector_norm(parameter.float()).clamp_min(1e-30))


@torch.no_grad()
def anchor_(module: nn.Module, graph: Graph, config: GHNConfig, *, head: Head = "predict") -> tuple[str, ...]:
    """Replace predicted weights by their anchors. Scales become 1, biases 0; weights without an anchor stay.

    Args:
        module: With predicted parameters, or random ones, which those without an anchor keep.
        graph: Its graph.
        config: Of the hypernetwork, which must have anchors.
        head: As it was predicted.

    Returns:
        Names of the weights that are anchors now.

    Raises:
        ValueError: The hypernetwork has no anchors.
    """
    if config.anchor == "none":
        raise ValueError("`anchor=none`: this hypernetwork has no anchors; use one that has, or another `method`")
    filled = []
    for parameter, target in _predicted(module, graph, config, head):
        if target.form == "vector":
            parameter.fill_(1.0 if target.kind == "factor" else 0.0)
        elif target.anchor is not None:
            write_(parameter, torch.zeros((*target.view[:2], *target.view[2:])), target)
            filled.append(target.name)
    return tuple(filled)


def _predicted(module: nn.Module, graph: Graph, config: GHNConfig, head: Head) -> Iterable[tuple[Tensor, Target]]:
    parameters = dict(module.named_parameters())
    for target in targets_of(graph, config, head)[0]:
        if not why_unwritable(parameters[target.name]):
            yield parameters[target.name].detach(), target


def _bare(target: Target) -> Target:
    return Target(
        target.name, target.node, target.kind, target.shape, target.form, target.view, target.swapped, target.scale
    )


def _orthogonal(matrix: Tensor) -> Tensor:
    """Q of the QR decomposition, of the transpose where a matrix is wide, with the signs of R's diagonal."""
    wide = matrix.shape[0] < matrix.shape[1]
    q, r = torch.linalg.qr(matrix.T if wide else matrix)
    signed = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return signed.T if wide else signed
