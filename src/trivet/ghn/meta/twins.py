"""Twins: the same networks, from their own random parameters, trained by SGD for a few steps.

The published recipe: momentum 0.9, weight decay 1e-4, batches of 64, gradient clipped at norm 5; the learning rate is
the best of a few after a short trial *on the validation images*, chosen for each network, so that the twins are no
straw men. Tested as predictions are: batch statistics in batch normalisation, dropout off.

Not covered: learning-rate schedules; the first few hundred steps are what predictions compare with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from trivet.core.seeding import derive
from trivet.ghn.meta.evaluate import accuracy
from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.skeleton import Skeleton


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinConfig:
    """How twins are trained.

    Examples:
        >>> TwinConfig(points=(10, 100)).rates
        (0.1, 0.05, 0.01)
    """

    points: tuple[int, ...] = (10, 20, 50, 100, 200, 400)
    """Numbers of steps after which a twin is tested."""
    rates: tuple[float, ...] = (0.1, 0.05, 0.01)
    """Learning rates to choose from."""
    trial_steps: int = 60
    """Steps of the trial that chooses the rate."""
    trial_images: int = 1000
    """Validation images the trial is judged on."""
    batch_size: int = 64
    """Images of a step."""
    momentum: float = 0.9
    """Momentum."""
    weight_decay: float = 1e-4
    """Weight decay."""
    clip_norm: float = 5.0
    """Largest 2-norm of the gradient."""

    def __post_init__(self) -> None:
        if not self.points or self.points[0] < 1 or list(self.points) != sorted(set(self.points)):
            raise ValueError(f"`points={list(self.points)}` must be growing numbers of steps from 1 on")
        if not self.rates or min(self.rates) <= 0:
            raise ValueError(f"`rates={list(self.rates)}` must be one rate or more, all > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One network trained from scratch."""

    accuracies: tuple[float, ...]
    """Test accuracy before training and after each of the points."""
    rate: float
    """The learning rate that was chosen."""
    seconds_per_step: float
    """Processor seconds of a training step."""
    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict, repr=False, compare=False)
    """Its parameters after the last of the points."""


def train_twin(
    module: nn.Module, skeleton: Skeleton, test: Split, images: Images, config: TwinConfig, *, seed: int = 0
) -> Twin:
    """Train a network from the parameters it has.

    Args:
        module: A freshly built network; its parameters are the starting point and are left as they are.
        skeleton: A shell of the same network, without dropout, to test with.
        test: Images to test on.
        images: Training and validation images.
        config: How.
        seed: Decides the order of the images.
    """
    start = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    judged = images.validation.head(config.trial_images)
    best, rate = -1.0, config.rates[0]
    for candidate in config.rates if len(config.rates) > 1 else ():
        trained, _ = _train(module, start, images, config, candidate, (config.trial_steps,), seed)
        found = accuracy(skeleton, trained[-1], judged, images, batch_size=config.batch_size)
        best, rate = (found, candidate) if found > best else (best, rate)
    trained, seconds = _train(module, start, images, config, rate, config.points, seed)
    tested = [accuracy(skeleton, weights, test, images, batch_size=config.batch_size) for weights in (start, *trained)]
    return Twin(
        accuracies=tuple(tested),
        rate=rate,
        seconds_per_step=seconds / config.points[-1],
        parameters=trained[-1],
    )


def _train(
    module: nn.Module,
    start: dict[str, torch.Tensor],
    images: Images,
    config: TwinConfig,
    rate: float,
    points: Sequence[int],
    seed: int,
) -> tuple[list[dict[str, torch.Tensor]], float]:
    """Parameters after each of the points, and processor seconds of all steps; the module gets `start` back."""
    parameters = dict(module.named_parameters())
    _copy(start, parameters)
    optimizer = torch.optim.SGD(
        parameters.values(), lr=rate, momentum=config.momentum, weight_decay=config.weight_decay
    )
    torch.manual_seed(derive(seed, "twin", "dropout"))
    module.train()
    kept: list[dict[str, torch.Tensor]] = []
    seconds = 0.0
    for step in range(points[-1]):
        began = time.process_time()
        pixels, labels = images.batch(step=step, place=0, size=config.batch_size, places=1)
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(module(pixels), labels).backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), config.clip_norm)
        optimizer.step()
        seconds += time.process_time() - began
        if step + 1 in points:
            kept.append({name: parameter.detach().clone() for name, parameter in parameters.items()})
    _copy(start, parameters)
    return kept, seconds


@torch.no_grad()
def _copy(source: dict[str, torch.Tensor], target: dict[str, nn.Parameter]) -> None:
    for name, parameter in target.items():
        parameter.copy_(source[name])
