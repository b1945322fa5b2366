"""What a network is worth on labelled images: with given parameters, or after a few steps of SGD.

Both are tested alike: batch statistics in batch normalisation, dropout off. Training follows the recipe of the twins in
`trivet.ghn.meta.twins`, with one learning rate that is not searched for, so that it stays cheap.

Not covered: data that do not fit in memory, inputs other than one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from trivet.ghn.meta.skeleton import Skeleton


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyConfig:
    """How a network is trained for a moment.

    Examples:
        >>> EarlyConfig(steps=0)
        Traceback (most recent call last):
        ...
        ValueError: `steps=0` must be ≥ 1; 50 is the default
    """

    steps: int = 50
    """Steps of SGD."""
    rate: float = 0.05
    """Learning rate."""
    batch_size: int = 64
    """Images of a step."""
    momentum: float = 0.9
    """Momentum."""
    weight_decay: float = 1e-4
    """Weight decay."""
    clip_norm: float = 5.0
    """Largest 2-norm of the gradient."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"`steps={self.steps}` must be ≥ 1; 50 is the default")
        if self.batch_size < 2:
            raise ValueError(f"`batch_size={self.batch_size}` must be ≥ 2; 64 is the default")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"`rate={self.rate}` must be > 0; 0.05 is the default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a network did on the images."""

    accuracy: float
    """Share of the images classified right."""
    loss: float
    """Mean cross-entropy; infinite where the network put out numbers that are not finite."""


@torch.no_grad()
def outcome(
    skeleton: Skeleton, parameters: Mapping[str, Tensor], images: Tensor, labels: Tensor, *, batch_size: int = 64
) -> Outcome:
    """Test a network with these parameters.

    A last batch smaller than half of `batch_size` is left out, because its statistics would be poor.

    Args:
        skeleton: The shell of the network.
        parameters: Name → parameter.
        images: As the network takes them, [N, …].
        labels: Classes, [N].
        batch_size: Images a batch.

    Examples:
        >>> shell = Skeleton(nn.Linear(2, 2))
        >>> weights = {"weight": torch.eye(2), "bias": torch.zeros(2)}
        >>> outcome(shell, weights, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])).accuracy
        0.5
    """
    right: int = 0
    seen: int = 0
    total = 0.0
    for pixels, wanted in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        if seen and len(wanted) * 2 < batch_size:
            break
        if skeleton.channels_last and pixels.ndim == 4:
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        logits = skeleton(parameters, pixels)
        right += int((logits.argmax(1) == wanted).sum())
        total += float(functional.cross_entropy(logits.float(), wanted, reduction="sum"))
        seen += len(wanted)
    return Outcome(accuracy=right / seen, loss=total / seen if math.isfinite(total) else math.inf)


def train_early(module: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], config: EarlyConfig) -> dict[str, Tensor]:
    """Train a module by SGD from the parameters it has, in place, and return its parameters.

    Args:
        module: A classifier.
        batches: Images and labels of each step; no more than `config.steps` are taken.
        config: How.

    Examples:
        >>> net = nn.Linear(2, 2)
        >>> batch = (torch.randn(8, 2), torch.arange(8) % 2)
        >>> sorted(train_early(net, [batch] * 3, EarlyConfig(steps=3)))
        ['bias', 'weight']
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=config.rate, momentum=config.momentum, weight_decay=config.weight_decay)
    module.train()
    for _, (pixels, labels) in zip(range(config.steps), batches, strict=False):
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(module(pixels), labels).backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        optimizer.step()
    return {name: parameter.detach() for name, parameter in module.named_parameters()}
