"""How many SGD steps a prediction is worth.

The same networks are trained from scratch and tested after k_1 < k_2 < … steps. The equivalent number of steps is the k
at which the networks' mean accuracy reaches the mean accuracy of the predictions, by linear interpolation on the mean
curve made non-decreasing (running maximum). Its interval is the percentile bootstrap over networks, prediction and
curve of a network drawn together.

Not covered: extrapolation; a prediction better than all of the curve is worth "more than the last k".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalentSteps:
    """The answer, with its interval."""

    steps: float
    """Equivalent steps; infinite when the prediction beats the whole curve."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval; infinite when it lies beyond the curve."""
    longest: int
    """The last k of the curve."""
    networks: int
    """Networks drawn from."""
    confidence: float
    """Confidence of the interval."""

    def __str__(self) -> str:
        shown = [
            f"> {self.longest}" if math.isinf(value) else f"{value:.0f}" for value in (self.steps, self.low, self.high)
        ]
        return (
            f"{shown[0]} SGD steps ({self.confidence:.0%} bootstrap interval {shown[1]} to {shown[2]}, "
            f"n = {self.networks} networks)"
        )


def equivalent_steps(
    predicted: ArrayLike,
    steps: Sequence[int],
    curves: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 5000,
    seed: int = 0,
) -> EquivalentSteps:
    """The k whose mean accuracy the predictions match.

    Args:
        predicted: Accuracy of each network with predicted parameters, [N].
        steps: Growing numbers of SGD steps, [K]; begin with 0, the untrained network, if it was tested.
        curves: Accuracy of each network after so many steps, [N, K].
        confidence: Of the interval.
        resamples: Bootstrap draws.
        seed: Of the draws.

    Raises:
        ValueError: Shapes that do not fit, fewer than two networks, or steps that do not grow.

    Examples:
        >>> print(equivalent_steps([0.5, 0.6, 0.4], [0, 10, 20], [[0.1, 0.4, 0.6]] * 3))
        15 SGD steps (95% bootstrap interval 10 to 20, n = 3 networks)
    """
    values, table = np.asarray(predicted, dtype=np.float64), np.asarray(curves, dtype=np.float64)
    if values.ndim != 1 or table.shape != (len(values), len(steps)) or len(values) < 2:
        raise ValueError(
            f"`predicted` has shape {list(values.shape)}, `curves` {list(table.shape)} and there are {len(steps)} "
            "`steps`; give [N], [N, K] and K, with two networks or more"
        )
    if any(b <= a for a, b in pairwise(steps)) or not steps or steps[0] < 0:
        raise ValueError(f"`steps={list(steps)}` must grow from 0 or more")
    grid = np.asarray(steps, dtype=np.float64)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(values), size=(resamples, len(values)))
    draws = np.array([_crossing(values[rows].mean(), grid, table[rows].mean(0)) for rows in drawn])
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], method="inverted_cdf")  # a method that can return infinity
    return EquivalentSteps(
        steps=_crossing(values.mean(), grid, table.mean(0)),
        low=float(low),
        high=float(high),
        longest=int(steps[-1]),
        networks=len(values),
        confidence=confidence,
    )


def _crossing(level: float, steps: Floats, curve: Floats) -> float:
    """The first step at which the running maximum of the curve reaches the level."""
    rising = np.maximum.accumulate(curve)
    if level > rising[-1]:
        return math.inf
    after = int(np.searchsorted(rising, level))  # the first point at or above the level
    if after == 0:
        return float(steps[0])
    share = (level - rising[after - 1]) / (rising[after] - rising[after - 1])
    return float(steps[after - 1] + share * (steps[after] - steps[after - 1]))
