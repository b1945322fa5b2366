"""How good predictions are: one for each unseen network, batch statistics in batch normalisation, no training.

The protocol is the published one: the test images in batches of 64, whose statistics batch normalisation takes;
top-1 accuracy; mean ± standard error over the networks, networks with and without batch normalisation apart.

Not covered: recalibrated statistics (`trivet.ghn.recalibrate_bn`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, nn

from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.loop import Networks, Predictor
from trivet.ghn.meta.skeleton import Skeleton


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkScore:
    """What one prediction was worth."""

    accuracy: float
    """Share of the images classified right; 1 / classes is chance. A network with numbers that are not finite gets
    what its arg-max gets."""
    seconds: float
    """Processor seconds of the prediction."""
    parameters: int
    """Numbers predicted."""
    has_batch_norm: bool
    """Whether the network has a batch normalisation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The networks of a split.

    Examples:
        >>> one = NetworkScore(accuracy=0.5, seconds=0.1, parameters=10, has_batch_norm=True)
        >>> other = NetworkScore(accuracy=0.7, seconds=0.1, parameters=10, has_batch_norm=False)
        >>> print(Scores(networks=(one, other)))
        60.0 ± 10.0 % (max 70.0) over 2 networks, with BN 50.0 (n = 1), without 70.0 (n = 1), 0.100 s each
    """

    networks: tuple[NetworkScore, ...]
    """One score each."""

    def accuracies(self, has_batch_norm: bool | None = None) -> list[float]:
        """Accuracies of all networks, or of those with or without batch normalisation."""
        return [one.accuracy for one in self.networks if has_batch_norm in (None, one.has_batch_norm)]

    def summary(self) -> dict[str, float]:
        """Name → number, for logs; what there is no network for is left out.

        `networks`; `accuracy` (mean), `accuracy_se`, `accuracy_n`, `accuracy_max`; the first three with `_bn` and
        `_bn_free` for networks with and without batch normalisation; `seconds_per_network`.
        """
        found: dict[str, float] = {"networks": len(self.networks)}
        groups = (("accuracy", None), ("accuracy_bn", True), ("accuracy_bn_free", False))
        for name, kind in groups:
            values = self.accuracies(kind)
            if values:
                found |= {name: fmean(values), f"{name}_n": len(values)}
            if len(values) > 1:
                found[f"{name}_se"] = stdev(values) / math.sqrt(len(values))
        found["accuracy_max"] = max(self.accuracies())
        found["seconds_per_network"] = fmean(one.seconds for one in self.networks)
        return found

    def __str__(self) -> str:
        found = self.summary()
        text = f"{100 * found['accuracy']:.1f} ± {100 * found.get('accuracy_se', math.nan):.1f} % "
        text += f"(max {100 * found['accuracy_max']:.1f}) over {len(self.networks)} networks"
        for name, label in (("accuracy_bn", "with BN"), ("accuracy_bn_free", "without")):
            if name in found:
                text += f", {label} {100 * found[name]:.1f} (n = {found[f'{name}_n']:.0f})"
        return f"{text}, {found['seconds_per_network']:.3f} s each"


@torch.no_grad()
def accuracy(
    skeleton: Skeleton, parameters: Mapping[str, Tensor], split: Split, images: Images, *, batch_size: int = 64
) -> float:
    """Share of a split's images that a network with these parameters classifies right.

    A last batch smaller than half of `batch_size` is left out, because its statistics would be poor.
    """
    right = seen = 0
    for pixels, labels in zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True):
        if seen and len(labels) * 2 < batch_size:
            break
        prepared = images.prepare(pixels)
        if skeleton.channels_last:
            prepared = prepared.contiguous(memory_format=torch.channels_last)
        logits = skeleton(parameters, prepared)
        right += int((logits.argmax(1) == labels).sum())
        seen += len(labels)
    return right / seen


def evaluate(
    module: nn.Module,
    predict: Predictor,
    networks: Networks,
    split: Split,
    images: Images,
    *,
    numbers: Iterable[int] | None = None,
    batch_size: int = 64,
) -> Scores:
    """Predict the parameters of each network and test it.

    Args:
        module: The hypernetwork.
        predict: Calls it.
        networks: Unseen ones.
        split: Images to classify.
        images: Prepares them.
        numbers: Which of the networks; all by default.
        batch_size: Images a batch.

    Raises:
        ValueError: There is no network.
    """
    chosen = list(range(len(networks)) if numbers is None else numbers)
    if not chosen:
        raise ValueError("there is no network to evaluate; choose one or more")
    was_training = module.training
    module.eval()
    scores = []
    for number in chosen:
        network = networks[number]
        start = time.process_time()
        with torch.no_grad():
            parameters = predict(module, [network])[0]
        seconds = time.process_time() - start
        score = NetworkScore(
            accuracy=accuracy(network.skeleton, parameters, split, images, batch_size=batch_size),
            seconds=seconds,
            parameters=sum(tensor.numel() for tensor in parameters.values()),
            has_batch_norm=network.skeleton.has_batch_norm,
        )
        scores.append(score)
    module.train(was_training)
    return Scores(networks=tuple(scores))


def merged(parts: Sequence[Scores]) -> Scores:
    """The networks of several scores as one."""
    networks: tuple[Any, ...] = ()
    for part in parts:
        networks += part.networks
    return Scores(networks=networks)
