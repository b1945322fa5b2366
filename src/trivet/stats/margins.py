"""One estimate with its standard error, held against a margin: TOST, the interval and the ROPE from one computation.

With effect e, standard error s and df degrees of freedom, (θ − e)/s is taken to follow Student's t with df. From that
one distribution follow

    interval at level c     e ± t(df, (1 + c)/2) · s
    TOST                    p = max(P(T > (e + m)/s), P(T > (m − e)/s)) ≤ alpha ⇔ the 1 − 2·alpha interval is in (−m, m)
    region of practical     P(θ < −m), P(−m ≤ θ ≤ m), P(θ > m): the posterior of the correlated Bayesian t-test with a
    equivalence (ROPE)      flat prior (Corani and Benavoli 2015); TOST's p is the larger of its two outer probabilities

so the three can never contradict each other. The verdict: *equivalent* when the 1 − 2·alpha interval lies in (−m, m),
else *different* when the 1 − alpha interval excludes 0, else *undecided*; *beyond* when it lies outside the margin.
`correlation` ρ is for scores from overlapping training sets (k-fold cross-validation: ρ = 1/k); it makes
s² = SD² (1/n + ρ/(1 − ρ)). Runs with different seeds on fixed data are independent: ρ = 0.

Not covered: informed priors, and an exact test: `decide` (paired) and `decide_unpaired` add one.
"""

import math
from dataclasses import dataclass

from trivet.stats.distributions import t_quantile, t_tail
from trivet.stats.result import Result
from trivet.stats.sentences import Label
from trivet.stats.values import Values, as_pairs, check_alpha, check_margin
from trivet.stats.wording import NumberStyle, p_text, percent, plain_number

