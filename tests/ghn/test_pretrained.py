"""The hypernetwork that comes with the package."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trivet.core.config import build, load_yaml
from trivet.ghn import GHN, init_
from trivet.ghn.folder import SHIPPED, names
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.rules import pool
from trivet.models import resnet8, resnet20
from trivet.tasks.data import load_images
from trivet.tasks.image_batches import channel_statistics

NAME = "fashion-small"


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """With batch statistics in batch normalisation, batches of 64."""
    model.train()
    with torch.no_grad():
        right = [model(part).argmax(1) == truth for part, truth in zip(images.split(64), labels.split(64), strict=True)]
    return torch.cat(right).float().mean().item()


def test_it_is_complete_and_small() -> None:
    assert NAME in names()
    folder = SHIPPED / NAME
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(words in card for words in ("## Training log", "## Recipe", "Licence of the data: MIT", "| all |"))
    config = build(MetaConfig, load_yaml(folder / "recipe.yaml"))
    assert GHN.from_pretrained(NAME).config == config.ghn


@pytest.fixture(scope="module")
def clothes() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_images("fashion-mnist")
    mean, deviation = channel_statistics(data.train_images)
    images = (torch.from_numpy(data.test_images[:512].copy()).float() - mean) / deviation
    return images, torch.from_numpy(data.test_labels[:512])


def test_unseen_networks_of_its_kind_work_untrained(clothes: tuple[torch.Tensor, torch.Tensor]) -> None:
    images, labels = clothes
    rules = build(MetaConfig, load_yaml(SHIPPED / NAME / "recipe.yaml")).pool
    found = []
    for entry in pool("test", rules, 4, in_channels=1, image_size=28):
        model = entry.architecture.build(10, 1, 28)
        init_(model, NAME, images[:1])
        found.append(accuracy(model, images, labels))
    assert sum(found) / 4 > 0.7


def test_residual_networks_which_are_of_another_kind_begin_far_above_chance(
    clothes: tuple[torch.Tensor, torch.Tensor],
) -> None:
    images, labels = clothes
    for make in (resnet8, resnet20):
        torch.manual_seed(0)
        model = make(in_channels=1)
        random = accuracy(model, images, labels)
        report = init_(model, NAME, images[:1])
        assert report.coverage == 1.0
        assert accuracy(model, images, labels) > max(0.4, random + 0.25)
