"""What the training loop is given: a `Job`, and the `Stepper`s that advance with its optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn


class Stepper(Protocol):
    """Something that advances once an optimiser step, like a learning-rate scheduler."""

    def step(self) -> None:
        """Advance; called right after `optimizer.step()`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs: plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Take back what `state_dict` gave."""
        ...


def _observe_nothing(step: int) -> Mapping[str, float]:
    return {}


def _keep_nothing(folder: Path) -> None:
    """Most tasks have no pictures."""


@dataclass(kw_only=True)
class Job:
    """What is trained."""

    model: nn.Module
    """On its device already."""
    loss: Callable[[nn.Module, int], Tensor]
    """Loss of the batch of one step, counted from 0; calls the module it is given (which may be compiled)."""
    evaluate: Callable[[], Mapping[str, float]]
    """Metrics on held-out data; called with the model in evaluation mode."""
    observe: Callable[[int], Mapping[str, float]] = _observe_nothing
    """What else a row shall show after so many steps, such as bits; a pure function."""
    steppers: Mapping[str, Stepper] = field(default_factory=dict)
    """What advances with the optimiser, by name."""
    log_at: frozenset[int] = frozenset()
    """Steps after which a row is written, whatever `log_every` says."""
    keep: Callable[[Path], None] = _keep_nothing
    """Write pictures for the report, PNG files, into this folder; called once, when training has finished."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the result shall hold besides metrics, plain values, such as what was predicted before the first step."""
