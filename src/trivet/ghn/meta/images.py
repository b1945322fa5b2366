"""Images of a meta-training run: kept as bytes, made into batches as a pure function of (seed, step, place).

A batch is padded with zeros to the wanted size, grey is repeated to the wanted channels, and every channel is shifted
and scaled by the mean and deviation of the training images (before padding).

Not covered: images larger than the wanted size; data that does not fit in memory (`trivet.tasks.ghn_stream`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from trivet.core.errors import ConfigError, Problem
from trivet.ghn.meta.config import MetaDataConfig
from trivet.training.batches import BatchOrder, augment


@dataclass(frozen=True, slots=True)
class Split:
    """Images and their labels."""

    images: Tensor
    """uint8 [N, C, H, W]."""
    labels: Tensor
    """int64 [N]."""

    def head(self, count: int) -> Split:
        """The first `count`."""
        return Split(self.images[:count], self.labels[:count])


class Images:
    """Training, validation and test images of one data set, ready for networks.

    Args:
        train: Training images; the last `validation_images` of them are kept for validation.
        test: Test images.
        config: Size, channels, augmentation.
        seed: Of the run.
        device: Where the networks run.

    Raises:
        ConfigError: The images do not fit the configuration.

    Examples:
        >>> split = Split(torch.randint(256, (40, 1, 28, 28), dtype=torch.uint8), torch.arange(40) % 10)
        >>> images = Images(split, split, MetaDataConfig(validation_images=8))
        >>> batch, labels = images.batch(step=0, place=0, size=4, places=1)
        >>> batch.shape, len(images.validation.labels)
        (torch.Size([4, 3, 32, 32]), 8)
    """

    def __init__(
        self,
        train: Split,
        test: Split,
        config: MetaDataConfig,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        held_out = config.validation_images
        check_images(train.images.shape, test.images.shape, config)
        self._prepare_with(config, seed)
        self.train = Split(train.images[:-held_out].to(device), train.labels[:-held_out].to(device))
        self.validation = Split(train.images[-held_out:].to(device), train.labels[-held_out:].to(device))
        self.test = Split(test.images.to(device), test.labels.to(device))
        self.num_classes = int(max(train.labels.max(), test.labels.max())) + 1
        self._normalize_by(
            torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in _channels(self.train)])
        )

    def _prepare_with(self, config: MetaDataConfig, seed: int) -> None:
        self.config = config
        self.seed = seed
        self._orders: dict[int, BatchOrder] = {}

    def _normalize_by(self, histogram: Tensor) -> None:
        """Mean and deviation from how often each value occurs in each channel, [C, 256]."""
        share = histogram.double() / histogram.sum(1, keepdim=True)
        values = torch.arange(256, device=share.device).double() / 255
        mean = share @ values
        self._mean = mean.float().view(1, -1, 1, 1)
        self._deviation = (share @ values.square() - mean.square()).sqrt().clamp_min(1e-6).float().view(1, -1, 1, 1)

    @property
    def example(self) -> Tensor:
        """One image on the meta device, for building graphs: [1, C, H, W]."""
        return torch.empty(1, self.config.channels, self.config.image_size, self.config.image_size, device="meta")

    def batch(self, *, step: int, place: int, size: int, places: int) -> tuple[Tensor, Tensor]:
        """`size` training images for the network at `place` of a step that takes `places` different batches.

        Every training image is taken once before any is taken again.
        """
        number = step * places + place
        chosen = self._chosen(size, number)
        return self._changed(self.train.images[chosen], number), self.train.labels[chosen]

    def _chosen(self, size: int, number: int) -> Tensor:
        """Positions of the training images in a batch."""
        labels = self.train.labels
        if size not in self._orders:
            self._orders[size] = BatchOrder(
                num_examples=len(labels), batch_size=size, seed=self.seed, device=labels.device
            )
        return self._orders[size].indices(number)

    def _changed(self, images: Tensor, number: int) -> Tensor:
        """Moved and mirrored at random, and prepared."""
        config = self.config
        return self.prepare(augment(images, shift=config.shift, flip=config.flip, seed=self.seed, step=number))

    def prepare(self, images: Tensor) -> Tensor:
        """Bytes [N, C, H, W] as networks take them: float32 [N, channels, image_size, image_size]."""
        height, width = images.shape[2:]
        down, right = self.config.image_size - height, self.config.image_size - width
        padded = functional.pad(images, (right // 2, right - right // 2, down // 2, down - down // 2))
        values = (padded.float() / 255 - self._mean) / self._deviation
        return values.expand(-1, self.config.channels, -1, -1).contiguous()


def _channels(split: Split) -> Tensor:
    return split.images.transpose(0, 1)


def check_images(train: Sequence[int], test: Sequence[int], config: MetaDataConfig) -> None:
    """Refuse images, [N, C, H, W], that do not fit the configuration; `Images` says how."""
    count, channels, height, width = train
    problems = []
    if channels not in (1, config.channels):
        found = f"{config.channels}, with images of {channels} channels"
        problems.append(Problem("", "data.channels", found, str(channels)))
    if max(height, width) > config.image_size:
        found = f"{config.image_size}, with images of {height} × {width} pixels"
        problems.append(Problem("", "data.image_size", found, f"{max(height, width)} or more"))
    if config.validation_images >= count:
        found = f"{config.validation_images}, of {count} training images"
        problems.append(Problem("", "data.validation_images", found, f"at most {count - 1}"))
    if test[1:] != train[1:]:
        raise ValueError("training and test images differ in shape; give images of one data set")
    if problems:
        raise ConfigError(problems)
