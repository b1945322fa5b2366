"""Autoencoding: a network learns to draw pictures from a short code of its own.

Pixels lie in [0, 1]. Loss: mean squared error of the pixels. Metrics on the test pictures, at the precision that the
configuration declares:

    test_mse    mean squared error
    mean_mse    what drawing the mean training picture would have scored: a network above it has learned nothing
    dead        1 when the network draws the same picture whatever it is given

The order of the batches depends on the seed. At few bits every linear layer is quantized, the last one too.

Not covered: data larger than memory, augmentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import ConfigError, Problem
from trivet.core.seeding import derive, seed_everything
from trivet.models.autoencoder import Autoencoder
from trivet.tasks.autoencoding_config import AutoencodingConfig
from trivet.tasks.buffers import feeder
from trivet.tasks.config import RunConfig
from trivet.tasks.data import ImageData, load_images
from trivet.tasks.data.select import hash_ranked
from trivet.tasks.initialize import initialize
from trivet.tasks.pictures import write_strip
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.training.batches import BatchOrder
from trivet.training.job import Job
from trivet.training.ranks import own_part

EVALUATION_BATCH = 500
"""Pictures evaluated at a time; changes the last bits of `test_mse`, so it is fixed."""

SHOWN = 10
"""Test pictures whose drawings are kept."""


def build_job(run: RunConfig, device: torch.device) -> Job:
    """Load the data, build the model, and say how to train and evaluate it.

    Args:
        run: A run of the task autoencoding.
        device: Where it trains.

    Raises:
        ConfigError: More examples are asked for, or in a batch, than there are.
        MissingDataError: The data are not on this machine.
    """
    task, training = options_of(run, AutoencodingConfig), run.training
    if training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    data = load_images(task.data)
    train = _chosen(data, task.train_examples)
    if training.batch_size > len(train):
        allowed = f"at most {len(train)}, the number of training examples"
        raise ConfigError([Problem("", "training.batch_size", str(training.batch_size), allowed)])
    test = feeder("copy", device)(np.ascontiguousarray(data.test_images))
    mean = torch.from_numpy(train.mean(0) / 255).to(device, torch.float32)
    seed_everything(derive(run.seed, "init"))
    model, example = _model(task, data, device)
    initial = initialize(run, model, example)
    precision = RunPrecision(run, model, example, quantizes)
    seed_everything(derive(run.seed, "training"))
    feed = feeder(task.buffer, device)
    order = BatchOrder(num_examples=len(train), batch_size=training.batch_size, seed=derive(run.seed, "batches"))

    def loss(forward: nn.Module, step: int) -> Tensor:
        (chosen,) = own_part(order.indices(step))
        pictures = feed(train[chosen.numpy()])
        return F.mse_loss(forward(pictures), pictures)

    def evaluate() -> Mapping[str, float]:
        with precision.evaluation():
            return _evaluated(model, test, mean)

    def keep(folder: Path) -> None:
        with precision.evaluation(), torch.no_grad():
            drawn = model.eval()(test[:SHOWN]).float()
        write_strip(folder / "1 shown.png", data.test_images[:SHOWN])
        write_strip(folder / "2 drawn.png", (drawn * 255).round().to(torch.uint8).cpu().numpy())

    return Job(
        model=model,
        loss=loss,
        evaluate=evaluate,
        observe=precision.observe,
        steppers=precision.steppers,
        keep=keep,
        extra=initial,
    )


def quantizes(module: nn.Module, name: str) -> bool:
    """Which layers compute at few bits: all, also the last one."""
    return True


def counted(run: RunConfig) -> tuple[nn.Module, Any]:
    """The model of a run and one example of its input, for counting multiply-accumulates."""
    task = options_of(run, AutoencodingConfig)
    return _model(task, load_images(task.data), torch.device("cpu"))


def _model(task: AutoencodingConfig, data: ImageData, device: torch.device) -> tuple[nn.Module, Tensor]:
    model = Autoencoder(data.image_shape, hidden=task.hidden, code=task.code)
    return model.to(device), torch.zeros(1, *data.image_shape, device=device)


def _chosen(data: ImageData, wanted: int) -> np.ndarray:
    """The training pictures that are used: the same for every seed."""
    available = len(data.train_images)
    if wanted > available:
        raise ConfigError([Problem("", "task.train_examples", str(wanted), f"at most {available}, or 0 for all")])
    if not wanted:
        return np.ascontiguousarray(data.train_images)
    return data.train_images[np.sort(hash_ranked(np.arange(available), "train_examples")[:wanted])]


def _evaluated(model: nn.Module, test: Tensor, mean: Tensor) -> dict[str, float]:
    squares, of_mean = 0.0, 0.0
    first: Tensor | None = None
    changes = False
    for pictures in test.split(EVALUATION_BATCH):
        drawn = model(pictures).float()
        squares += (drawn - pictures).double().square().sum().item()
        of_mean += (mean - pictures).double().square().sum().item()
        first = drawn[:1] if first is None else first
        changes = changes or bool((drawn != first).any())
    return {"test_mse": squares / test.numel(), "mean_mse": of_mean / test.numel(), "dead": float(not changes)}
