r"""How far one training lies from another that differs in one setting. Torch-free, plain values.

With weights $w_k$ after step $k$ of the training and $v_k$ of the one it is compared with, the distance is
$\lVert w_k - v_k \rVert / \lVert v_k \rVert$, and the share of the path $\lVert w_n - v_n \rVert / \lVert v_n - v_0
\rVert$ after the last step $n$. Churn is the share of test examples that the two put into different classes (Zhuang et
al., MLSys 2022).

Not covered: how a distance of weights translates into quality; one pair says nothing about a mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trivet.audit.difference import first_difference

if TYPE_CHECKING:
    import numpy as np

BEYOND = 10.0
"""A distance this many times the largest of rounding alone is more than rounding explains."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trace:
    """What one training left."""

    checksums: Sequence[str]
    """Of the weights: before the first step, and after each."""
    losses: Sequence[str]
    """Of each step, as hexadecimal floats; empty if it is not known."""
    weights: Mapping[int, np.ndarray]
    """Steps done → weights as one float64 vector; 0 is the start."""
    predictions: np.ndarray | None = None
    """Class of each test example."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Movement:
    """The difference of two trainings."""

    step: int | None
    """First step after which a bit of the weights differs; 0: before the first; None: never."""
    loss_step: int | None
    """First step, counted from 1, whose loss differs in a bit."""
    distances: Mapping[int, float]
    """Step → relative L2 distance of the weights."""
    end: float
    """The same at the last step; NaN if the two cannot be compared."""
    path_share: float
    """Distance at the end over the way from start to end."""
    churn: float | None
    """Share of test examples with another class; None without predictions."""
    steps: tuple[int, int]
    """Steps of the reference and of the other."""

    @property
    def is_zero(self) -> bool:
        """Whether the two are bit-equal in everything that was compared."""
        return self.step is None and self.loss_step is None and not self.churn and self.steps[0] == self.steps[1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "first_step": self.step,
            "first_loss_step": self.loss_step,
            "distance": {str(step): value for step, value in self.distances.items()},
            "distance_end": self.end,
            "path_share": self.path_share,
            "churn": self.churn,
            "steps": list(self.steps),
            "is_zero": self.is_zero,
        }


def movement(reference: Trace, other: Trace) -> Movement:
    """Compare a training with the one that it differs from in one setting.

    Args:
        reference: What distances are relative to.
        other: The one with the setting.

    Examples:
        >>> import numpy as np
        >>> one = Trace(checksums=["0", "a"], losses=["0x1p0"], weights={0: np.zeros(2), 1: np.array([3.0, 4.0])})
        >>> two = Trace(checksums=["0", "b"], losses=["0x1p0"], weights={0: np.zeros(2), 1: np.array([3.0, 4.5])})
        >>> found = movement(one, two)
        >>> found.step, found.loss_step, found.distances[1], found.path_share
        (1, None, 0.1, 0.1)
    """
    import numpy as np

    loss = first_difference(reference.losses, other.losses)
    shared = [
        step
        for step, weights in sorted(reference.weights.items())
        if step in other.weights and weights.shape == other.weights[step].shape
    ]
    gaps = {step: _gap(reference.weights[step], other.weights[step]) for step in shared}
    last = shared[-1] if shared else 0
    path = _gap(reference.weights[last], reference.weights[0]) if last and 0 in reference.weights else 0.0
    churn = None
    if reference.predictions is not None and other.predictions is not None:
        churn = float(np.mean(reference.predictions != other.predictions))
    distances = {step: _over(gap, float(np.linalg.norm(reference.weights[step]))) for step, gap in gaps.items() if step}
    return Movement(
        step=first_difference(reference.checksums, other.checksums),
        loss_step=None if loss is None else loss + 1,
        distances=distances,
        end=distances.get(last, float("nan")),
        path_share=_over(gaps.get(last, 0.0), path) if last else float("nan"),
        churn=churn,
        steps=(len(reference.checksums) - 1, len(other.checksums) - 1),
    )


def _gap(one: np.ndarray, other: np.ndarray) -> float:
    import numpy as np

    return float(np.linalg.norm(one.astype(np.float64) - other.astype(np.float64)))


def _over(gap: float, size: float) -> float:
    return gap / size if size != 0 else 0.0 if gap == 0 else float("inf")
