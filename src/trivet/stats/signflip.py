"""The exact two-sided sign-flip test of paired differences.

If neither arm is better, each paired difference could as well have had the other sign (Fisher's randomisation test;
Pitman 1937). So all 2^n sign patterns are equally likely, and

    p = (number of patterns with |Σ ±d_i| ≥ |Σ d_i|) / 2^n.

No normal distribution is assumed, only that a difference is as likely to be +x as −x when there is no effect. Up to
30 pairs the count is exact: the sums of the two halves of the pairs are listed and matched by sorting (meet in the
middle), at most 2^15 numbers each. Above that, 19,999 random patterns are drawn with a fixed seed and p = (1 + hits)
/ (1 + draws), which keeps the error rate at or below the nominal one (Phipson and Smyth 2010).

Not covered: one-sided tests, intervals by inverting the test.
"""

import functools
import math

import numpy as np

from trivet.stats.values import FloatArray, check_alpha

__all__ = ["EXACT_LIMIT", "min_pairs", "sign_flip_method", "sign_flip_p", "smallest_p"]

EXACT_LIMIT = 30
"""Largest number of pairs for which all sign patterns are counted."""

DRAWS = 19_999
"""Number of random sign patterns above `EXACT_LIMIT` pairs."""

_CHUNK = 1_000_000
_EPSILON = float(np.finfo(np.float64).eps)


def sign_flip_p(differences: FloatArray, *, rounding: float = 0.0, seed: int = 0) -> float:
    """Two-sided sign-flip p-value of the hypothesis that the differences are symmetric about 0.

    Sums within rounding of the observed one count as ties, which can only make p larger. The result depends neither
    on the order of the pairs nor on which arm comes first.

    Args:
        differences: Paired differences, shape `[n]`, n ≥ 1.
        rounding: Rounding error of one difference, in the differences' unit.
        seed: Seed of the random patterns, used only above `EXACT_LIMIT` pairs.

    Examples:
        >>> import numpy as np
        >>> sign_flip_p(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        0.03125
    """
    magnitudes = np.sort(np.abs(differences))
    total = float(magnitudes.sum())
    n = magnitudes.size
    slack = n * (4.0 * _EPSILON * total + rounding)
    target = abs(math.fsum(differences.tolist())) - slack
    if target <= 0.0:
        return 1.0
    if n <= EXACT_LIMIT:
        return _exact(magnitudes, target)
    return _sampled(magnitudes, target, seed)


def sign_flip_method(n: int) -> str:
    """Name the way in which `sign_flip_p` handles n pairs.

    Examples:
        >>> sign_flip_method(8)
        'exact sign-flip'
    """
    return "exact sign-flip" if n <= EXACT_LIMIT else f"sign-flip with {DRAWS:,} random patterns"


def smallest_p(n: int) -> float:
    """Smallest two-sided p-value that n pairs can give: 2 / 2^n.

    Args:
        n: Number of pairs, at least 1.

    Examples:
        >>> [smallest_p(n) for n in (5, 6, 8)]
        [0.0625, 0.03125, 0.0078125]
    """
    if n < 1:
        raise ValueError(f"`n={n}` must be at least 1 pair; give the number of pairs.")
    return 2.0 ** -(n - 1) if n <= EXACT_LIMIT else 1.0 / (DRAWS + 1)


def min_pairs(alpha: float = 0.05, family_size: int = 1) -> int:
    """Fewest pairs with which the exact test can reach `alpha` after Holm's correction in a family of comparisons.

    Args:
        alpha: Error rate, in (0, 0.5).
        family_size: Number of comparisons in the family, at least 1.

    Raises:
        ValueError: An argument is out of range.

    Examples:
        >>> min_pairs(), min_pairs(family_size=7)
        (6, 9)
    """
    check_alpha(alpha)
    if family_size < 1:
        raise ValueError(f"`family_size={family_size}` must be at least 1; give the number of comparisons made.")
    return max(1, math.ceil(1.0 - math.log2(alpha / family_size)))


def _exact(magnitudes: FloatArray, target: float) -> float:
    """Count all patterns; the first sign is fixed because the reversed pattern gives the same |sum|."""
    half = magnitudes.size // 2
    left = _signed_sums(magnitudes[: half + 1])[: 1 << half]
    right = np.sort(_signed_sums(magnitudes[half + 1 :]))
    above = right.size - np.searchsorted(right, target - left, side="left")
    below = np.searchsorted(right, -target - left, side="right")
    return float((above.sum() + below.sum()) / (left.size * right.size))


def _signed_sums(magnitudes: FloatArray) -> FloatArray:
    """All 2^k sums ±m_1 … ±m_k; the first half of the list has +m_1."""
    sums = np.zeros(1)
    for magnitude in magnitudes[::-1]:
        sums = np.concatenate([sums + magnitude, sums - magnitude])
    return sums


def _sampled(magnitudes: FloatArray, target: float, seed: int) -> float:
    generator = np.random.default_rng(seed)
    n = magnitudes.size
    rows = max(1, _CHUNK // n)
    hits = 0
    for start in range(0, DRAWS, rows):
        flips = generator.integers(0, 2, size=(min(rows, DRAWS - start), n), dtype=np.int8)
        hits += int(np.count_nonzero(np.abs((2.0 * flips - 1.0) @ magnitudes) >= target))
    return (1 + hits) / (1 + DRAWS)


@functools.lru_cache(maxsize=4096)
def attained_alpha(n: int, alpha: float) -> tuple[float, int]:
    """Largest p-value ≤ alpha that n pairs without ties can give, and how many patterns (up to sign) that is."""
    if n > EXACT_LIMIT:
        return alpha, 1 << EXACT_LIMIT
    patterns = 1 << (n - 1)
    count = math.floor(alpha * patterns * (1.0 + 4.0 * _EPSILON))
    return count / patterns, count
