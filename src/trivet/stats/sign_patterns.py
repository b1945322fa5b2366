"""Sign patterns of paired differences: the exact tests behind planned looks.

*Different.* If a difference is as likely to be +x as −x, then given the sizes |d_1| … |d_N| all 2^N sign patterns
are equally likely, and with them all paths of the sums S_k = Σ_{i ≤ n_k} ±|d_i| at the looks. At look k the patterns
that were not stopped earlier are ranked by |S_k|, and the largest are stopped, as many as the error spent so far
allows: at most alpha_k of all patterns are stopped up to look k. The data are one of the patterns, so the error over
all looks is at most alpha, for any n and any symmetric distribution of the differences, and it is computed from the
joint distribution of all looks, not from a bound on it.

*Smaller than θ.* With x_i = d_i − θ, a pattern g gives a sum no larger than the data's exactly when the mean of d over
the flipped pairs is at least θ (Hartigan 1969, "typical values"). So the one-sided p is (1 + number of non-empty
subsets with mean ≥ θ) / 2^n; it falls when θ rises, and the confidence limit at level e is the ⌊e · 2^n⌋-th largest
subset mean. One list of subset means gives the test for every margin and the interval.

Up to 20 pairs all patterns are used. Above, 10,000 patterns: the data's own and 9,999 random ones, drawn once per
seed and kept for all looks; counting the data's own keeps the error at or below the nominal one (Hemerik and Goeman
2018).

Not covered: differences that are not symmetric about their center.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trivet.stats.power import MIN_PAIRS
from trivet.stats.values import FloatArray

__all__ = ["EXACT_PAIRS", "Limits", "Stopping", "patterns_text", "stopping", "subset_limits"]

EXACT_PAIRS = 20
"""Up to this number of pairs all sign patterns are used."""

DRAWS = 10_000
"""Patterns above `EXACT_PAIRS`, the data's own included."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Stopping:
    """How the data stand among all sign patterns at one look."""

    share: float
    """Share of patterns stopped at earlier looks or now at least as extreme: a p-value over the looks so far."""
    stopped: bool
    """Whether the data are among the stopped."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the center of symmetry from subset means."""

    low: float
    """Lower limit; −inf when the level is below what n pairs can give."""
    high: float
    """Upper limit; inf when the level is below what n pairs can give."""
    attained: float
    """Error really spent on each side: at most the level."""
    p: float
    """The larger of the one-sided p-values of "≤ −margin" and "≥ margin"; 1 without a margin."""
    within: bool
    """Whether p is at or below the attained error, which is to say that both limits lie inside the margin."""


