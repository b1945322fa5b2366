"""A small convolutional network without normalization: two convolutions, two linear layers.

Small enough to be written a second time in another library (`trivet.models.jax_models`), so that what hardware does and
what one library does wrong can be told apart.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SmallCNN(nn.Module):
    """Convolution, ReLU and halving, twice; then a hidden and an output layer.

    Args:
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Height and width, at least 4 each.
        width: Channels of the first convolution; the second has twice as many, the hidden layer four times.

    Raises:
        ValueError: Images too small to be halved twice.

    Examples:
        >>> net = SmallCNN(10, 1, (28, 28))
        >>> net(torch.zeros(2, 1, 28, 28)).shape, sum(p.numel() for p in net.parameters())
        (torch.Size([2, 10]), 105866)
    """

    def __init__(
        self, num_classes: int = 10, in_channels: int = 3, image_size: tuple[int, int] = (32, 32), *, width: int = 16
    ) -> None:
        super().__init__()
        height, width_in = (size // 4 for size in image_size)
        if min(height, width_in) < 1:
            raise ValueError(f"images of {image_size[0]} × {image_size[1]} cannot be halved twice; take 4 × 4 or more")
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.hidden = nn.Linear(2 * width * height * width_in, 4 * width)
        self.out = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [N, C, H, W] → logits [N, classes]."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.out(F.relu(self.hidden(torch.flatten(x, 1))))
