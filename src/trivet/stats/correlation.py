"""Do arms that cost more come out better? Rank correlation of a known quantity of each arm with its mean outcome.

With the mean outcome ȳ of each of k arms, a known number x of each (such as its BitOPs) and s_ij = sign(y_i − y_j):

    Spearman  ρ  = Pearson correlation of the ranks; the rank of i is (k + 1) / 2 + ½ Σ_j s_ij, so ties share ranks
    Kendall   τ_b = Σ s^x_ij s^y_ij / √(Σ (s^x_ij)² · Σ (s^y_ij)²)

Within seeds: a coefficient is made in each seed alone, over the arms' runs with that seed. Their mean, with its
t-interval over seeds (limited to [−1, 1]), says how closely the order of outcomes follows x when all these arms are run
once with a new seed. Noise of single runs is part of that, so it is nearer to 0 than the coefficient of the means.

Of means: the same coefficient of the arms' means over all seeds. It is given without an interval on purpose: resampling
seeds scrambles nearly equal arms, and bootstrap intervals of it covered the coefficient of the true means in 18 to 85 %
of simulated studies instead of 95 % (14 arms, 8 seeds; `benchmarks/rank_correlation.py`). Its p-value:

share of the orders of x over the arms whose coefficient is at least as far from 0 (all k! orders up to k = 8, else
20,000 drawn ones and the one observed). It asks whether x and outcome are related at all among these arms.

Not covered: x with an uncertainty of its own; partial correlation; missing cells (leave a seed out of every arm).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trivet.stats.estimate import estimate
from trivet.stats.result import Result
from trivet.stats.values import FloatArray, Values, as_values, check_alpha
from trivet.stats.wording import p_text, percent

__all__ = ["RankCorrelation", "rank_correlation"]

EXACT_ARMS = 8
"""Most arms for which every order is tried (40,320 of them)."""

ORDERS = 20_000
"""Drawn orders beyond that."""

METHODS = ("spearman", "kendall")

TIED = 1e-12
"""Means closer than this, relative to the largest, are tied: they differ by rounding only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCorrelation(Result):
    """A rank correlation over arms: within seeds, with its interval, and of the arms' means."""

    coefficient: float
    """Mean over seeds of the coefficient within a seed, in [−1, 1]."""
    low: float
    """Lower end of its interval."""
    high: float
    """Upper end of its interval."""
    within_seeds: tuple[float, ...]
    """The coefficient of each seed."""
    of_means: float
    """The coefficient of the arms' mean outcomes."""
    p: float
    """Two-sided p-value of "x and mean outcome are unrelated", by reordering the arms."""
    arms: int
    """Number of arms k."""
    seeds: int
    """Number of seeds n."""
    confidence: float
    """Coverage of the interval, such as 0.95."""
    method: str
    """spearman or kendall."""

    def __str__(self) -> str:
        """Write everything on one line."""
        sign = "ρ" if self.method == "spearman" else "τ"
        return (
            f"{self.method.capitalize()} {sign} within a seed {self.coefficient:+.2f} ({percent(self.confidence)} "
            f"t-interval over seeds {self.low:+.2f} to {self.high:+.2f}); of the arms' means {self.of_means:+.2f} "
            f"({p_text(self.p)} by reordering); {self.arms} arms, {self.seeds} seeds"
        )


