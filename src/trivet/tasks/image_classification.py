"""Image classification: data, model, loss and metrics of one run.

Loss: cross-entropy. Metrics on the test images: `test_accuracy` (fraction right) and `test_loss` (mean cross-entropy),
evaluated at the precision that the configuration declares (by default the schedule's highest), never at the one of the
moment. Batches and normalization: `image_batches`; pictures of a large folder: `image_stream`.

Not covered: several labels an image, test-time augmentation.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.seeding import derive, seed_everything
from trivet.models.build import build_model
from trivet.tasks.config import RunConfig
from trivet.tasks.data import load_images
from trivet.tasks.data.image_folder import ImageFolder, PictureFiles, streamed
from trivet.tasks.image_batches import Batches, InMemory, Pictures
from trivet.tasks.image_classification_config import ImageClassificationConfig
from trivet.tasks.initialize import initialize
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.training.config import TrainingConfig
from trivet.training.job import Job

logger = logging.getLogger(__name__)

quantizes = None
"""Which layers compute at few bits: the default of `quantize_`."""


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
    pictures, num_classes, shape = _pictures(task, training, run.seed, device)
    images = Batches(pictures, channels_last=training.channels_last)
    seed_everything(derive(run.seed, "init"))
    model, example = _model(task, num_classes, shape, device)
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
    found = _streamed(task)
    if found is None:
        data = load_images(task.data)
        return _model(task, data.num_classes, data.image_shape, torch.device("cpu"))
    folder, files = found
    return _model(task, len(files.classes), folder.shape, torch.device("cpu"))


def _pictures(
    task: ImageClassificationConfig, training: TrainingConfig, seed: int, device: torch.device
) -> tuple[Pictures, int, tuple[int, int, int]]:
    """The pictures, the number of classes, and channels, height and width."""
    found = _streamed(task)
    if found is None:
        data = load_images(task.data)
        return InMemory(data, task, training, seed, device), data.num_classes, data.image_shape
    from trivet.tasks.image_stream import Streamed

    folder, files = found
    logger.info("streaming %d training and %d test pictures of %s", len(files.train), len(files.test), folder.path)
    return Streamed(folder, files, task, training, seed, device), len(files.classes), folder.shape


def _streamed(task: ImageClassificationConfig) -> tuple[ImageFolder, PictureFiles] | None:
    """See `streamed`; crops are cut out of the files."""
    return streamed(task.data, True if task.augment.crop else task.stream)


def _model(
    task: ImageClassificationConfig, num_classes: int, shape: tuple[int, int, int], device: torch.device
) -> tuple[nn.Module, Tensor]:
    channels, height, width = shape
    model = build_model(
        task.model, num_classes=num_classes, in_channels=channels, image_size=(height, width), width=task.width
    )
    return model.to(device), torch.zeros(1, *shape, device=device)
