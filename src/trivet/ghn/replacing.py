"""A network with some of its parameters replaced, on labelled images, and whether the replacement made it better.

Accuracies are compared image by image: with d the difference of the two networks on an image (mean over draws), the
interval of a change is mean(d) ± z · sd(d) / √n, with z the normal quantile of a two-sided 95 % interval for all
comparisons together (Bonferroni), so that the most conspicuous one is judged fairly too. For random draws it is widened
to hold what every single draw changed, since an interval over images says nothing of other draws.

Not covered: that images share the statistics of their batch, which makes d of one batch slightly dependent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase

from trivet.ghn.findings import Change


@dataclass(frozen=True, slots=True)
class Outcome:
    """A network on the images."""

    right: Tensor
    """1 where an image is classified right and 0 elsewhere, float64 [images]."""
    loss: float
    """Mean cross-entropy."""
    classes: int
    """Outputs."""
    answered: int = 0
    """Classes that are the answer for some image."""

    @property
    def accuracy(self) -> float:
        """Share of the images classified right."""
        return float(self.right.mean())


class Bench:
    """A copy of a network that runs with given parameters, and the images it is tested on.

    The copy shares the parameters of the module, has dropout off and takes batch statistics. Its own parameters are
    those predicted, and elsewhere the module's.

    Args:
        module: Left as it is.
        predicted: Name → parameter.
        batch: Images and labels.
        batch_size: Images that are passed at once.

    Raises:
        ValueError: The module cannot be copied or has no storage, or images and labels do not fit each other.
    """

    def __init__(
        self, module: nn.Module, predicted: Mapping[str, Tensor], batch: tuple[Tensor, Tensor], batch_size: int
    ) -> None:
        own = dict(module.named_parameters())
        empty = [name for name, value in own.items() if value.is_meta]
        if empty:
            raise ValueError(f"parameter `{empty[0]}` is on the meta device; call `module.to_empty` first")
        self.parameters = {name: predicted[name].to(value) if name in predicted else value.detach()
                           for name, value in own.items()}  # fmt: skip
        self.shell = _shell(module)
        device = next(iter(own.values())).device
        images, labels = batch
        if labels.ndim != 1 or labels.is_floating_point() or len(labels) != len(images) or len(labels) < 2:
            raise ValueError(
                f"`batch` holds images {list(images.shape)} and labels {list(labels.shape)} of {labels.dtype}; "
                "give two or more images and one whole number for each"
            )
        parts = list(zip(images.split(batch_size), labels.split(batch_size), strict=True))
        if len(parts) > 1 and len(parts[-1][1]) * 2 < batch_size:
            parts.pop()
        self.parts = [(pixels.to(device), classes.to(device).long()) for pixels, classes in parts]

    def test(self, changed: Mapping[str, Tensor]) -> Outcome:
        """The network on the images, with some parameters changed.

        Raises:
            ValueError: What it puts out are no logits for these labels.
        """
        parameters = {**self.parameters, **changed}
        right: list[Tensor] = []
        answers: set[int] = set()
        loss, classes = 0.0, 0
        for images, labels in self.parts:
            logits = torch.func.functional_call(self.shell, parameters, (images,))
            classes = _classes(logits, labels)
            loss += float(functional.cross_entropy(logits.double(), labels, reduction="sum"))
            found = logits.argmax(1)
            answers |= set(found.tolist())
            right.append((found == labels).double())
        joined = torch.cat(right)
        return Outcome(joined, loss / len(joined), classes, len(answers))


def _classes(logits: object, labels: Tensor) -> int:
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(labels):
        shown = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the module puts out {shown}; only classifiers with logits [images, classes] are diagnosed")
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise ValueError(
            f"labels go from {int(labels.min())} to {int(labels.max())} and the module has {logits.shape[1]} classes"
        )
    return logits.shape[1]


def _shell(module: nn.Module) -> nn.Module:
    """A copy with the same parameters, for batch statistics and without randomness."""
    shared: dict[int, Any] = {id(parameter): parameter for parameter in module.parameters()}
    try:
        shell = copy.deepcopy(module, shared).eval()
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"the module cannot be copied ({error}); diagnose a freshly built one") from error
    for part in shell.modules():
        if isinstance(part, _NormBase):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None
    return shell


def change(before: Outcome, after: Sequence[Outcome], comparisons: int) -> Change:
    """What replacing a layer changes; see the module for the interval.

    Args:
        before: As predicted.
        after: Replaced, once a draw.
        comparisons: How many intervals are to hold together.

    Examples:
        >>> half = torch.tensor([0.0, 1.0] * 50, dtype=torch.float64)
        >>> found = change(Outcome(half, 1.0, 2), [Outcome(half, 0.5, 2), Outcome(torch.ones_like(half), 0.7, 2)], 1)
        >>> round(found.accuracy, 3), round(found.loss, 3), round(found.low, 3), round(found.high, 3)
        (0.25, -0.4, 0.0, 0.5)
    """
    each = torch.stack([one.right - before.right for one in after])
    mean = each.mean(0)
    z = NormalDist().inv_cdf(1 - 0.025 / max(1, comparisons))
    half = z * float(mean.std(correction=1)) / len(mean) ** 0.5
    center = float(mean.mean())
    single = each.mean(1).tolist()
    return Change(
        loss=sum(one.loss for one in after) / len(after) - before.loss,
        accuracy=center,
        low=min(center - half, *single),
        high=max(center + half, *single),
    )
