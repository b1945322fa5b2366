"""A plain autoencoder of pictures: linear layers that narrow to a code and widen again.

    h_0 = the pixels;   h_k = relu(W_k h_{k-1} + b_k),   code = W h + b,   and the same widths back;   output = σ(…)

Pixels lie in [0, 1], and so does the output. Trained on the mean squared error, it does no worse than the mean picture,
and with one linear layer on each side no better than as many principal components.

Not covered: convolutions, noise on the input, variational codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn


class Autoencoder(nn.Module):
    """Puts a picture through a narrow code and draws it again.

    Args:
        shape: Channels, height and width of a picture.
        hidden: Widths of the layers before the code; the same ones follow it, in reverse.
        code: Numbers in the code.

    Raises:
        ValueError: A width below 1.

    Examples:
        >>> net = Autoencoder((1, 28, 28), hidden=(64,), code=8)
        >>> net(torch.rand(5, 1, 28, 28)).shape, net.encode(torch.rand(5, 1, 28, 28)).shape
        (torch.Size([5, 1, 28, 28]), torch.Size([5, 8]))
    """

    def __init__(self, shape: tuple[int, int, int], *, hidden: Sequence[int] = (128,), code: int = 32) -> None:
        super().__init__()
        if min(*shape, *hidden, code) < 1:
            raise ValueError(f"`shape={shape}`, `hidden={list(hidden)}` and `code={code}` must be numbers ≥ 1")
        self.shape = shape
        widths = [prod(shape), *hidden, code]
        self.encoder = _layers(widths)
        self.decoder = _layers(widths[::-1])

    def encode(self, pictures: Tensor) -> Tensor:
        """Pictures [N, C, H, W] → codes [N, code]."""
        return self.encoder(pictures.flatten(1))

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [N, C, H, W] with values in [0, 1] → the same pictures, drawn from their codes."""
        return torch.sigmoid(self.decoder(self.encode(pictures))).view(-1, *self.shape)


def _layers(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with a rectifier between each two."""
    layers: list[nn.Module] = []
    for narrow, wide in pairwise(widths):
        layers += [nn.Linear(narrow, wide), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
