"""A network as a plain description: its digest, parameters and multiply-accumulates without building it, and `build`.

`Architecture` is what `DeepNets` hands out. It comes in two kinds, `CellArchitecture` (cells of a genotype, stacked)
and `ResNet50Architecture`; both are frozen dataclasses of plain values, so they are hashable, can be sent to other
processes and written to JSON.

Not covered: auxiliary heads and stochastic depth of the published builder, which only its training of the networks
used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from trivet.core.config import build, digest
from trivet.core.errors import unknown_name
from trivet.ghn.deepnets.genotype import DARTS, VIT, Genotype
from trivet.ghn.deepnets.tensors import HEADS, Ledger, TensorSpec, Totals, reductions, walk, walk_resnet50
from trivet.ghn.deepnets.wiring import wiring

if TYPE_CHECKING:
    from torch import nn

STEMS = ("simple", "imagenet", "patch")
NORMS = ("bn", "none")
SMALLEST = 8
"""Smallest height and width of an image."""


class Architecture(ABC):
    """A description of a network.

    Examples:
        >>> net = Architecture.from_dict(DARTS_NETWORK.to_dict())
        >>> net == DARTS_NETWORK, net.num_parameters(), net.digest
        (True, 919722, '3ed01aa23cde')
    """

    __slots__ = ()
    family: str

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the kind under "family"; `from_dict` takes them back."""

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Architecture:
        """The architecture that `to_dict` wrote.

        Raises:
            ValueError: An unknown kind, unknown or missing values, or values that make no network; all of them at once.
        """
        family = plain.get("family", "cells")
        if family not in _FAMILIES:
            raise ValueError(unknown_name("family of architectures", str(family), _FAMILIES))
        return _FAMILIES[family]._from_plain({key: value for key, value in plain.items() if key != "family"})

    @classmethod
    @abstractmethod
    def _from_plain(cls, plain: dict[str, Any]) -> Architecture: ...

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that tell this description from others, the same on every machine."""
        return digest(self.to_dict())

    def tensors(self, num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> tuple[TensorSpec, ...]:
        """Every parameter tensor in the order of `named_parameters()`.

        Raises:
            ValueError: A number of classes or channels below 1, or images smaller than 8 × 8.
        """
        _check_input(num_classes, in_channels, image_size)
        return tuple(self._walk(num_classes, in_channels, image_size, lists=True).tensors)

    def totals(self, num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Totals:
        """Parameters, multiply-accumulates and activations of one image's forward pass, all at once.

        Raises:
            ValueError: As `tensors`.

        Examples:
            >>> DARTS_NETWORK.totals()
            Totals(parameters=919722, macs=159765504, activations=3047434)
        """
        _check_input(num_classes, in_channels, image_size)
        return self._walk(num_classes, in_channels, image_size, lists=False).totals

    def num_parameters(self, num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> int:
        """Numbers in all parameter tensors, unused ones included.

        Raises:
            ValueError: As `tensors`.
        """
        return self.totals(num_classes, in_channels, image_size).parameters

    def macs(self, num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> int:
        """Multiply-accumulates of one image's forward pass: convolutions, linear layers and attention.

        Raises:
            ValueError: As `tensors`.
        """
        return self.totals(num_classes, in_channels, image_size).macs

    def activations(self, num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> int:
        """Numbers that convolutions and linear layers put out in one image's forward pass.

        A measure of memory, and, beside the multiply-accumulates, of time: norms and activation functions take as long
        as there are numbers, and small networks spend most of it there.

        Raises:
            ValueError: As `tensors`.
        """
        return self.totals(num_classes, in_channels, image_size).activations

    @abstractmethod
    def _walk(self, num_classes: int, in_channels: int, image_size: int, *, lists: bool) -> Ledger: ...

    def build(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        *,
        running_statistics: bool = False,
    ) -> nn.Module:
        """The network, freshly initialised from torch's generator as torch's layers are by default.

        Args:
            num_classes: Outputs.
            in_channels: Channels of the images.
            image_size: Height and width of the images. From 64 on the stem is the one for ImageNet. Networks with
                attention or without global average pooling take images of this size alone.
            running_statistics: Whether batch norms keep running statistics for `eval()`. The published networks do
                not: they use each batch's own, in training and after.

        Returns:
            A module that maps images [N, in_channels, image_size, image_size] to logits [N, num_classes]. Under
            `with torch.device("meta"):` it is built without memory and in a fraction of the time.

        Raises:
            ValueError: As `tensors`.

        Examples:
            >>> import torch
            >>> DARTS_NETWORK.build(in_channels=1, image_size=28)(torch.zeros(2, 1, 28, 28)).shape
            torch.Size([2, 10])
        """
        _check_input(num_classes, in_channels, image_size)
        return self._build(num_classes, in_channels, image_size, running_statistics)

    @abstractmethod
    def _build(self, num_classes: int, in_channels: int, image_size: int, running_statistics: bool) -> nn.Module: ...


def _check_input(num_classes: int, in_channels: int, image_size: int) -> None:
    for name, value, least in (
        ("num_classes", num_classes, 1),
        ("in_channels", in_channels, 1),
        ("image_size", image_size, SMALLEST),
    ):
        if value < least:
            raise ValueError(f"`{name}={value}` must be ≥ {least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellArchitecture(Architecture):
    """A stem, cells of a genotype one after the other, and a classifier.

    Each cell reads the outputs of the two before it. Those at one and two thirds are reduction cells: they multiply
    the channels and, but for networks with attention, halve the image.

    Examples:
        >>> CellArchitecture(genotype=DARTS, num_cells=8, channels=32, stem="patch")
        Traceback (most recent call last):
        ...
        ValueError: `stem='patch'` goes with attention and only with it, and this genotype has none; take 'simple' or
        'imagenet'
    """

    genotype: Genotype
    """The two cells."""
    num_cells: int
    """Cells, one after the other."""
    channels: int
    """Channels of the first cell's states; a multiple of 8 for attention, else even."""
    stem: str = "simple"
    """"simple" (one convolution), "imagenet" (three convolutions) or, for attention, "patch"."""
    kernel: int = 3
    """Width of the first convolution's kernel (not of patches)."""
    stem_pool: bool = False
    """Whether a max-pooling of stride 2 ends the simple stem."""
    large_stride: int = 4
    """Stride of the simple stem on images from 64 × 64."""
    norm: str = "bn"
    """"bn" or "none"."""
    preprocess: bool = True
    """Whether 1 × 1 convolutions bring both inputs of every cell to its channels."""
    channel_multiplier: int = 2
    """What reduction cells multiply the channels by."""
    fc_layers: int = 1
    """Linear layers of the classifier."""
    fc_dim: int = 256
    """Width between them."""
    global_average: bool = True
    """Whether the image is averaged before the classifier, or flattened."""

    family = "cells"

    def __post_init__(self) -> None:
        _check_names(self)
        _check_counts(self)
        states = max(len(self.genotype.normal_concat), len(self.genotype.reduce_concat))
        if not self.preprocess and (states > 1 or self.channel_multiplier > 1):
            raise ValueError(
                "`preprocess=False` needs cells of one concatenated state and `channel_multiplier=1`, got "
                f"{states} and {self.channel_multiplier}; take `preprocess=True`"
            )
        if wiring(self.genotype, reductions(self.num_cells)) is None:
            raise ValueError("disconnected: no path of operations leads to the output; replace some of 'none'")

    @property
    def is_transformer(self) -> bool:
        """Whether there is attention in a cell: then images are cut into patches and keep their size."""
        return self.genotype.has("msa")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the kind under "family"; `from_dict` takes them back."""
        plain: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"family": self.family, **plain, "genotype": self.genotype.to_dict()}

    @classmethod
    def _from_plain(cls, plain: dict[str, Any]) -> CellArchitecture:
        return build(cls, plain)

    def _walk(self, num_classes: int, in_channels: int, image_size: int, *, lists: bool) -> Ledger:
        return walk(self, num_classes, in_channels, image_size, lists=lists)

    def _build(self, num_classes: int, in_channels: int, image_size: int, running_statistics: bool) -> nn.Module:
        from trivet.ghn.deepnets.network import CellNetwork

        return CellNetwork(self, num_classes, in_channels, image_size, running_statistics=running_statistics)


def _check_names(network: CellArchitecture) -> None:
    if network.stem not in STEMS:
        raise ValueError(unknown_name("stem", network.stem, STEMS))
    if network.norm not in NORMS:
        raise ValueError(unknown_name("norm", network.norm, NORMS))
    if (network.stem == "patch") != network.is_transformer:
        has, fix = ("has it", "'patch'") if network.is_transformer else ("has none", "'simple' or 'imagenet'")
        raise ValueError(
            f"`stem={network.stem!r}` goes with attention and only with it, and this genotype {has}; take {fix}"
            if network.stem == "patch"
            else f"`stem={network.stem!r}` does not go with attention, and this genotype {has}; take {fix}"
        )
    if network.stem_pool and network.stem != "simple":
        raise ValueError(f"`stem_pool=True` needs `stem='simple'`, got {network.stem!r}; take `stem_pool=False`")


def _check_counts(network: CellArchitecture) -> None:
    for name in ("num_cells", "channel_multiplier", "fc_layers", "fc_dim", "large_stride"):
        if getattr(network, name) < 1:
            raise ValueError(f"`{name}={getattr(network, name)}` must be ≥ 1")
    if network.kernel < 1 or network.kernel % 2 == 0:
        raise ValueError(f"`kernel={network.kernel}` must be odd, so that it has a centre; take 3, 5 or 7")
    step = HEADS if network.is_transformer else 2
    if network.channels < step or network.channels % step:
        raise ValueError(
            f"`channels={network.channels}` must be a multiple of {step}"
            + (", one share for each attention head" if step == HEADS else "")
            + f"; take {max(step, round(network.channels / step) * step)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet50Architecture(Architecture):
    """ResNet-50 (He, Zhang, Ren, Sun 2016, arXiv:1512.03385) with torchvision's parameter names.

    On images below 64 × 64 the first convolution is 3 × 3 with stride 1 and no pooling follows it.

    Examples:
        >>> ResNet50Architecture().num_parameters(), ResNet50Architecture().num_parameters(1000, image_size=224)
        (23520842, 25557032)
    """

    family = "resnet50"

    def to_dict(self) -> dict[str, Any]:
        """The kind alone: there is nothing to choose."""
        return {"family": self.family}

    @classmethod
    def _from_plain(cls, plain: dict[str, Any]) -> ResNet50Architecture:
        if plain:
            raise ValueError(f"family 'resnet50' has no fields; remove {', '.join(map(repr, plain))}")
        return cls()

    def _walk(self, num_classes: int, in_channels: int, image_size: int, *, lists: bool) -> Ledger:
        return walk_resnet50(num_classes, in_channels, image_size, lists=lists)

    def _build(self, num_classes: int, in_channels: int, image_size: int, running_statistics: bool) -> nn.Module:
        from trivet.ghn.deepnets.resnet import BottleneckNetwork

        return BottleneckNetwork(num_classes, in_channels, image_size, running_statistics=running_statistics)


_FAMILIES: dict[str, type[Architecture]] = {"cells": CellArchitecture, "resnet50": ResNet50Architecture}

DARTS_NETWORK = CellArchitecture(genotype=DARTS, num_cells=8, channels=32)
"""Eight cells of DARTS with 32 channels."""

VIT_NETWORK = CellArchitecture(
    genotype=VIT, num_cells=12, channels=128, stem="patch", preprocess=False, channel_multiplier=1
)
"""The vision transformer of DeepNets-1M."""
