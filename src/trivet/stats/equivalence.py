"""Equivalence: is the mean difference surely smaller than a margin fixed in advance?

Two one-sided t-tests (TOST, Schuirmann 1987): p = max(P(T > (effect + m)/SE), P(T > (m − effect)/SE)). It is at or
below alpha exactly when the 1 − 2·alpha interval of the effect lies inside (−m, m).

Not covered: margins relative to a mean, asymmetric margins, Bayesian regions of practical equivalence.
"""

import math
from dataclasses import dataclass

from trivet.stats.distributions import t_quantile, t_tail
from trivet.stats.result import Result
from trivet.stats.values import Pairs, Values, as_pairs, check_alpha, check_margin
from trivet.stats.wording import NumberStyle, p_text, percent, plain_number

__all__ = ["Equivalence", "equivalence", "equivalence_of_pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Equivalence(Result):
    """Outcome of the two one-sided tests. Differences are b − a, in the metric's own unit."""

    equivalent: bool
    """Whether the interval lies strictly inside (−margin, margin)."""
    n: int
    """Number of pairs."""
    effect: float
    """Mean difference b − a."""
    margin: float
    """Largest difference that does not matter."""
    alpha: float
    """Error rate of the test."""
    low: float
    """Lower end of the 1 − 2·alpha interval."""
    high: float
    """Upper end of the 1 − 2·alpha interval."""
    p: float
    """TOST p-value: the larger of the two one-sided ones."""
    p_lower: float
    """p-value of "the difference is at or below −margin"."""
    p_upper: float
    """p-value of "the difference is at or above margin"."""
    df: int
    """Degrees of freedom."""
    method: str
    """How the test was made, in words."""

    @property
    def confidence(self) -> float:
        """Coverage of the interval, 1 − 2·alpha."""
        return 1.0 - 2.0 * self.alpha

    def __str__(self) -> str:
        """Write outcome, effect, interval, n and p on one line."""
        write = NumberStyle((self.high - self.low) / 2, self.effect)
        relation = "inside" if self.equivalent else "not inside"
        return (
            f"{'equivalent' if self.equivalent else 'not shown equivalent'}: mean difference {write(self.effect)}, "
            f"{percent(self.confidence)} interval {write(self.low)} to {write(self.high)} {relation} "
            f"±{plain_number(self.margin)} (n = {self.n} pairs, TOST {p_text(self.p)})"
        )


def equivalence(a: Values, b: Values, margin: float, alpha: float = 0.05) -> Equivalence:
    """Test whether two arms, paired by position, differ by less than a margin (TOST on the paired differences).

    Args:
        a: Outcomes of the first arm, shape `[n]`.
        b: Outcomes of the second arm, position by position on the same seeds.
        margin: Largest difference that does not matter, above 0, in the metric's own unit; to be fixed before the runs.
        alpha: Error rate, in (0, 0.5).

    Returns:
        The test. When all differences are equal the interval is a point.

    Raises:
        TypeError: An arm is not a flat sequence of numbers. ValueError: A value is not finite, the arms differ in
            length or have fewer than 2 values, or `margin` or `alpha` is out of range.

    Examples:
        >>> result = equivalence([0.90, 0.91, 0.92, 0.93], [0.901, 0.909, 0.921, 0.93], margin=0.01)
        >>> result.equivalent, round(result.p, 4)
        (True, 0.0001)
    """
    return equivalence_of_pairs(as_pairs(a, b), margin, alpha)


def equivalence_of_pairs(pairs: Pairs, margin: float, alpha: float) -> Equivalence:
    """Run the test on pairs that are already checked.

    Raises:
        ValueError: Fewer than 2 pairs, or `margin` or `alpha` out of range.
    """
    check_alpha(alpha)
    check_margin(margin, zero=False)
    n = pairs.n
    if n < 2:
        raise ValueError(f"{n} pair(s) given; equivalence needs at least 2 (and a verdict 6). Run more seeds.")
    error = pairs.sd / math.sqrt(n)
    half = t_quantile(n - 1, 1.0 - alpha) * error
    low, high = pairs.mean - half, pairs.mean + half
    p_lower, p_upper = _one_sided(pairs.mean + margin, error, n - 1), _one_sided(margin - pairs.mean, error, n - 1)
    return Equivalence(
        equivalent=-margin < low and high < margin,
        n=n,
        effect=pairs.mean,
        margin=margin,
        alpha=alpha,
        low=low,
        high=high,
        p=max(p_lower, p_upper),
        p_lower=p_lower,
        p_upper=p_upper,
        df=n - 1,
        method="two one-sided t-tests on paired differences",
    )


def _one_sided(distance: float, error: float, df: int) -> float:
    """P(T > distance / error); a point distribution when the differences do not vary."""
    if error > 0.0:
        return t_tail(df, distance / error)
    return 0.0 if distance > 0.0 else 1.0