__all__ = ["Region", "region", "region_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Region(Result):
    """An effect against a margin. Differences are b − a, in the metric's own unit."""

    effect: float
    """Estimated difference."""
    standard_error: float
    """Its standard error."""
    df: float
    """Degrees of freedom."""
    margin: float
    """Largest difference that does not matter; 0 means that none was given."""
    alpha: float
    """Error rate of each decision."""
    low: float
    """Lower end of the 1 − alpha interval."""
    high: float
    """Upper end of the 1 − alpha interval."""
    inner_low: float
    """Lower end of the 1 − 2·alpha interval."""
    inner_high: float
    """Upper end of the 1 − 2·alpha interval."""
    p_difference: float
    """Two-sided p-value of "no difference"."""
    p_equivalent: float
    """TOST p-value; 1 without a margin."""
    p_beyond: float
    """p-value of "the difference lies within the margin", against the side of the effect."""
    below: float
    """Posterior probability of a difference below −margin."""
    inside: float
    """Posterior probability of a difference within the margin."""
    above: float
    """Posterior probability of a difference above the margin."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the 1 − alpha interval excludes 0."""
        return self.low > 0.0 or self.high < 0.0

    @property
    def within_margin(self) -> bool:
        """Whether the 1 − 2·alpha interval lies inside the margin."""
        return self.margin > 0.0 and -self.margin < self.inner_low and self.inner_high < self.margin

    @property
    def beyond_margin(self) -> bool:
        """Whether the whole 1 − alpha interval lies outside the margin."""
        return self.margin > 0.0 and (self.low > self.margin or self.high < -self.margin)

    @property
    def label(self) -> Label:
        """The verdict of the intervals alone."""
        if self.within_margin and (not self.excludes_zero or (-self.margin < self.low and self.high < self.margin)):
            return "equivalent"
        return "different" if self.excludes_zero else "undecided"

    def __str__(self) -> str:
        """Write verdict, effect, both intervals and the three probabilities on one line."""
        write = NumberStyle((self.high - self.low) / 2, self.effect)
        text = (
            f"{self.label}: {write(self.effect)} ({percent(1 - self.alpha)} {write(self.low)} to {write(self.high)}, "
            f"{percent(1 - 2 * self.alpha)} {write(self.inner_low)} to {write(self.inner_high)})"
        )
        if self.margin == 0.0:
            return text
        return (
            f"{text}; against ±{plain_number(self.margin)}: TOST {p_text(self.p_equivalent)}, probability below "
            f"{self.below:.3f}, inside {self.inside:.3f}, above {self.above:.3f}"
        )


def region(a: Values, b: Values, margin: float, *, alpha: float = 0.05, correlation: float = 0.0) -> Region:
    """Hold the paired differences b − a against a margin.

    Args:
        a: Outcomes of the first arm, shape `[n]`, n ≥ 2.
        b: Outcomes of the second arm, position by position on the same seeds or folds.
        margin: Largest difference that does not matter; 0 means "none given".
        alpha: Error rate, in (0, 0.5).
        correlation: Correlation of two differences through shared training data, in [0, 1); 0 for seeds.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, the arms differ in length or have fewer than 2 values, or another argument
            is out of range.

    Examples:
        >>> found = region([0.90, 0.91, 0.92, 0.93], [0.901, 0.909, 0.921, 0.93], margin=0.01)
        >>> found.label, round(found.inside, 4)
        ('equivalent', 0.9998)
    """
    pairs = as_pairs(a, b)
    if pairs.n < 2:
        raise ValueError(f"{pairs.n} pair(s) given; an interval needs at least 2 (and a verdict 6). Run more seeds.")
    if not 0.0 <= correlation < 1.0:
        raise ValueError(f"`correlation={correlation}` must lie in [0, 1); use 0 for seeds, 1/k for k folds.")
    error = pairs.sd * math.sqrt(1.0 / pairs.n + correlation / (1.0 - correlation))
    return region_of(pairs.mean, error, pairs.n - 1, margin, alpha)


def region_of(effect: float, standard_error: float, df: float, margin: float = 0.0, alpha: float = 0.05) -> Region:
    """Hold any estimate with a standard error against a margin.

    Args:
        effect: The estimated difference.
        standard_error: Its standard error, 0 or above; 0 makes every interval a point.
        df: Degrees of freedom, above 0; may be infinite.
        margin: Largest difference that does not matter; 0 means "none given".
        alpha: Error rate, in (0, 0.5).

    Raises:
        ValueError: An argument is not finite or out of range.

    Examples:
        >>> found = region_of(0.1, 0.2, 9, margin=0.5)
        >>> found.label, round(found.p_equivalent, 4), round(found.below + found.inside + found.above, 9)
        ('equivalent', 0.0383, 1.0)
    """
    check_alpha(alpha)
    check_margin(margin, zero=True)
    if not math.isfinite(effect):
        raise ValueError(f"`effect={effect}` must be finite; take diverged runs out and report their number.")
    if not (math.isfinite(standard_error) and standard_error >= 0.0 and df > 0.0):
        raise ValueError(f"`standard_error={standard_error}` must be ≥ 0 and finite and `df={df}` above 0.")
    outer, inner = (t_quantile(df, 1.0 - share) * standard_error for share in (alpha / 2.0, alpha))
    above, below = (_tail(side, standard_error, df) for side in (margin - effect, margin + effect))
    return Region(
        effect=effect,
        standard_error=standard_error,
        df=df,
        margin=margin,
        alpha=alpha,
        low=effect - outer,
        high=effect + outer,
        inner_low=effect - inner,
        inner_high=effect + inner,
        p_difference=min(1.0, 2.0 * _tail(abs(effect), standard_error, df)) if effect else 1.0,
        p_equivalent=max(above, below) if margin > 0.0 else 1.0,
        p_beyond=_tail(abs(effect) - margin, standard_error, df),
        below=below,
        inside=max(0.0, 1.0 - below - above),
        above=above,
    )


def _tail(distance: float, error: float, df: float) -> float:
    """P(T > distance / error), which is also the posterior of lying further than `distance` off."""
    if error > 0.0:
        return t_tail(df, distance / error)
    return 0.0 if distance > 0.0 else 1.0
