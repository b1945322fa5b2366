"""A hypernetwork of a few hundred numbers, networks and images that it learns in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from trivet.ghn.meta.config import MetaDataConfig
from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.skeleton import Skeleton

WIDTH = 256


class TinyHypernetwork(nn.Module):
    """Reads nothing but the place of a parameter in its network."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.place = nn.Parameter(torch.randn(8, 16, generator=generator))
        self.out = nn.Parameter(torch.randn(16, WIDTH, generator=generator) / 4)

    def forward(self, networks: Sequence[TinyNetwork]) -> list[dict[str, Tensor]]:
        rows = self.place @ self.out
        found = []
        for network in networks:
            shapes = network.skeleton.shapes
            sizes = [(name, torch.Size(shape)) for name, shape in shapes.items()]
            found.append(
                {
                    name: rows[place].repeat(-(-size.numel() // WIDTH))[: size.numel()].view(size)
                    for place, (name, size) in enumerate(sizes)
                }
            )
        return found


@dataclass(frozen=True)
class TinyNetwork:
    skeleton: Skeleton


def tiny_predict(module: nn.Module, networks: Sequence[TinyNetwork]) -> list[dict[str, Tensor]]:
    return module(networks)


def make_module(width: int, *, norm: bool = True, dropout: float = 0.0) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, stride=2)]
    layers += [nn.BatchNorm2d(width)] if norm else []
    layers += [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(width, 4)]
    return nn.Sequential(*layers)


def make_network(width: int, *, norm: bool = True, dropout: float = 0.0) -> TinyNetwork:
    return TinyNetwork(Skeleton(make_module(width, norm=norm, dropout=dropout), dropout=bool(dropout)))


@pytest.fixture(scope="session")
def tiny_images() -> Images:
    """Four classes: a bright block at one of four places."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(320) % 4
    pixels = torch.randint(100, (320, 1, 12, 12), generator=generator, dtype=torch.uint8)
    for label in range(4):
        pixels[labels == label, :, 3 * label : 3 * label + 3] += 120
    split = Split(pixels, labels)
    return Images(split, split, MetaDataConfig(image_size=12, channels=1, validation_images=64))


@pytest.fixture
def tiny_networks() -> list[TinyNetwork]:
    return [make_network(8), make_network(16, norm=False), make_network(24)]


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """What the tests build from: `hypernetwork()`, `network(width, …)`, `module(width, …)` and `predict`."""
    return SimpleNamespace(
        hypernetwork=TinyHypernetwork, network=make_network, module=make_module, predict=tiny_predict
    )