def rank_correlation(
    x: Values, outcomes: Sequence[Values], *, method: str = "spearman", confidence: float = 0.95, seed: int = 0
) -> RankCorrelation:
    """Correlate a known number of each arm with the arms' mean outcomes, by rank.

    Args:
        x: One number an arm, such as its BitOPs, shape `[k]`, k ≥ 3.
        outcomes: One row an arm, one column a seed, the same seeds in every arm, shape `[k, n]`, n ≥ 2.
        method: `spearman` or `kendall`.
        confidence: Coverage of the interval, in (0.5, 1).
        seed: Seed of the drawn orders, where not all are enumerated.

    Raises:
        TypeError: Something that is not numbers.
        ValueError: Too few arms or seeds, rows of different lengths, all x or all mean outcomes equal, or an option
            out of range.

    Examples:
        >>> outcomes = [[0.80, 0.81, 0.82], [0.85, 0.84, 0.86], [0.83, 0.83, 0.83], [0.90, 0.91, 0.92]]
        >>> result = rank_correlation([1.0, 2.0, 3.0, 4.0], outcomes)
        >>> result.coefficient, result.of_means
        (0.8, 0.8)
    """
    check_alpha(1.0 - confidence, "1 - confidence")
    if method not in METHODS:
        raise ValueError(f"`method={method!r}` must be one of {', '.join(METHODS)}.")
    numbers, table = _check(x, outcomes)
    known = _signs(numbers[:, None])
    if not known.any():
        raise ValueError("all values of `x` are equal; a correlation needs arms that differ in it.")
    observed = _signs(table.mean(axis=1)[:, None])
    if not observed.any():
        raise ValueError("all arms have the same mean outcome; a correlation needs arms that differ in it.")
    of_means = float(_coefficients(known, observed, method)[0])
    within = _coefficients(known, _signs(table), method)
    mean = estimate(within, confidence=confidence)
    return RankCorrelation(
        coefficient=mean.mean,
        low=max(mean.low if mean.low is not None else -1.0, -1.0),
        high=min(mean.high if mean.high is not None else 1.0, 1.0),
        within_seeds=tuple(within.tolist()),
        of_means=of_means,
        p=_p_value(numbers, observed, of_means, method, seed),
        arms=table.shape[0],
        seeds=table.shape[1],
        confidence=confidence,
        method=method,
    )


def _check(x: Values, outcomes: Sequence[Values]) -> tuple[FloatArray, FloatArray]:
    numbers = as_values(x, "x")
    rows = [as_values(row, f"outcomes[{index}]") for index, row in enumerate(outcomes)]
    if len(rows) != numbers.size:
        raise ValueError(f"`x` has {numbers.size} arms and `outcomes` {len(rows)}; give one row an arm.")
    if numbers.size < 3:
        raise ValueError(f"{numbers.size} arm(s) given; a rank correlation needs at least 3.")
    lengths = {row.size for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"the rows of `outcomes` have {sorted(lengths)} seeds; keep the seeds that every arm has.")
    if min(lengths) < 2:
        raise ValueError(f"{min(lengths)} seed(s) given; an interval over seeds needs at least 2.")
    return numbers, np.stack(rows)


def _signs(values: FloatArray) -> FloatArray:
    """sign(v_i − v_j), zero where tied: `[k, b]` → `[k, k, b]`."""
    differences = values[:, None, :] - values[None, :, :]
    differences[np.abs(differences) <= TIED * np.abs(values).max()] = 0.0
    return np.sign(differences)


def _coefficients(known: FloatArray, found: FloatArray, method: str) -> FloatArray:
    """Coefficient of each of b columns, 0 where everything is tied: `[k, k, b or 1]` twice → `[b]`."""
    if method == "spearman":
        known, found = known.sum(axis=1), found.sum(axis=1)
        axes: tuple[int, ...] = (0,)
    else:
        axes = (0, 1)
    top = (known * found).sum(axis=axes)
    below = np.sqrt((known**2).sum(axis=axes) * (found**2).sum(axis=axes))
    return np.divide(top, below, out=np.zeros_like(below), where=below > 0)


def _in_parts(known: FloatArray, means: FloatArray, method: str) -> FloatArray:
    """The coefficients of many columns of means, in parts that fit into memory."""
    size = max(1, 4_000_000 // means.shape[0] ** 2)
    starts = range(0, means.shape[1], size)
    return np.concatenate([_coefficients(known, _signs(means[:, at : at + size]), method) for at in starts])


def _p_value(numbers: FloatArray, observed: FloatArray, coefficient: float, method: str, seed: int) -> float:
    k = numbers.size
    if k <= EXACT_ARMS:
        orders = np.array(list(itertools.permutations(range(k))))
    else:
        rng = np.random.default_rng([seed, k, 1])
        orders = np.vstack([np.arange(k), rng.permuted(np.tile(np.arange(k), (ORDERS, 1)), axis=1)])
    found = _in_parts(observed, numbers[orders.T], method)
    return float(np.mean(np.abs(found) >= abs(coefficient) - 1e-9))
