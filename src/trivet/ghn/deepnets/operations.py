"""The operations of a cell as modules, with the parameter names of DeepNets-1M.

Written from the published description: operations of DARTS (Liu, Simonyan, Yang 2019, arXiv:1806.09055), channel
squeeze-and-excite (Hu, Shen, Sun 2018, arXiv:1709.01507) with Hardswish as its gate, and a pre-norm transformer layer
(Dosovitskiy et al. 2021, arXiv:2010.11929) whose MLP is no wider than its input. Wherever an operation has a stride of
2, an image of odd height or width is halved upwards.

Not covered: DropPath.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trivet.ghn.deepnets.genotype import KERNELS
from trivet.ghn.deepnets.tensors import HEADS


class Norms:
    """Makes the norm after a convolution: a batch norm, or nothing.

    Args:
        norm: "bn" or "none".
        running_statistics: Whether batch norms keep running statistics.
    """

    def __init__(self, norm: str, running_statistics: bool = False) -> None:
        self.norm = norm
        self.running_statistics = running_statistics

    def __call__(self, channels: int) -> nn.Module:
        """A norm over that many channels."""
        if self.norm == "none":
            return nn.Identity()
        return nn.BatchNorm2d(channels, track_running_stats=self.running_statistics)


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, *, dilation: int = 1, groups: int = 1
) -> nn.Module:
    """A convolution without bias whose padding keeps the size, apart from the stride."""
    return nn.Conv2d(
        inputs,
        outputs,
        kernel,
        stride=stride,
        padding=dilation * (kernel // 2),
        dilation=dilation,
        groups=groups,
        bias=False,
    )


class Convolutions(nn.Module):
    """ReLU, convolutions, norm; `op` holds them all, so that names read `op.1.weight`.

    Args:
        layers: In order.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.op = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, C, H, W] → [N, C', H', W']."""
        return self.op(inputs)


class FactorizedReduce(nn.Module):
    """ReLU, two 1 × 1 convolutions of stride 2 of which the second starts one pixel further, concatenated, norm.

    Args:
        inputs: Channels of the input.
        outputs: Channels of the output; even.
        norms: Makes the norm.

    Examples:
        >>> FactorizedReduce(4, 6, Norms("bn"))(torch.zeros(2, 4, 7, 7)).shape
        torch.Size([2, 6, 4, 4])
    """

    def __init__(self, inputs: int, outputs: int, norms: Norms) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False)
        self.conv_2 = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False)
        self.bn = norms(outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, inputs, H, W] → [N, outputs, ⌈H/2⌉, ⌈W/2⌉]."""
        hidden = F.relu(inputs)
        height, width = hidden.shape[-2:]
        shifted = hidden
        if height % 2 or width % 2:
            shifted = F.pad(hidden, (0, width % 2, 0, height % 2))
        return self.bn(torch.cat([self.conv_1(hidden), self.conv_2(shifted[:, :, 1:, 1:])], dim=1))


class Subsample(nn.Module):
    """Every second row and column."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, C, H, W] → [N, C, ⌈H/2⌉, ⌈W/2⌉]."""
        return inputs[:, :, ::2, ::2]


class SqueezeExcite(nn.Module):
    """Channels scaled by what two linear layers make of their means.

    Args:
        channels: Channels of input and output.
        stride: 2 keeps every second row and column of the result.
    """

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.fc1 = nn.Linear(channels, channels // 2)
        self.fc2 = nn.Linear(channels // 2, channels)

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, C, H, W] → [N, C, ⌈H/stride⌉, ⌈W/stride⌉]."""
        gate = F.hardswish(self.fc2(F.relu(self.fc1(inputs.mean(dim=(2, 3))))))
        scaled = inputs * gate[:, :, None, None]
        return scaled if self.stride == 1 else scaled[:, :, :: self.stride, :: self.stride]


class FeedForward(nn.Module):
    """Linear, GELU, linear; the names count the dropouts of the published module, which do nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(channels, channels), nn.GELU(), nn.Identity(), nn.Linear(channels, channels), nn.Identity()
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, T, C] → [N, T, C]."""
        return self.net(inputs)


class Transformer(nn.Module):
    """A pre-norm transformer layer over the pixels of an image.

    Args:
        channels: Channels of input and output, a multiple of the 8 heads.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.to_qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.to_out = nn.Sequential(nn.Linear(channels, channels))
        self.ln1 = nn.LayerNorm(channels)
        self.ln2 = nn.LayerNorm(channels)
        self.ff = FeedForward(channels)

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, C, H, W] → [N, C, H, W]."""
        tokens = inputs.flatten(2).transpose(1, 2)
        tokens = self.to_out(self._attend(self.ln1(tokens))) + tokens
        tokens = self.ff(self.ln2(tokens)) + tokens
        return tokens.transpose(1, 2).reshape(inputs.shape)

    def _attend(self, tokens: Tensor) -> Tensor:
        count, length, channels = tokens.shape
        heads = self.to_qkv(tokens).reshape(count, length, 3, HEADS, channels // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        return mixed.transpose(1, 2).reshape(count, length, channels)


class PositionEncoding(nn.Module):
    """A learned number added to every channel of every patch.

    Args:
        channels: Channels.
        size: Patches along a side.
    """

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, channels, size, size))

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, C, size, size] → the same."""
        return inputs + self.weight


def operation(name: str, channels: int, stride: int, norms: Norms) -> nn.Module:
    """The module of one of `genotype.OPERATIONS`.

    Args:
        name: Its name.
        channels: Channels of input and output.
        stride: 1 or 2.
        norms: Makes the norms.

    Examples:
        >>> operation("sep_conv_3x3", 8, 2, Norms("bn"))(torch.zeros(2, 8, 7, 7)).shape
        torch.Size([2, 8, 4, 4])
    """
    kernel, kind = KERNELS[name], name.split("_")[0]
    if name == "none":
        return nn.Identity()  # a place in the list; never called
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else FactorizedReduce(channels, channels, norms)
    if kind == "max":
        return nn.MaxPool2d(kernel, stride=stride, padding=kernel // 2)
    if kind == "avg":
        return nn.AvgPool2d(kernel, stride=stride, padding=kernel // 2, count_include_pad=False)
    if kind == "msa":
        return Transformer(channels)
    if kind == "cse":
        return SqueezeExcite(channels, stride)
    if name == "conv_7x1_1x7":
        across = nn.Conv2d(channels, channels, (1, 7), stride=(1, stride), padding=(0, 3), bias=False)
        down = nn.Conv2d(channels, channels, (7, 1), stride=(stride, 1), padding=(3, 0), bias=False)
        return Convolutions(nn.ReLU(), across, down, norms(channels))
    if kind == "conv":
        return Convolutions(nn.ReLU(), convolution(channels, channels, kernel, stride), norms(channels))
    first = _depthwise(channels, kernel, stride, 2 if kind == "dil" else 1, norms)
    return Convolutions(*first) if kind == "dil" else Convolutions(*first, *_depthwise(channels, kernel, 1, 1, norms))


def _depthwise(channels: int, kernel: int, stride: int, dilation: int, norms: Norms) -> list[nn.Module]:
    """ReLU, a depthwise convolution, a 1 × 1 convolution, norm."""
    depthwise = convolution(channels, channels, kernel, stride, dilation=dilation, groups=channels)
    return [nn.ReLU(), depthwise, convolution(channels, channels, 1), norms(channels)]
