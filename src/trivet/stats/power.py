"""How many pairs a question needs, and how small a difference a study can see. Normal differences are assumed.

With true mean difference θ and standard deviation σ of the paired differences, u = SD/σ and t = t(n − 1, 1 − α/2):

    P("different") = E[Φ(θ√n/σ − t·u) + Φ(−θ√n/σ − t·u)]
    P("equivalent") = E[max(0, Φ((m − θ)√n/σ − t'·u) − Φ(−(m + θ)√n/σ + t'·u))],   t' = t(n − 1, 1 − α), margin m

The rule of `decide` asks for the exact sign-flip test too, and for 6 pairs. `rule="decide"` (the default) therefore
uses the level that the sign-flip test attains with n pairs; where only "all signs equal" is significant (n = 6), its
probability Φ(θ/σ)^n + Φ(−θ/σ)^n. That is an approximation: at 7 to 9 pairs the true power is up to 5 points lower
(measured in docs/statistics.md). `rule="t"` is the t-test and TOST alone.

Not covered: the uncertainty of σ itself. An SD from 5 runs may be wrong by a factor of 0.6 to 2.9
(`estimate(...).sd_low`).
"""

import functools
import math
from collections.abc import Callable
from typing import Literal

from trivet.stats.distributions import chi_average, normal_cdf, t_quantile
from trivet.stats.signflip import attained_alpha, min_pairs
from trivet.stats.values import FloatArray, check_alpha, check_margin

__all__ = ["MIN_PAIRS", "Rule", "power_different", "power_equivalent", "seeds_needed", "smallest_detectable"]

MIN_PAIRS = 6
"""Fewest pairs on which `decide` gives another verdict than "undecided"."""

LIMIT = 1_000_000
"""Largest number of pairs that `seeds_needed` looks at."""

Rule = Literal["decide", "t"]


def power_different(
    n: int, difference: float, *, alpha: float = 0.05, family_size: int = 1, rule: Rule = "decide"
) -> float:
    """Probability that n pairs end as "different".

    Args:
        n: Number of pairs, at least 2.
        difference: True mean difference, in standard deviations of the paired differences.
        alpha: Error rate of the verdict.
        family_size: Comparisons in the family; the error rate is divided by it (Holm's worst case).
        rule: "decide" for the whole rule, "t" for the t-test alone.

    Raises:
        ValueError: An argument is out of range.

    Examples:
        >>> round(power_different(10, 1.0, rule="t"), 3)
        0.803
    """
    _check_common(n, alpha, family_size, rule)
    level = alpha / family_size
    if rule == "decide":
        if n < max(MIN_PAIRS, min_pairs(alpha, family_size)):
            return 0.0
        level, patterns = attained_alpha(n, level)
        if patterns == 1:
            agree = normal_cdf(difference) ** n + normal_cdf(-difference) ** n
            return min(float(agree), _t_power(n, difference, alpha))
    return _t_power(n, difference, level)


def power_equivalent(
    n: int, margin: float, *, true_difference: float = 0.0, alpha: float = 0.05, rule: Rule = "decide"
) -> float:
    """Probability that n pairs end as "equivalent" (TOST at `alpha`).

    Args:
        n: Number of pairs, at least 2.
        margin: Equivalence margin, in standard deviations of the paired differences, above 0.
        true_difference: True mean difference, in the same unit.
        alpha: Error rate of the verdict.
        rule: "decide" (0 below 6 pairs) or "t" for TOST alone.

    Raises:
        ValueError: An argument is out of range.

    Examples:
        >>> round(power_equivalent(36, 0.5, rule="t"), 2)
        0.81
    """
    _check_common(n, alpha, 1, rule)
    check_margin(margin, zero=False)
    if rule == "decide" and n < MIN_PAIRS:
        return 0.0
    root, t = math.sqrt(n), t_quantile(n - 1, 1.0 - alpha)
    above, below = (margin - true_difference) * root, (margin + true_difference) * root

    def inside(u: FloatArray) -> FloatArray:
        return normal_cdf(above - t * u) - normal_cdf(t * u - below)

    return chi_average(inside, n - 1, upper=margin * root / t)


def seeds_needed(
    sd_difference: float,
    *,
    difference: float | None = None,
    margin: float | None = None,
    true_difference: float = 0.0,
    power: float = 0.8,
    alpha: float = 0.05,
    family_size: int = 1,
    rule: Rule = "decide",
) -> int:
    """Number of pairs (seeds run in both arms) with which a question is likely to be decided.

    Give either `difference` (how many pairs to call a true difference of that size "different") or `margin` (how many
    to call the arms "equivalent" when their true difference is `true_difference`).

    Args:
        sd_difference: Standard deviation of the paired differences, above 0; take it from a pilot.
        difference: True mean difference to find, not 0.
        margin: Largest difference that does not matter, above 0.
        true_difference: With `margin`: the true mean difference assumed, smaller than the margin.
        power: Probability wanted, in (0, 1).
        alpha: Error rate of the verdict.
        family_size: Comparisons in the family (only for `difference`).
        rule: "decide" for the rule that `decide` uses, "t" for the t-test or TOST alone.

    Raises:
        ValueError: An argument is out of range, both or neither question is asked, or more than a million pairs are
            needed.

    Examples:
        >>> seeds_needed(0.01, difference=0.01), seeds_needed(0.01, margin=0.005)
        (11, 36)
    """
    if not math.isfinite(sd_difference) or sd_difference <= 0.0:
        raise ValueError(
            f"`sd_difference={sd_difference}` must be a finite number above 0; take it from a pilot "
            "(`compare(a, b).sd_difference`)."
        )
    if (difference is None) == (margin is None):
        raise ValueError("give exactly one of `difference` (to find it) and `margin` (to show equivalence).")
    if not 0.0 < power < 1.0:
        raise ValueError(f"`power={power}` must lie strictly between 0 and 1; 0.8 is the usual choice.")
    _check_common(2, alpha, family_size, rule)
    if difference is not None:
        if not math.isfinite(difference) or difference == 0.0:
            raise ValueError(f"`difference={difference}` must be a finite number other than 0; use `margin` for 0.")
        found = needed_for_difference(abs(difference) / sd_difference, power, alpha, family_size, rule)
    else:
        check_margin(margin or 0.0, zero=False)
        if abs(true_difference) >= (margin or 0.0):
            raise ValueError(
                f"`true_difference={true_difference}` must be smaller than `margin={margin}`; "
                "arms that differ by the margin or more are not equivalent."
            )
        unit = (margin or 0.0) / sd_difference
        found = needed_for_equivalence(unit, abs(true_difference) / sd_difference, power, alpha, rule)
    if found is None:
        raise ValueError(f"more than {LIMIT:,} pairs are needed; ask for a larger difference or margin.")
    return found


