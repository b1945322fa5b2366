"""Numbers of single layers: size and rank of a weight, what passes through a layer, what a random one would be.

The effective rank of a matrix is exp(−Σ p ln p) with p = σ / Σσ over its singular values σ (Roy & Vetterli 2007, "The
effective rank"): n for the identity of size n, 1 for a product of two vectors.

Not covered: layers that compute without being called, whose signals are not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from trivet.ghn.findings import Spread
from trivet.ghn.targets import Target

POSITION_STD = 0.02
"""Standard deviation of a random draw of learned positions."""
_LAST_CHANNEL = (nn.Linear, nn.LayerNorm, nn.MultiheadAttention)


def effective_rank(matrix: Tensor) -> float:
    """Effective rank of a matrix; 0 for one of zeros, not a number if it holds any.

    Singular values below 1e-7 of the largest, the precision of float32, count as 0.

    Args:
        matrix: [rows, columns].

    Examples:
        >>> round(effective_rank(torch.eye(5)), 6), effective_rank(torch.ones(3, 4))
        (5.0, 1.0)
    """
    values = matrix.detach().double()
    if not bool(values.isfinite().all()):
        return math.nan
    peak = float(values.abs().max())
    if peak == 0:
        return 0.0
    values = values / peak
    gram = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    squares = torch.linalg.eigvalsh(gram)
    sigma = squares[squares > 1e-14 * squares[-1]].sqrt()
    p = sigma / sigma.sum()
    return float(torch.exp(-(p * p.log()).sum()))


def as_matrix(weight: Tensor, target: Target) -> Tensor:
    """A weight as outputs × (inputs · kernel).

    Args:
        weight: Of the target's shape.
        target: How its shape is read.
    """
    if target.form in ("positions", "map"):
        return weight.reshape(-1, weight.shape[-1])
    turned = weight.transpose(0, 1) if target.swapped else weight
    return turned.reshape(turned.shape[0], -1)


def norm_ratio(matrix: Tensor) -> float:
    """Standard deviation of a weight over that of a Kaiming draw, √(2 / fan-in).

    Examples:
        >>> norm_ratio(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
        1.0
    """
    return float(matrix.double().std(correction=0)) * math.sqrt(matrix.shape[1] / 2)


def distinct_rows(matrix: Tensor) -> int:
    """Rows that differ from each other in at least one bit.

    Examples:
        >>> distinct_rows(torch.arange(6.0).view(3, 2).repeat(4, 1))
        3
    """
    return len(torch.unique(matrix, dim=0))


def spread(vector: Tensor) -> Spread:
    """Mean and standard deviation.

    Examples:
        >>> spread(torch.tensor([0.0, 2.0]))
        Spread(mean=1.0, deviation=1.0)
    """
    values = vector.double()
    return Spread(mean=float(values.mean()), deviation=float(values.std(correction=0)))


def random_draw(target: Target, value: Tensor, generator: torch.Generator) -> Tensor:
    """What an untrained layer would have instead of a predicted tensor.

    Weights are normal with variance 2 / fan-in (He, Zhang, Ren, Sun 2015, "Delving deep into rectifiers"), learned
    positions normal with a deviation of 0.02; scales are 1, and biases 0.

    Args:
        target: What it is.
        value: What was predicted; gives shape, type and device.
        generator: On the CPU.
    """
    if target.kind == "factor":
        return torch.ones_like(value)
    if target.kind in ("offset", "class_bias"):
        return torch.zeros_like(value)
    is_position = target.form in ("positions", "map")
    std = POSITION_STD if is_position else math.sqrt(2 / as_matrix(value, target).shape[1])
    return (torch.randn(value.shape, generator=generator) * std).to(value)


@dataclass(slots=True)
class Signal:
    """What passed through one layer so far."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    alive: list[Tensor] = field(default_factory=list)

    @property
    def output_std(self) -> float | None:
        """Standard deviation of all that it put out."""
        if not self.count:
            return None
        square = self.squares / self.count
        return math.sqrt(max(0.0, square - (self.total / self.count) ** 2)) if math.isfinite(square) else math.nan

    @property
    def dead_inputs(self) -> float | None:
        """Share of its input channels that never were anything but 0."""
        if not self.alive or len({len(one) for one in self.alive}) > 1:
            return None
        return 1 - float(torch.stack(self.alive).any(0).double().mean())

    def see(self, module: nn.Module, inputs: Tensor, output: Any) -> None:
        """Count one call."""
        output = output[0] if isinstance(output, tuple) and output else output
        if isinstance(output, Tensor) and output.is_floating_point():
            values = output.double()
            self.count += values.numel()
            self.total += float(values.sum())
            self.squares += float(values.square().sum())
        if inputs.ndim > 1:
            channel = inputs.ndim - 1 if isinstance(module, _LAST_CHANNEL) else 1
            self.alive.append((inputs != 0).movedim(channel, 0).flatten(1).any(1))


@contextmanager
def watched(layers: Mapping[str, nn.Module]) -> Generator[dict[str, Signal]]:
    """Count what passes through layers within the block.

    Args:
        layers: Name → module.

    Yields:
        Name → its signal, which grows with each call.

    Examples:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> with torch.no_grad(), watched({"a": layer}) as signals:
        ...     _ = nn.init.eye_(layer.weight), layer(torch.tensor([[3.0, 0.0], [1.0, 0.0]]))
        >>> signals["a"].dead_inputs
        0.5
    """
    signals = {name: Signal() for name in layers}

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def see(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if inputs and isinstance(inputs[0], Tensor):
                signals[name].see(module, inputs[0], output)

        return see

    handles = [module.register_forward_hook(hook(name)) for name, module in layers.items()]
    try:
        yield signals
    finally:
        for handle in handles:
            handle.remove()
