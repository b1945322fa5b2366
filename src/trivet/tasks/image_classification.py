"""Image classification: data, model, loss, metrics and normalisation of one run.

Images stay uint8 on the device; a batch becomes float on the fly: minus the mean of the training images and over their
standard deviation, a channel at a time. Loss: cross-entropy. Metrics on the test images: `test_accuracy` (fraction
right) and `test_loss` (mean cross-entropy), evaluated at the precision that the configuration declares (by default
the schedule's highest), never at the one of the moment.

Not covered: data larger than memory, several labels an image, test-time augmentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import ConfigError, Problem
from trivet.core.seeding import derive, seed_everything
from trivet.models.build import build_model
from trivet.tasks.config import RunConfig
from trivet.tasks.data import ImageData, load_images
from trivet.tasks.data.select import hash_ranked
from trivet.tasks.image_classification_config import ImageClassificationConfig
from trivet.tasks.initialize import initialize
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.training.batches import BatchOrder, augment
from trivet.training.config import TrainingConfig
from trivet.training.job import Job
from trivet.training.ranks import own_part

quantizes = None
"""Which layers compute at few bits: the default of `quantize_`."""

EVALUATION_BATCH = 250
"""Images evaluated at a time (fits the caches of a CPU); changes the last bits of `test_loss`, so it is fixed."""


def build_job(run: RunConfig, device: torch.device) -> Job:
    """Load the data, build the model, and say how to train and evaluate it.

    The initial parameters depend on the seed and the model alone, the batches on the seed and the data alone, so runs
    with one seed share both, whatever else differs.

    Args:
        run: A run of the task image-classification.
        device: Where it trains.

    Raises:
        ConfigError: The batch is larger than the data.
        MissingDataError: The data are not on this machine.
    """
    task, training = options_of(run, ImageClassificationConfig), run.training
    if training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    data = load_images(task.data)
    images = _Images(data, task, training, run.seed, device)
    seed_everything(derive(run.seed, "init"))
    model, example = _model(task, data, device)
    initial = initialize(run, model, example)
    precision = RunPrecision(run, model, example)
    seed_everything(derive(run.seed, "training"))

    def loss(forward: nn.Module, step: int) -> Tensor:
        inputs, labels = images.batch(step)
        return F.cross_entropy(forward(inputs), labels)

    def evaluate() -> Mapping[str, float]:
        with precision.evaluation():
            return images.evaluate(model)

    return Job(
        model=model, loss=loss, evaluate=evaluate, observe=precision.observe, steppers=precision.steppers, extra=initial
    )


def counted(run: RunConfig) -> tuple[nn.Module, Any]:
    """The model of a run and one example of its input, for counting multiply-accumulates."""
    task = options_of(run, ImageClassificationConfig)
    return _model(task, load_images(task.data), torch.device("cpu"))


def _model(task: ImageClassificationConfig, data: ImageData, device: torch.device) -> tuple[nn.Module, Tensor]:
    channels, height, width = data.image_shape
    model = build_model(
        task.model,
        num_classes=data.num_classes,
        in_channels=channels,
        image_size=(height, width),
        width=task.width,
    )
    return model.to(device), torch.zeros(1, channels, height, width, device=device)


def _in_plain_order(images: np.ndarray) -> Tensor:
    """Images with the strides of a fresh NCHW tensor.

    One channel stored last counts as contiguous with stride 1, and torch 2.14 on CPU then corrupts memory in the
    backward pass of narrow convolutions.
    """
    return torch.from_numpy(images).clone(memory_format=torch.contiguous_format)


class _Images:
    """Data on the device, and the batch of each step."""

    def __init__(
        self,
        data: ImageData,
        task: ImageClassificationConfig,
        training: TrainingConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        chosen = _subset(len(data.train_labels), task.train_examples)
        train = data.train_images[chosen]
        if training.batch_size > len(train):
            allowed = f"at most {len(train)}, the number of training examples"
            raise ConfigError([Problem("", "training.batch_size", str(training.batch_size), allowed)])
        self.train_images = _in_plain_order(train).to(device)
        self.train_labels = torch.from_numpy(data.train_labels[chosen]).to(device)
        self.test_images = _in_plain_order(data.test_images).to(device)
        self.test_labels = torch.from_numpy(data.test_labels).to(device)
        mean, deviation = channel_statistics(train)
        self.mean, self.deviation = mean.to(device), deviation.to(device)
        self.layout = torch.channels_last if training.channels_last else torch.contiguous_format
        self.task, self.seed = task, seed
        self.order = BatchOrder(
            num_examples=len(train), batch_size=training.batch_size, seed=derive(seed, "batches"), device=device
        )

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        chosen = self.order.indices(step)
        augmentation = self.task.augment
        images = augment(
            self.train_images[chosen], shift=augmentation.shift, flip=augmentation.flip, seed=self.seed, step=step
        )
        images, labels = own_part(images, self.train_labels[chosen])
        return self.normalize(images), labels

    def normalize(self, images: Tensor) -> Tensor:
        return ((images.float() - self.mean) / self.deviation).contiguous(memory_format=self.layout)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        right = torch.zeros((), dtype=torch.int64, device=self.test_labels.device)
        total = torch.zeros((), dtype=torch.float64, device=self.test_labels.device)
        parts = zip(self.test_images.split(EVALUATION_BATCH), self.test_labels.split(EVALUATION_BATCH), strict=True)
        for images, labels in parts:
            logits = model(self.normalize(images)).float()
            right += (logits.argmax(1) == labels).sum()
            total += F.cross_entropy(logits, labels, reduction="none").double().sum()
        count = len(self.test_labels)
        return {"test_accuracy": right.item() / count, "test_loss": total.item() / count}


def _subset(available: int, wanted: int) -> np.ndarray:
    """Positions of the training examples that are used: the same for every seed."""
    if wanted > available:
        allowed = f"at most {available}, or 0 for all"
        raise ConfigError([Problem("", "task.train_examples", str(wanted), allowed)])
    everything = np.arange(available)
    return np.sort(hash_ranked(everything, "train_examples")[:wanted]) if wanted else everything


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
    means: list[float] = []
    deviations: list[float] = []
    values = np.arange(256, dtype=np.int64)
    for channel in range(images.shape[1]):
        counts = np.zeros(256, dtype=np.int64)
        for start in range(0, len(images), 4096):
            counts += np.bincount(images[start : start + 4096, channel].ravel(), minlength=256)
        number = int(counts.sum())
        first, second = int(counts @ values), int(counts @ values**2)
        mean = first / number
        variance = (second * number - first * first) / number**2
        means.append(mean)
        deviations.append(variance**0.5 or 1.0)
    shape = (1, -1, 1, 1)
    return torch.tensor(means, dtype=torch.float32).view(shape), torch.tensor(deviations, dtype=torch.float32).view(
        shape
    )
