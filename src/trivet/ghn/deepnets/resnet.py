"""ResNet-50 (He, Zhang, Ren, Sun 2016, arXiv:1512.03385) with torchvision's parameter names, for any size of image.

As in the evaluation of DeepNets-1M, small images enter through a 3 × 3 convolution of stride 1 without pooling. The
stride of a block is in its 3 × 3 convolution.

Not covered: other depths, and pretrained weights; torchvision has both.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trivet.ghn.deepnets.operations import Norms, convolution
from trivet.ghn.deepnets.tensors import LARGE, RESNET50_BLOCKS


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions with norms, and the input added.

    Args:
        inputs: Channels of the input.
        width: Channels inside; four times as many leave.
        stride: Stride of the 3 × 3 convolution.
        first: Whether the input goes through a 1 × 1 convolution.
        norms: Makes the norms.
    """

    def __init__(self, inputs: int, width: int, *, stride: int, first: bool, norms: Norms) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = norms(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = norms(width)
        self.conv3 = convolution(width, 4 * width, 1)
        self.bn3 = norms(4 * width)
        self.downsample: nn.Module = nn.Identity()
        if first:
            self.downsample = nn.Sequential(convolution(inputs, 4 * width, 1, stride), norms(4 * width))

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, inputs, H, W] → [N, 4 · width, ⌈H/stride⌉, ⌈W/stride⌉]."""
        hidden = F.relu(self.bn1(self.conv1(inputs)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        return F.relu(self.bn3(self.conv3(hidden)) + self.downsample(inputs))


class BottleneckNetwork(nn.Module):
    """ResNet-50.

    Args:
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Their height and width; from 64 on the stem is the one for ImageNet.
        running_statistics: Whether batch norms keep running statistics.
    """

    def __init__(self, num_classes: int, in_channels: int, image_size: int, *, running_statistics: bool) -> None:
        super().__init__()
        norms, large = Norms("bn", running_statistics), image_size >= LARGE
        self.conv1 = convolution(in_channels, 64, 7, 2) if large else convolution(in_channels, 64, 3)
        self.bn1 = norms(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        stages: list[nn.Module] = []
        channels = 64
        for stage, count in enumerate(RESNET50_BLOCKS):
            blocks: list[nn.Module] = []
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(Bottleneck(channels, 64 * 2**stage, stride=stride, first=not block, norms=norms))
                channels = 256 * 2**stage
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """[N, in_channels, H, W] → logits [N, num_classes]."""
        hidden = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        return self.fc(self.avgpool(hidden).flatten(1))
