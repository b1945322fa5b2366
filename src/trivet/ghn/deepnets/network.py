"""The network of a `CellArchitecture`, with the parameter names of DeepNets-1M's builder.

What reaches no output is built, so that names and shapes are the published ones, but not computed; see `wiring`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trivet.ghn.deepnets.operations import (
    Convolutions,
    FactorizedReduce,
    Norms,
    PositionEncoding,
    Subsample,
    convolution,
    operation,
)
from trivet.ghn.deepnets.tensors import LARGE, patches, reductions, stem_channels, walk
from trivet.ghn.deepnets.wiring import CellWiring, wiring

if TYPE_CHECKING:
    from trivet.ghn.deepnets.architecture import CellArchitecture
    from trivet.ghn.deepnets.genotype import Genotype


class Cell(nn.Module):
    """One cell.

    Args:
        genotype: The two cells.
        reduction: Which of the two.
        parts: What of it is computed.
        inputs: Channels of its two inputs; 0, 0 for a cell that takes them as they are.
        channels: Channels of its states.
        strides: Strides with which the first input is taken in and operations work on states 0 and 1.
        norms: Makes the norms.
    """

    def __init__(
        self,
        genotype: Genotype,
        reduction: bool,
        parts: CellWiring,
        *,
        inputs: tuple[int, int],
        channels: int,
        strides: tuple[int, int],
        norms: Norms,
    ) -> None:
        super().__init__()
        operations, self._concat = genotype.cell(reduction)
        self._states = [state for _, state in operations]
        self._parts = parts
        first = Subsample() if strides[0] == 2 else nn.Identity()
        self.preprocess0: nn.Module = first
        self.preprocess1: nn.Module = nn.Identity()
        if inputs != (0, 0):
            self.preprocess0 = _pointwise(inputs[0], channels, norms)
            if strides[0] == 2:
                self.preprocess0 = FactorizedReduce(inputs[0], channels, norms)
            self.preprocess1 = _pointwise(inputs[1], channels, norms)
        self._ops = nn.ModuleList(
            operation(name, channels, strides[1] if state < 2 else 1, norms) for name, state in operations
        )

    def forward(self, first: Tensor | None, second: Tensor | None) -> Tensor | None:
        """Outputs of the cell before the previous one and of the previous one → output; None where it is absent."""
        if not self._parts.runs:
            return None
        states: list[Tensor | None] = [None, None]
        if self._parts.inputs[0]:
            states[0] = self.preprocess0(first)
        if self._parts.inputs[1]:
            states[1] = self.preprocess1(second)
        for step in range(len(self._ops) // 2):
            positions = (2 * step, 2 * step + 1)
            terms = [self._ops[i](states[self._states[i]]) for i in positions if self._parts.operations[i]]
            states.append(sum(terms[1:], terms[0]) if terms else None)
        found = [
            states[state] if there else None for state, there in zip(self._concat, self._parts.states, strict=True)
        ]
        present = next(state for state in found if state is not None)
        return torch.cat([torch.zeros_like(present) if state is None else state for state in found], dim=1)


def _pointwise(inputs: int, outputs: int, norms: Norms) -> Convolutions:
    return Convolutions(nn.ReLU(), convolution(inputs, outputs, 1), norms(outputs))


def _cells(net: CellArchitecture, stem_width: int, norms: Norms) -> list[Cell]:
    flags = reductions(net.num_cells)
    wired = wiring(net.genotype, flags)
    if wired is None:  # refused by the architecture itself
        raise ValueError("disconnected: no path of operations leads to the output; replace some of 'none'")
    shrinks = net.stem != "patch"
    width, channels, after_reduction = net.channels, (stem_width, stem_width), net.stem == "imagenet"
    cells: list[Cell] = []
    for reduction, parts in zip(flags, wired, strict=True):
        width *= net.channel_multiplier if reduction else 1
        cells.append(
            Cell(
                net.genotype,
                reduction,
                parts,
                inputs=channels if net.preprocess else (0, 0),
                channels=width,
                strides=(2 if after_reduction and shrinks else 1, 2 if reduction and shrinks else 1),
                norms=norms,
            )
        )
        channels = (channels[1], len(net.genotype.cell(reduction)[1]) * width)
        after_reduction = reduction
    return cells


def _features(net: CellArchitecture, num_classes: int, in_channels: int, image_size: int) -> int:
    """Inputs of the classifier, as the count of tensors has them."""
    tensors = walk(net, num_classes, in_channels, image_size).tensors
    return next(tensor.shape[1] for tensor in tensors if tensor.name == "classifier.0.weight")


class CellNetwork(nn.Module):
    """A stem, cells and a classifier.

    Args:
        architecture: What to build.
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Their height and width.
        running_statistics: Whether batch norms keep running statistics.

    Examples:
        >>> from trivet.ghn.deepnets.architecture import VIT_NETWORK
        >>> net = CellNetwork(VIT_NETWORK, 10, 3, 32)
        >>> net(torch.zeros(1, 3, 32, 32)).shape, net.pos_enc.weight.shape
        (torch.Size([1, 10]), torch.Size([1, 128, 11, 11]))
    """

    def __init__(
        self,
        architecture: CellArchitecture,
        num_classes: int,
        in_channels: int,
        image_size: int,
        *,
        running_statistics: bool = False,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        norms = Norms(architecture.norm, running_statistics)
        channels = self._make_stem(architecture, in_channels, image_size, norms)
        self.cells = nn.ModuleList(_cells(architecture, channels, norms))
        if architecture.global_average:
            self.global_pooling = nn.AdaptiveAvgPool2d(1)
        features = _features(architecture, num_classes, in_channels, image_size)
        widths = [features, *[architecture.fc_dim] * (architecture.fc_layers - 1), num_classes]
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [*([nn.ReLU(), nn.Dropout(0.5)] if layers else []), nn.Linear(inputs, outputs)]
        self.classifier = nn.Sequential(*layers)

    def _make_stem(self, net: CellArchitecture, in_channels: int, image_size: int, norms: Norms) -> int:
        """Add the stem's modules; the channels that leave it."""
        large, width = image_size >= LARGE, net.channels
        stride = 2 if large else 1
        if net.stem == "patch":
            kernel, padding = (16, 0) if large else (3, 1)
            self.stem0 = nn.Conv2d(in_channels, width, kernel, stride=kernel, padding=padding, bias=False)
            self.pos_enc = PositionEncoding(width, patches(image_size))
        elif net.stem == "imagenet":
            self.stem0 = nn.Sequential(
                convolution(in_channels, width // 2, net.kernel, stride),
                norms(width // 2),
                nn.ReLU(),
                convolution(width // 2, width, 3, stride),
                norms(width),
            )
            self.stem1 = nn.Sequential(nn.ReLU(), convolution(width, width, 3, 2), norms(width))
        else:
            width = stem_channels(net, large)
            self.stem = nn.Sequential(
                convolution(in_channels, width, net.kernel, net.large_stride if large else 1),
                norms(width),
                nn.MaxPool2d(3, stride=2, padding=1) if net.stem_pool else nn.Identity(),
            )
        return width

    def forward(self, images: Tensor) -> Tensor:
        """[N, in_channels, H, W] → logits [N, num_classes]."""
        kind = self.architecture.stem
        first: Tensor | None
        second: Tensor | None
        if kind == "patch":
            first = second = self.pos_enc(self.stem0(images))
        elif kind == "imagenet":
            first = self.stem0(images)
            second = self.stem1(first)
        else:
            first = second = self.stem(images)
        for cell in self.cells:
            first, second = second, cell(first, second)
        if second is None:
            raise RuntimeError("the last cell's output is absent; its wiring should have refused that")
        hidden = self.global_pooling(second) if self.architecture.global_average else second
        return self.classifier(torch.flatten(hidden, 1))