def smallest_detectable(
    sd_difference: float,
    n: int,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    family_size: int = 1,
    rule: Rule = "decide",
) -> float | None:
    """Smallest true mean difference that n pairs would call "different" with the given power.

    Args:
        sd_difference: Standard deviation of the paired differences, 0 or above.
        n: Number of pairs, at least 2.
        power: Probability wanted, in (0, 1).
        alpha: Error rate of the verdict.
        family_size: Comparisons in the family.
        rule: "decide" for the rule that `decide` uses, "t" for the t-test alone.

    Returns:
        The difference in the metric's unit; `None` when n pairs can never reach `alpha`.

    Raises:
        ValueError: An argument is out of range.

    Examples:
        >>> round(smallest_detectable(0.01, 8), 4), smallest_detectable(0.01, 5)
        (0.0117, None)
    """
    if not math.isfinite(sd_difference) or sd_difference < 0.0:
        raise ValueError(f"`sd_difference={sd_difference}` must be a finite number, 0 or above.")
    if not 0.0 < power < 1.0:
        raise ValueError(f"`power={power}` must lie strictly between 0 and 1; 0.8 is the usual choice.")
    _check_common(n, alpha, family_size, rule)
    unit = _detectable_unit(n, power, alpha, family_size, rule)
    return None if unit is None else unit * sd_difference


def needed_for_difference(
    unit: float, power: float, alpha: float, family_size: int, rule: Rule, limit: int = LIMIT
) -> int | None:
    """Pairs for "different" at a true difference of `unit` standard deviations; `None` above `limit`."""
    z = _normal_quantile(1.0 - alpha / family_size / 2.0) + max(0.0, _normal_quantile(power))
    floor = max(MIN_PAIRS, min_pairs(alpha, family_size)) if rule == "decide" else 2
    return _search(
        lambda n: power_different(n, unit, alpha=alpha, family_size=family_size, rule=rule) >= power,
        (z / unit) ** 2 + 2.0, floor, limit,
    )  # fmt: skip


def needed_for_equivalence(
    unit: float, true_unit: float, power: float, alpha: float, rule: Rule, limit: int = LIMIT
) -> int | None:
    """Pairs for "equivalent" with margin `unit` and true difference `true_unit`, in SDs; `None` above `limit`."""
    z = _normal_quantile(1.0 - alpha) + max(0.0, _normal_quantile(0.5 + power / 2.0))
    return _search(
        lambda n: power_equivalent(n, unit, true_difference=true_unit, alpha=alpha, rule=rule) >= power,
        (z / (unit - true_unit)) ** 2 + 1.0, MIN_PAIRS if rule == "decide" else 2, limit,
    )  # fmt: skip


def _search(enough: Callable[[int], bool], guess: float, floor: int, limit: int) -> int | None:
    """Smallest n ≥ floor with `enough(n)`, taken as monotone: doubling steps away from `guess`, then halving."""
    if not guess <= 2.0 * limit:
        return None
    start = max(floor, math.ceil(guess))
    step = max(1, start // 64)
    if enough(start):
        low, high = start - step, start
        while low >= floor and enough(low):
            step *= 2
            low, high = low - step, low
        low = max(low, floor - 1)
    else:
        low, high = start, start + step
        while not enough(high):
            if high > limit:
                return None
            step *= 2
            low, high = high, high + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= limit else None


def _t_power(n: int, difference: float, alpha: float) -> float:
    shift, t = abs(difference) * math.sqrt(n), t_quantile(n - 1, 1.0 - alpha / 2.0)
    return chi_average(lambda u: normal_cdf(shift - t * u) + normal_cdf(-shift - t * u), n - 1)


@functools.lru_cache(maxsize=1024)
def _detectable_unit(n: int, power: float, alpha: float, family_size: int, rule: Rule) -> float | None:
    def reached(unit: float) -> float:
        return power_different(n, unit, alpha=alpha, family_size=family_size, rule=rule)

    high = 1.0
    while reached(high) < power:
        high *= 2.0
        if high > 1e6:
            return None
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if reached(middle) >= power else (middle, high)
    return high


def _normal_quantile(p: float) -> float:
    from scipy import special

    return float(special.ndtri(p))


def _check_common(n: int, alpha: float, family_size: int, rule: str) -> None:
    check_alpha(alpha)
    if n < 2:
        raise ValueError(f"`n={n}` must be at least 2 pairs; one pair has no spread.")
    if family_size < 1:
        raise ValueError(f"`family_size={family_size}` must be at least 1; give the number of comparisons made.")
    if rule not in ("decide", "t"):
        raise ValueError(f"`rule={rule!r}` must be 'decide' or 't'; use 'decide' to plan for `decide`.")
