"""One step of meta-training: the mean loss of several networks, back-propagated into what predicted their parameters.

Done in one piece, the graph of every network's forward pass would stay in memory until the hypernetwork's backward
pass. Instead

1. the hypernetwork predicts all parameters θ_j of the meta-batch in one forward pass;
2. each network j in turn runs forward and backward on detached copies of θ_j, which yields g_j = ∂L_j/∂θ_j, and its
   graph is dropped;
3. one backward pass takes the g_j from the θ_j into the hypernetwork: Σ_j (∂θ_j/∂φ)ᵀ g_j / M, the gradient of the mean
   loss by the chain rule, with the memory of one network at a time.

Not covered: second derivatives, several inner steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from trivet.ghn.meta.clock import Clock
from trivet.ghn.meta.skeleton import Skeleton


class Network(Protocol):
    """A network of a meta-batch: a skeleton, and what the hypernetwork needs to know of it."""

    @property
    def skeleton(self) -> Skeleton:
        """Its shell."""
        ...


class Batch(NamedTuple):
    """What one network of a step sees."""

    images: Tensor
    """[N, C, H, W]."""
    labels: Tensor
    """[N]."""
    seed: int
    """Of the network's dropout."""


Predict = Callable[[Sequence[Any]], Sequence[dict[str, Tensor]]]
"""Networks → the parameters of each by name, attached to the hypernetwork's graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConfig:
    """What of the training configuration a step needs.

    Examples:
        >>> StepConfig(meta_batch=4).penalty
        0.0
    """

    meta_batch: int
    """Networks the mean is taken over: all processes'."""
    net_gradients: Literal["mean", "normalized"] = "mean"
    """See `MetaTrainingConfig`."""
    label_smoothing: float = 0.0
    """See `MetaTrainingConfig`."""
    penalty: float = 0.0
    """See `MetaTrainingConfig`."""
    bf16: bool = False
    """Run networks in bfloat16."""
    channels_last: bool = True
    """Store images with channels innermost where that is safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one step saw."""

    losses: tuple[float, ...]
    """Cross-entropy of each network."""
    accuracies: tuple[float, ...]
    """Share of the images each network classified right."""
    penalty: float
    """The penalty, weighted."""

    @property
    def is_finite(self) -> bool:
        """Whether every loss is a number."""
        return all(map(math.isfinite, (*self.losses, self.penalty)))


def meta_step(
    predict: Predict,
    networks: Sequence[Network],
    batches: Sequence[Batch],
    config: StepConfig,
    clock: Clock | None = None,
) -> StepResult:
    """Add the gradient of the mean loss to the hypernetwork's parameters.

    Args:
        predict: The hypernetwork.
        networks: This process's part of the meta-batch.
        batches: One for each network.
        config: How.
        clock: Measures what takes how long.

    Returns:
        Losses; when one is not finite, nothing was added to the hypernetwork's gradients.

    Raises:
        ValueError: Not one batch for each network, or none.

    Examples:
        >>> from types import SimpleNamespace
        >>> scale = torch.ones((), requires_grad=True)
        >>> net = SimpleNamespace(skeleton=Skeleton(torch.nn.Linear(2, 2, bias=False)))
        >>> predict = lambda nets: [{"weight": scale * torch.eye(2)} for _ in nets]
        >>> result = meta_step(predict, [net], [Batch(torch.eye(2), torch.tensor([0, 1]), 0)], StepConfig(meta_batch=1))
        >>> round(result.losses[0], 4), round(scale.grad.item(), 4)
        (0.3133, -0.2689)
    """
    if not networks or len(networks) != len(batches):
        raise ValueError(f"{len(networks)} networks and {len(batches)} batches; give one batch for each network")
    clock = clock or Clock()
    with clock("predict"):
        predictions = predict(networks)
    losses: list[float] = []
    accuracies: list[float] = []
    sources: list[Tensor] = []
    gradients: list[Tensor] = []
    for network, predicted, batch in zip(networks, predictions, batches, strict=True):
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in predicted.items()}
        with clock("networks forward"):
            loss, accuracy = _forward(network.skeleton, leaves, batch, config)
        with clock("networks backward"):
            found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            losses.append(loss.item())
        accuracies.append(accuracy)
        used = [(tensor, grad) for tensor, grad in zip(predicted.values(), found, strict=True) if grad is not None]
        scale = _scale([grad for _, grad in used], config)
        sources += [tensor for tensor, _ in used]
        gradients += [grad * scale for _, grad in used]
    penalty = 0.0
    if config.penalty:
        penalty = _add_penalty(sources, gradients, config.penalty / config.meta_batch)
    result = StepResult(losses=tuple(losses), accuracies=tuple(accuracies), penalty=penalty)
    with clock("hypernetwork backward"):
        if result.is_finite:
            torch.autograd.backward(sources, gradients)
    return result


def _forward(skeleton: Skeleton, leaves: dict[str, Tensor], batch: Batch, config: StepConfig) -> tuple[Tensor, float]:
    images = batch.images
    if config.channels_last and skeleton.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    if skeleton.has_dropout:
        torch.manual_seed(batch.seed)
    with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=config.bf16):
        logits = skeleton(leaves, images)
    logits = logits.float()
    loss = functional.cross_entropy(logits, batch.labels, label_smoothing=config.label_smoothing)
    return loss, (logits.detach().argmax(1) == batch.labels).float().mean().item()


def _scale(gradients: Sequence[Tensor], config: StepConfig) -> float:
    """What the gradient of one network is multiplied by."""
    if config.net_gradients == "mean":
        return 1 / config.meta_batch
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in gradients])).item()
    return 1 / (config.meta_batch * norm) if math.isfinite(norm) and norm > 0 else 1 / config.meta_batch


def _add_penalty(tensors: Sequence[Tensor], gradients: list[Tensor], weight: float) -> float:
    """Add the gradient of weight · Σ‖w‖₂, w/‖w‖₂ a tensor; return the penalty."""
    total = 0.0
    for position, tensor in enumerate(tensors):
        detached = tensor.detach()
        norm = torch.linalg.vector_norm(detached)
        total += norm.item()
        gradients[position] = gradients[position] + detached * (weight / norm.clamp_min(1e-12))
    return weight * total
