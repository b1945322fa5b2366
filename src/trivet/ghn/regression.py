"""From a few numbers that describe a network to what it will reach: kernel ridge regression, chosen by folds.

With features standardised over the n known networks, k(a, b) = exp(−γ ‖a − b‖²) and outcomes y around their mean,

    ŷ(x) = ȳ + Σ_i α_i k(x, x_i)        (K + λ I) α = y − ȳ

γ and λ are the pair of a grid with the smallest squared error on parts of the known networks that were left out. It is
the smooth relative of the support vector regression of the published protocol, needs one decomposition a γ, and no
further library.

Torch-free. Not covered: thousands of networks (n³ operations), uncertainty of a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

WIDTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of γ to choose from, times one over the median squared distance between known networks."""

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Values of λ to choose from."""

FEWEST = 10
"""Fewest known networks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A fitted predictor."""

    inputs: Floats
    """Standardised features of the known networks, [n, d]."""
    weights: Floats
    """α, [n]."""
    center: Floats
    """Mean of the features, [d]."""
    scale: Floats
    """Standard deviation of the features, [d]; 1 where it is 0."""
    mean: float
    """ȳ."""
    gamma: float
    """γ that was chosen."""
    penalty: float
    """λ that was chosen."""
    error: float
    """Root of the mean squared error on networks left out, with this γ and λ."""

    def predict(self, x: ArrayLike) -> Floats:
        """Outcomes of other networks, [m], from their features, [m, d].

        Raises:
            ValueError: Another number of features.
        """
        given = np.asarray(x, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != len(self.center):
            raise ValueError(f"`x` has shape {list(given.shape)}; give [networks, {len(self.center)}]")
        kernel = np.exp(-self.gamma * _distances((given - self.center) / self.scale, self.inputs))
        return self.mean + kernel @ self.weights


def fit_regression(x: ArrayLike, y: ArrayLike, *, folds: int = 5, seed: int = 0) -> Regression:
    """Fit a predictor to known networks.

    Args:
        x: Features, [n, d], n ≥ 10.
        y: What each network reached, [n].
        folds: Parts that are left out in turn.
        seed: Decides which network is in which part.

    Raises:
        ValueError: Too few networks, shapes that do not fit, or numbers that are not finite.

    Examples:
        >>> x = np.linspace(0, 3, 30)[:, None]
        >>> fitted = fit_regression(x, np.sin(x[:, 0]))
        >>> np.round(fitted.predict([[1.55]]), 2)
        array([1.])
    """
    features, outcomes = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    _check(features, outcomes, folds)
    center, scale = features.mean(0), features.std(0)
    scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(center)), scale, 1.0)
    inputs = (features - center) / scale
    distances = _distances(inputs, inputs)
    between = distances[np.triu_indices(len(outcomes), 1)]
    typical = float(np.median(between)) or float(between.mean()) or 1.0
    parts = np.random.default_rng(seed).permutation(np.arange(len(outcomes)) % folds)
    found: list[tuple[float, float, float]] = []
    for width in WIDTHS:
        errors = _left_out(np.exp(-width / typical * distances), outcomes, parts)
        found += [(error, penalty, width / typical) for error, penalty in zip(errors, PENALTIES, strict=True)]
    error, penalty, gamma = min(found, key=lambda one: (one[0], -one[1]))  # of equals, the smoothest
    mean = float(outcomes.mean())
    kernel = np.exp(-gamma * distances)
    weights = np.linalg.solve(kernel + penalty * np.eye(len(outcomes)), outcomes - mean)
    return Regression(
        inputs=inputs, weights=weights.astype(np.float64),
        center=center, scale=scale, mean=mean, gamma=gamma, penalty=penalty, error=float(np.sqrt(error)),
    )  # fmt: skip


def _check(features: Floats, outcomes: Floats, folds: int) -> None:
    if features.ndim != 2 or outcomes.shape != features.shape[:1] or not features.shape[1]:
        raise ValueError(
            f"`x` has shape {list(features.shape)} and `y` {list(outcomes.shape)}; give [networks, features] and "
            "[networks]"
        )
    if len(outcomes) < FEWEST:
        raise ValueError(f"{len(outcomes)} networks with a known outcome; give {FEWEST} or more")
    if not 2 <= folds <= len(outcomes):
        raise ValueError(f"`folds={folds}` must lie in [2, {len(outcomes)}]; 5 is usual")
    if not (np.isfinite(features).all() and np.isfinite(outcomes).all()):
        raise ValueError("features and outcomes must be finite; leave networks out that diverged")


def _distances(a: Floats, b: Floats) -> Floats:
    """Squared distances between rows: [n, d], [m, d] → [n, m]."""
    found = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.maximum(found, 0.0)


def _left_out(kernel: Floats, outcomes: Floats, parts: NDArray[np.integer]) -> Floats:
    """Mean squared error on the parts left out in turn, for every penalty."""
    total = np.zeros(len(PENALTIES))
    for part in np.unique(parts):
        inside, outside = np.flatnonzero(parts != part), np.flatnonzero(parts == part)
        mean = outcomes[inside].mean()
        values, vectors = np.linalg.eigh(kernel[np.ix_(inside, inside)])
        turned = vectors.T @ (outcomes[inside] - mean)
        across = kernel[np.ix_(outside, inside)] @ vectors
        shrunk = turned[:, None] / (np.maximum(values, 0.0)[:, None] + np.asarray(PENALTIES))
        total += ((across @ shrunk + mean - outcomes[outside][:, None]) ** 2).sum(0)
    return total / len(outcomes)