def stopping(
    differences: FloatArray,
    sizes: Sequence[int],
    spent: Sequence[float],
    most: int,
    *,
    rounding: float = 0.0,
    seed: int = 0,
) -> list[Stopping]:
    """Follow all sign patterns through the looks.

    Args:
        differences: Paired differences in the order in which they came, shape `[n]`.
        sizes: Number of pairs at each look so far, not decreasing; the last is n.
        spent: Error that may have been spent up to each of these looks.
        most: The most pairs that the plan allows, ≥ n: decides between all patterns and random ones.
        rounding: Rounding error of one difference.
        seed: Seed of the random patterns.

    Examples:
        >>> import numpy as np
        >>> d = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        >>> stopping(d, [6], [0.05], 6)
        [Stopping(share=0.03125, stopped=True)]
    """
    paths = _all_paths if most <= EXACT_PAIRS else functools.partial(_drawn_paths, most=most, seed=seed)
    alive = np.ones(1, dtype=bool)
    total, ended = 0.0, 0.0
    found: list[Stopping] = []
    for size, allowed, sums in zip(sizes, spent, paths(differences, sizes), strict=True):
        alive = np.tile(alive, len(sums) // len(alive))
        total = float(np.abs(differences[:size]).sum())
        slack = size * (8.0 * _EPSILON * total + rounding)
        reach = np.abs(sums)
        gone = len(alive) - int(np.count_nonzero(alive))
        share = (gone + int(np.count_nonzero(alive & (reach >= reach[0] - slack)))) / len(sums)
        if not alive[0]:
            share = ended
        budget = math.floor(allowed * len(sums) * (1.0 + 4.0 * _EPSILON)) - gone
        if size >= MIN_PAIRS and budget > 0:
            alive &= reach < _limit(reach[alive], budget, slack)
        ended = share
        found.append(Stopping(share, not bool(alive[0])))
    return found


def _all_paths(differences: FloatArray, sizes: Sequence[int]) -> Iterator[FloatArray]:
    """Sums of all sign patterns at each look, the data's own first; a look's list is repeated inside the next one's.

    Reversed patterns give the same |sum|, so the first pair keeps its sign.
    """
    sums, before = differences[:1], 1
    for size in sizes:
        for value in differences[before:size].tolist():
            sums = np.concatenate([sums + value, sums - value])
        before = max(before, size)
        yield sums if size else np.zeros(1)


def _drawn_paths(differences: FloatArray, sizes: Sequence[int], most: int, seed: int) -> Iterator[FloatArray]:
    signs = _drawn(most, seed)
    for size in sizes:
        yield differences[:size] @ signs[:size]


def _limit(reach: FloatArray, budget: int, slack: float) -> float:
    """Smallest |sum| that is stopped: the `budget` largest, without splitting a group of ties."""
    if budget >= reach.size:
        return -math.inf
    edge = reach.size - budget - 1
    ordered = np.sort(np.partition(reach, edge)[edge:])
    first = 1
    while first <= budget and ordered[first] - ordered[first - 1] <= slack:
        first += 1
    return float(ordered[first]) if first <= budget else math.inf


def subset_limits(
    differences: FloatArray, level: float, margin: float = 0.0, *, rounding: float = 0.0, seed: int = 0
) -> Limits:
    """One-sided limits of the center of symmetry, each missing it with probability at most `level`.

    Args:
        differences: Paired differences, shape `[n]`, n ≥ 1.
        level: Error of each side.
        margin: Gives `p`; 0 for none.
        rounding: Rounding error of one difference.
        seed: Seed of the random patterns, used only above `EXACT_PAIRS` pairs.

    Examples:
        >>> import numpy as np
        >>> subset_limits(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 0.05, margin=8.0)
        Limits(low=2.0, high=5.0, attained=0.046875, p=0.015625, within=True)
    """
    means, empty = _subset_means(differences, seed)
    slack = 8.0 * _EPSILON * float(np.abs(differences).sum()) + rounding
    number = means.size + empty
    use = math.floor(level * number * (1.0 + 4.0 * _EPSILON)) if differences.size >= MIN_PAIRS else 0
    hits = number
    if margin > 0.0:
        above = int(np.count_nonzero(means >= margin - slack))
        below = int(np.count_nonzero(means <= -margin + slack))
        hits = empty + max(above, below)
    place = use - empty
    if place < 0:
        return Limits(-math.inf, math.inf, 0.0, hits / number, within=False)
    ends = np.partition(means, [place, means.size - 1 - place])
    return Limits(float(ends[place]), float(ends[-1 - place]), use / number, hits / number, within=hits <= use)


def patterns_text(most: int) -> str:
    """Name the way in which the patterns are counted.

    Examples:
        >>> patterns_text(12), patterns_text(40)
        ('exact sign-flip', 'sign-flip with 9,999 random patterns')
    """
    return "exact sign-flip" if most <= EXACT_PAIRS else f"sign-flip with {DRAWS - 1:,} random patterns"


def _subset_means(differences: FloatArray, seed: int) -> tuple[FloatArray, int]:
    """Means of all subsets of the pairs (or of random ones), and the number of empty subsets beside them."""
    n = differences.size
    if n > EXACT_PAIRS:
        counts = _drawn_sizes(n, seed)
        sums = (differences.sum() - differences @ _drawn(n, seed)) / 2.0
        return sums[counts > 0.0] / counts[counts > 0.0], int(np.count_nonzero(counts == 0.0))
    sums = np.zeros(1)
    for value in differences.tolist():
        sums = np.concatenate([sums, sums + value])
    return sums[1:] / _subset_sizes(n)[1:], 1


@functools.lru_cache(maxsize=4)
def _subset_sizes(n: int) -> FloatArray:
    sizes = np.zeros(1)
    for _ in range(n):
        sizes = np.concatenate([sizes, sizes + 1.0])
    return sizes


@functools.lru_cache(maxsize=8)
def _drawn(n: int, seed: int) -> FloatArray:
    """Random sign patterns `[n, DRAWS]`, the data's own first."""
    signs = np.random.default_rng([seed, n]).integers(0, 2, size=(n, DRAWS)).astype(np.float64) * 2.0 - 1.0
    signs[:, 0] = 1.0
    return signs


@functools.lru_cache(maxsize=8)
def _drawn_sizes(n: int, seed: int) -> FloatArray:
    """How many pairs each random pattern flips."""
    return (n - _drawn(n, seed).sum(axis=0)) / 2.0
