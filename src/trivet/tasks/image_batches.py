"""The batches of image classification, and what evaluates on the test images; here for images in memory.

Images stay uint8; a batch becomes float on the fly: minus the mean of the training images and over their standard
deviation, a channel at a time. `image_stream` has the variant for pictures that are decoded when a step needs them.

Not covered: several labels an image, test-time augmentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import ConfigError, Problem
from trivet.core.seeding import derive
from trivet.tasks.data import ImageData
from trivet.tasks.data.select import hash_ranked
from trivet.tasks.image_classification_config import ImageClassificationConfig
from trivet.training.batches import BatchOrder, augment
from trivet.training.config import TrainingConfig
from trivet.training.ranks import own_part

EVALUATION_BATCH = 250
"""Images evaluated at a time (fits the caches of a CPU); changes the last bits of `test_loss`, so it is fixed."""


class Pictures(Protocol):
    """What gives the uint8 images of a step and of the test."""

    num_test: int
    statistics: tuple[Tensor, Tensor]
    """Mean and standard deviation of each channel, [1, C, 1, 1]."""

    def drawn(self, step: int) -> tuple[Tensor, Tensor]:
        """Images of this process's part of a step's batch, changed at random, and their labels."""
        ...

    def test_parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Test images and labels, `EVALUATION_BATCH` at a time."""
        ...


class Batches:
    """Normalized batches, and the metrics of the test images."""

    def __init__(self, pictures: Pictures, *, channels_last: bool) -> None:
        self.pictures = pictures
        self.mean, self.deviation = pictures.statistics
        self.layout = torch.channels_last if channels_last else torch.contiguous_format

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Normalized images [B, C, H, W] and labels [B] of this process's part of a step's batch."""
        images, labels = self.pictures.drawn(step)
        return self.normalize(images), labels

    def normalize(self, images: Tensor) -> Tensor:
        """Float images of mean 0 and standard deviation 1 over the training images, in the layout asked for."""
        return ((images.float() - self.mean) / self.deviation).contiguous(memory_format=self.layout)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Share of the test images that are right, and mean cross-entropy."""
        device = self.mean.device
        right = torch.zeros((), dtype=torch.int64, device=device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        for images, labels in self.pictures.test_parts():
            logits = model(self.normalize(images)).float()
            right += (logits.argmax(1) == labels).sum()
            total += F.cross_entropy(logits, labels, reduction="none").double().sum()
        count = self.pictures.num_test
        return {"test_accuracy": right.item() / count, "test_loss": total.item() / count}


class InMemory:
    """Images on the device; see `Pictures`."""

    def __init__(
        self,
        data: ImageData,
        task: ImageClassificationConfig,
        training: TrainingConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        chosen = subset(len(data.train_labels), task.train_examples)
        train = data.train_images[chosen]
        check_batch(training.batch_size, len(train))
        self.train_images = _in_plain_order(train).to(device)
        self.train_labels = torch.from_numpy(data.train_labels[chosen]).to(device)
        self.test_images = _in_plain_order(data.test_images).to(device)
        self.test_labels = torch.from_numpy(data.test_labels).to(device)
        self.num_test = len(data.test_labels)
        mean, deviation = channel_statistics(train)
        self.statistics = mean.to(device), deviation.to(device)
        self.augment, self.seed = task.augment, seed
        self.order = BatchOrder(
            num_examples=len(train), batch_size=training.batch_size, seed=derive(seed, "batches"), device=device
        )

    def drawn(self, step: int) -> tuple[Tensor, Tensor]:
        """See `Pictures`."""
        chosen = self.order.indices(step)
        images = augment(
            self.train_images[chosen], shift=self.augment.shift, flip=self.augment.flip, seed=self.seed, step=step
        )
        images, labels = own_part(images, self.train_labels[chosen])
        return images, labels

    def test_parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Pictures`."""
        yield from zip(self.test_images.split(EVALUATION_BATCH), self.test_labels.split(EVALUATION_BATCH), strict=True)


def check_batch(batch_size: int, available: int) -> None:
    """Raise `ConfigError` where a batch is larger than the data."""
    if batch_size > available:
        allowed = f"at most {available}, the number of training examples"
        raise ConfigError([Problem("", "training.batch_size", str(batch_size), allowed)])


def subset(available: int, wanted: int) -> np.ndarray:
    """Positions of the training examples that are used: the same for every seed."""
    if wanted > available:
        allowed = f"at most {available}, or 0 for all"
        raise ConfigError([Problem("", "task.train_examples", str(wanted), allowed)])
    everything = np.arange(available)
    return np.sort(hash_ranked(everything, "train_examples")[:wanted]) if wanted else everything


def _in_plain_order(images: np.ndarray) -> Tensor:
    """Images with the strides of a fresh NCHW tensor.

    One channel stored last counts as contiguous with stride 1, and torch 2.14 on CPU then corrupts memory in the
    backward pass of narrow convolutions.
    """
    return torch.from_numpy(images).clone(memory_format=torch.contiguous_format)


def channel_statistics(images: np.ndarray) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, from exact integer sums.

    Args:
        images: uint8 [N, C, H, W].

    Returns:
        Two float32 tensors [1, C, 1, 1] in units of pixel values (0 to 255); a constant channel gets deviation 1.

    Examples:
        >>> mean, deviation = channel_statistics(np.array([[[[0, 2]]]], dtype=np.uint8))
        >>> mean.item(), deviation.item()
        (1.0, 1.0)
    """
    return statistics_of(channel_counts(images[start : start + 4096]) for start in range(0, len(images), 4096))


def channel_counts(images: np.ndarray) -> np.ndarray:
    """How often each value occurs in each channel of uint8 [N, C, H, W]: int64 [C, 256]."""
    return np.stack([np.bincount(images[:, i].ravel(), minlength=256) for i in range(images.shape[1])])


def statistics_of(parts: Iterable[np.ndarray]) -> tuple[Tensor, Tensor]:
    """What `channel_statistics` gives, from the `channel_counts` of parts of the images, one at a time in memory."""
    means: list[float] = []
    deviations: list[float] = []
    values = np.arange(256, dtype=np.int64)
    for channel in reduce(np.add, parts):
        number = int(channel.sum())
        first, second = int(channel @ values), int(channel @ values**2)
        mean = first / number
        variance = (second * number - first * first) / number**2
        means.append(mean)
        deviations.append(variance**0.5 or 1.0)
    shape = (1, -1, 1, 1)
    return torch.tensor(means, dtype=torch.float32).view(shape), torch.tensor(deviations, dtype=torch.float32).view(
        shape
    )
