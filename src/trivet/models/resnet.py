"""Residual networks for small images, 6n + 2 layers (He, Zhang, Ren, Sun 2016, arXiv:1512.03385, section 4.2).

A 3 × 3 convolution, three stages of n blocks with w, 2w and 4w channels (w = 16), global average pooling, one linear
layer. The first block of stages two and three halves height and width. A block is conv-BN-ReLU-conv-BN, plus its input,
ReLU; where the shape changes, the input goes through a 1 × 1 convolution and BN. Convolutions start from a normal
distribution with variance 2 / (k² · output channels) (He et al. 2015, arXiv:1502.01852, fan-out form), BN from 1 and 0,
the linear layer as torch starts it.

Parameters for c input channels and K classes, with v = 2w and 4w in the sum: 9cw + 2w + n·(18w² + 4w) +
Σ_v [9v²/2 + (2n - 1)·9v² + 4nv + v²/2 + 2v] + (4w + 1)·K; 272,474 for ResNet-20 with c = 3 and K = 10.

Not covered: the ImageNet ResNets (18, 34, 50, …: `torchvision:resnet18`), pre-activation and bottleneck blocks.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trivet.models.names import DEFAULT_WIDTH


class ResidualBlock(nn.Module):
    """Two 3 × 3 convolutions with BN, and the input added to them.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        stride: 2 halves height and width (rounded up), 1 keeps them.

    Examples:
        >>> import torch
        >>> ResidualBlock(16, 32, stride=2)(torch.zeros(1, 16, 8, 8)).shape
        torch.Size([1, 32, 4, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut.append(nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(out_channels))

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, in_channels, H, W] → [N, out_channels, ⌈H/stride⌉, ⌈W/stride⌉]."""
        hidden = F.relu(self.bn1(self.conv1(inputs)))
        return F.relu(self.bn2(self.conv2(hidden)) + self.shortcut(inputs))


class ResNet(nn.Module):
    """A residual network of 6n + 2 layers for images of any size from 4 × 4.

    Args:
        depth: Layers, 6n + 2 for a whole n ≥ 1.
        num_classes: Outputs.
        in_channels: Channels of the images.
        width: Channels of the first stage.

    Raises:
        ValueError: A depth that is not 6n + 2, or a count below 1.

    Examples:
        >>> model = ResNet(20)
        >>> sum(p.numel() for p in model.parameters())
        272474
    """

    def __init__(self, depth: int, *, num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            lower = max(8, (depth - 2) // 6 * 6 + 2)
            raise ValueError(f"`depth={depth}` must be 6n + 2; take {lower} or {lower + 6}")
        for name, count in (("num_classes", num_classes), ("in_channels", in_channels), ("width", width)):
            if count < 1:
                raise ValueError(f"`{name}={count}` must be ≥ 1; it counts {name.removeprefix('num_')}")
        num_blocks = (depth - 2) // 6
        self.conv = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.stage1 = _stage(width, width, num_blocks, stride=1)
        self.stage2 = _stage(width, 2 * width, num_blocks, stride=2)
        self.stage3 = _stage(2 * width, 4 * width, num_blocks, stride=2)
        self.fc = nn.Linear(4 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """[N, in_channels, H, W] → logits [N, num_classes]."""
        hidden = F.relu(self.bn(self.conv(images)))
        hidden = self.stage3(self.stage2(self.stage1(hidden)))
        return self.fc(F.adaptive_avg_pool2d(hidden, 1).flatten(1))


def _stage(in_channels: int, out_channels: int, num_blocks: int, *, stride: int) -> nn.Sequential:
    first = ResidualBlock(in_channels, out_channels, stride=stride)
    return nn.Sequential(first, *(ResidualBlock(out_channels, out_channels) for _ in range(num_blocks - 1)))


def resnet8(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-8, one block a stage; 78,042 parameters by default."""
    return ResNet(8, num_classes=num_classes, in_channels=in_channels, width=width)


def resnet20(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-20; 272,474 parameters by default.

    Examples:
        >>> import torch
        >>> resnet20(num_classes=5, in_channels=1)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 5])
    """
    return ResNet(20, num_classes=num_classes, in_channels=in_channels, width=width)


def resnet32(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-32; 466,906 parameters by default."""
    return ResNet(32, num_classes=num_classes, in_channels=in_channels, width=width)


def resnet38(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-38; 564,122 parameters by default."""
    return ResNet(38, num_classes=num_classes, in_channels=in_channels, width=width)


def resnet56(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-56; 855,770 parameters by default."""
    return ResNet(56, num_classes=num_classes, in_channels=in_channels, width=width)


def resnet74(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-74; 1,147,418 parameters by default."""
    return ResNet(74, num_classes=num_classes, in_channels=in_channels, width=width)


def resnet110(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-110; 1,730,714 parameters by default."""
    return ResNet(110, num_classes=num_classes, in_channels=in_channels, width=width)


def resnet152(num_classes: int = 10, in_channels: int = 3, width: int = DEFAULT_WIDTH) -> ResNet:
    """ResNet-152 of the 6n + 2 family (n = 25), not ImageNet's; 2,411,226 parameters by default."""
    return ResNet(152, num_classes=num_classes, in_channels=in_channels, width=width)
