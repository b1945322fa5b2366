"""The size of what is predicted: weights by their fan-in, scales around 1, biases within ±1.

Knyazev et al. (2021), after tiling and on the shape of the parameter itself: weights of two and more dimensions times
√(β / fan-in) with β = 2, or 1 where no ReLU is expected to follow; learned positions as they are; a normalization's
scale 2·sigmoid(p / 2); every bias tanh(p / 5). Each of them commutes with tiling, so it is applied before.

Not covered: networks whose activations are far from ReLU; the factor 2 is theirs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def weight_scale(view: tuple[int, int, int, int], *, depth: int = 1, kernel: bool = True) -> float:
    """Factor of a weight.

    Args:
        view: Its sizes (out, in, height, width), with those of a transposed convolution swapped.
        depth: Third size of its kernel, if it has one.
        kernel: Whether it is a two-dimensional kernel; only those tell by their shape that no ReLU follows, when there
            is one input channel or when they are wider than high.

    Examples:
        >>> weight_scale((64, 8, 3, 3)) == (2 / 72) ** 0.5, weight_scale((64, 1, 3, 3)) == (1 / 9) ** 0.5
        (True, True)
    """
    _, inputs, height, width = view
    no_relu = kernel and (inputs == 1 or height < width)
    return math.sqrt((1.0 if no_relu else 2.0) / (inputs * depth * height * width))


def factor(decoded: Tensor) -> Tensor:
    """Scale of a normalization, between 0 and 2.

    Examples:
        >>> factor(torch.zeros(1))
        tensor([1.])
    """
    return torch.sigmoid(decoded * 0.5) * 2


def offset(decoded: Tensor) -> Tensor:
    """Bias, between −1 and 1.

    Examples:
        >>> offset(torch.tensor([0.0, 1e9]))
        tensor([0., 1.])
    """
    return torch.tanh(decoded * 0.2)
