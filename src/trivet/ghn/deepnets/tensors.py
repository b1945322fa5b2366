"""Every parameter tensor of a network of cells and its multiply-accumulates, without building it.

The walk follows the network layer by layer with plain numbers: names as in `named_parameters()` and in that order,
shapes, and the multiply-accumulates (MACs) of one image's forward pass. With k × k kernels, i input and o output
channels, g groups and an output of h × w: a convolution has o · i / g · k² parameters and h · w times as many MACs; a
linear layer i · o (+ o) parameters and i · o MACs a position; attention over n positions of width c another 2 · n² · c.
Norms, sums, pooling and activations count no MACs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trivet.ghn.deepnets.genotype import KERNELS
from trivet.ghn.deepnets.wiring import CellWiring, wiring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trivet.ghn.deepnets.architecture import CellArchitecture

HEADS = 8
"""Heads of an attention operation."""
RESNET50_BLOCKS = (3, 4, 6, 3)
"""Blocks of the four stages of a ResNet-50."""
LARGE = 64
"""Images of at least this size get the stems made for ImageNet."""


class TensorSpec(NamedTuple):
    """A parameter tensor.

    Examples:
        >>> TensorSpec("stem.0.weight", (96, 3, 3, 3), 2654208, True).size
        2592
    """

    name: str
    """Name in `named_parameters()`."""
    shape: tuple[int, ...]
    """Its shape."""
    macs: int
    """Multiply-accumulates of one image's forward pass that it takes part in; 0 when it is not used."""
    used: bool
    """Whether the network's output depends on it."""

    @property
    def size(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


@dataclass(slots=True)
class Totals:
    """Sums over a network."""

    parameters: int = 0
    """Numbers in all parameter tensors, unused ones included."""
    macs: int = 0
    """Multiply-accumulates of one image's forward pass."""
    activations: int = 0
    """Numbers that convolutions and linear layers put out in it."""


def reductions(num_cells: int) -> tuple[bool, ...]:
    """For every cell whether it is a reduction cell: those at one and two thirds are, never the first.

    Examples:
        >>> reductions(8)
        (False, False, True, False, False, True, False, False)
    """
    return tuple(cell > 0 and cell in (num_cells // 3, 2 * num_cells // 3) for cell in range(num_cells))


class Ledger:
    """The list of tensors under construction, and their totals.

    Args:
        norm: "bn" or "none".
        lists: Whether to keep the tensors; totals alone take a third of the time.
    """

    def __init__(self, norm: str, lists: bool = True) -> None:
        self.tensors: list[TensorSpec] = []
        self.totals = Totals()
        self._lists = lists
        self._has_norm = norm == "bn"

    def weight(self, name: str, shape: tuple[int, ...], positions: int = 0, used: bool = True) -> None:
        """A tensor of which every number is used once at each of `positions` places."""
        size = math.prod(shape)
        macs = size * positions if used else 0
        self.totals.parameters += size
        self.totals.macs += macs
        self.totals.activations += shape[0] * positions if used else 0
        if self._lists:
            self.tensors.append(TensorSpec(name, shape, macs, used))

    def norm(self, name: str, channels: int, used: bool = True, always: bool = False) -> None:
        """Scale and shift; nothing where the network has no norms, unless `always`."""
        if self._has_norm or always:
            self.weight(f"{name}.weight", (channels,), used=used)
            self.weight(f"{name}.bias", (channels,), used=used)

    def linear(self, name: str, inputs: int, outputs: int, positions: int = 1, used: bool = True) -> None:
        """A linear layer with bias."""
        self.weight(f"{name}.weight", (outputs, inputs), positions, used)
        self.weight(f"{name}.bias", (outputs,), used=used)


def walk(
    network: CellArchitecture, num_classes: int, in_channels: int, image_size: int, *, lists: bool = True
) -> Ledger:
    """All tensors of a network in the order of `named_parameters()`."""
    ledger = Ledger(network.norm, lists)
    flags = reductions(network.num_cells)
    wired = wiring(network.genotype, flags) or ()
    channels, size = _stem(ledger, network, wired, in_channels, image_size)
    width, after_reduction, shrinks = network.channels, network.stem == "imagenet", network.stem != "patch"
    for cell, (reduction, parts) in enumerate(zip(flags, wired, strict=True)):
        width *= network.channel_multiplier if reduction else 1
        place = _Place(f"cells.{cell}", width, channels, size, after_reduction and shrinks, reduction and shrinks)
        _cell(ledger, network, place, reduction, parts)
        channels = (channels[1], len(network.genotype.cell(reduction)[1]) * width)
        size = _strided(size, 2 if place.halves else 1)
        after_reduction = reduction
    features = channels[1] * (1 if network.global_average else size * size)
    _head(ledger, network, features, num_classes)
    return ledger


def _stem(
    ledger: Ledger, network: CellArchitecture, wired: Sequence[CellWiring], in_channels: int, image_size: int
) -> tuple[tuple[int, int], int]:
    """Channels of the two states that enter the first cell, and height and width of the second."""
    width, kernel, large = network.channels, network.kernel, image_size >= LARGE
    if network.stem == "patch":
        size = patches(image_size)
        side = 16 if large else 3
        ledger.weight("stem0.weight", (width, in_channels, side, side), size * size)
        ledger.weight("pos_enc.weight", (1, width, size, size))
        return (width, width), size
    if network.stem == "simple":
        out = stem_channels(network, large)
        size = _strided(image_size, network.large_stride if large else 1)
        ledger.weight("stem.0.weight", (out, in_channels, kernel, kernel), size * size)
        ledger.norm("stem.1", out)
        size = _strided(size, 2) if network.stem_pool else size
        return (out, out), size
    middle = _strided(image_size, 2 if large else 1)
    first = _strided(middle, 2 if large else 1)
    second = _strided(first, 2)
    used = wired[0].inputs[1] or any(parts.inputs[0] for parts in wired[1:2])
    ledger.weight("stem0.0.weight", (width // 2, in_channels, kernel, kernel), middle * middle)
    ledger.norm("stem0.1", width // 2)
    ledger.weight("stem0.3.weight", (width, width // 2, 3, 3), first * first)
    ledger.norm("stem0.4", width)
    ledger.weight("stem1.1.weight", (width, width, 3, 3), second * second, used)
    ledger.norm("stem1.2", width, used)
    return (width, width), second


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a cell stands."""

    name: str
    width: int
    """Channels of its states."""
    channels: tuple[int, int]
    """Of its two inputs."""
    size: int
    """Height and width of its states 0 and 1, after what halves the first."""
    halves_first: bool
    """Whether its first input comes in the size before a reduction."""
    halves: bool
    """Whether operations on states 0 and 1 have stride 2."""


def _cell(ledger: Ledger, network: CellArchitecture, place: _Place, reduction: bool, parts: CellWiring) -> None:
    area = place.size * place.size
    for position, used in enumerate(parts.inputs if network.preprocess else ()):
        name, inputs = f"{place.name}.preprocess{position}", place.channels[position]
        if position == 0 and place.halves_first:
            _factorized(ledger, name, inputs, place.width, area, used)
        else:
            ledger.weight(f"{name}.op.1.weight", (place.width, inputs, 1, 1), area, used)
            ledger.norm(f"{name}.op.2", place.width, used)
    after = _strided(place.size, 2 if place.halves else 1)
    operations, _ = network.genotype.cell(reduction)
    for position, ((operation, state), used) in enumerate(zip(operations, parts.operations, strict=True)):
        before = place.size if state < 2 else after
        strides = place.halves and state < 2
        _operation(ledger, f"{place.name}._ops.{position}", operation, place.width, (before, after, strides), used)


def _operation(ledger: Ledger, name: str, operation: str, width: int, sizes: tuple[int, int, bool], used: bool) -> None:
    """The tensors of one operation; `sizes` are those of its input and output, and whether its stride is 2."""
    kernel, kind = KERNELS[operation], operation.split("_")[0]
    before, after, strides = sizes
    area = after * after
    if operation == "skip_connect" and strides:
        _factorized(ledger, name, width, width, area, used)
    elif operation == "conv_7x1_1x7":
        ledger.weight(f"{name}.op.1.weight", (width, width, 1, kernel), before * after, used)
        ledger.weight(f"{name}.op.2.weight", (width, width, kernel, 1), area, used)
        ledger.norm(f"{name}.op.3", width, used)
    elif kind == "conv":
        ledger.weight(f"{name}.op.1.weight", (width, width, kernel, kernel), area, used)
        ledger.norm(f"{name}.op.2", width, used)
    elif kind in ("sep", "dil"):
        for first in (1, 5) if kind == "sep" else (1,):
            ledger.weight(f"{name}.op.{first}.weight", (width, 1, kernel, kernel), area, used)
            ledger.weight(f"{name}.op.{first + 1}.weight", (width, width, 1, 1), area, used)
            ledger.norm(f"{name}.op.{first + 2}", width, used)
    elif kind == "msa":
        _attention(ledger, name, width, before * before, used)
    elif kind == "cse":
        ledger.linear(f"{name}.fc1", width, width // 2, 1, used)
        ledger.linear(f"{name}.fc2", width // 2, width, 1, used)


def _factorized(ledger: Ledger, name: str, inputs: int, outputs: int, area: int, used: bool) -> None:
    """Two 1 × 1 convolutions of stride 2, one pixel apart, each making half of the channels."""
    for branch in ("conv_1", "conv_2"):
        ledger.weight(f"{name}.{branch}.weight", (outputs // 2, inputs, 1, 1), area, used)
    ledger.norm(f"{name}.bn", outputs, used)


def _attention(ledger: Ledger, name: str, width: int, tokens: int, used: bool) -> None:
    ledger.weight(f"{name}.to_qkv.weight", (3 * width, width), tokens, used)
    ledger.linear(f"{name}.to_out.0", width, width, tokens, used)
    ledger.norm(f"{name}.ln1", width, used, always=True)
    ledger.norm(f"{name}.ln2", width, used, always=True)
    ledger.linear(f"{name}.ff.net.0", width, width, tokens, used)
    ledger.linear(f"{name}.ff.net.3", width, width, tokens, used)
    ledger.totals.macs += 2 * tokens * tokens * width if used else 0


def _head(ledger: Ledger, network: CellArchitecture, features: int, num_classes: int) -> None:
    outputs = [network.fc_dim] * (network.fc_layers - 1) + [num_classes]
    for layer, (inputs, count) in enumerate(zip([features, *outputs], outputs, strict=False)):
        ledger.linear(f"classifier.{3 * layer}", inputs, count)


def stem_channels(network: CellArchitecture, large: bool) -> int:
    """Channels of the simple stem: three times the first cell's on small images, where 1 × 1 convolutions follow."""
    return network.channels * (3 if network.preprocess and not large else 1)


def walk_resnet50(num_classes: int, in_channels: int, image_size: int, *, lists: bool = True) -> Ledger:
    """All tensors of a ResNet-50 in the order of `named_parameters()`."""
    ledger = Ledger("bn", lists)
    large = image_size >= LARGE
    size = _strided(image_size, 2 if large else 1)
    ledger.weight("conv1.weight", (64, in_channels, *((7, 7) if large else (3, 3))), size * size)
    ledger.norm("bn1", 64)
    size, channels = _strided(size, 2 if large else 1), 64
    for stage, count in enumerate(RESNET50_BLOCKS):
        width, stride = 64 * 2**stage, 1 if stage == 0 else 2
        for block in range(count):
            name, before = f"layer{stage + 1}.{block}", size
            size = _strided(size, stride if block == 0 else 1)
            shapes = ((width, channels, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1))
            for layer, shape in enumerate(shapes, start=1):
                area = before * before if layer == 1 else size * size
                ledger.weight(f"{name}.conv{layer}.weight", shape, area)
                ledger.norm(f"{name}.bn{layer}", shape[0])
            if block == 0:
                ledger.weight(f"{name}.downsample.0.weight", (4 * width, channels, 1, 1), size * size)
                ledger.norm(f"{name}.downsample.1", 4 * width)
            channels = 4 * width
    ledger.linear("fc", channels, num_classes)
    return ledger


def patches(image_size: int) -> int:
    """Patches along one side of an image: 3 × 3 pixels each, 16 × 16 for large images.

    Examples:
        >>> patches(32), patches(224)
        (11, 14)
    """
    return image_size // 16 if image_size >= LARGE else _strided(image_size, 3)


def _strided(size: int, stride: int) -> int:
    return -(-size // stride)
