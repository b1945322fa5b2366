"""Two arms: mean difference b − a, its interval, and the exact sign-flip p.

Paired (the default; position i of both arms is the same seed), with d_i = b_i − a_i:

    effect = mean(d),   interval = effect ± t(n − 1, (1 + c)/2) · SD(d) / √n,   p = sign-flip p of d (see `signflip`)

Unpaired: Welch's interval and p, with Satterthwaite's degrees of freedom.

Not covered: more than two arms at once, ratios, rank statistics, devices as experimental units.
"""

import math
from dataclasses import dataclass

import numpy as np

from trivet.stats.distributions import t_quantile, t_tail
from trivet.stats.power import smallest_detectable
from trivet.stats.result import Result
from trivet.stats.signflip import sign_flip_method, sign_flip_p
from trivet.stats.values import FloatArray, Pairs, Values, as_pairs, as_values, check_alpha, mean_and_sd
from trivet.stats.wording import NumberStyle, p_text, percent

__all__ = ["Comparison", "compare", "compare_pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison(Result):
    """Difference between two arms. All differences are b − a, in the metric's own unit."""

    names: tuple[str, str]
    """Names of arm a and arm b."""
    paired: bool
    """Whether the values were paired by position."""
    n: int
    """Number of pairs; when unpaired, size of the smaller arm."""
    n_a: int
    """Runs of arm a."""
    n_b: int
    """Runs of arm b."""
    mean_a: float
    """Mean of arm a."""
    mean_b: float
    """Mean of arm b."""
    sd_a: float
    """Standard deviation of arm a over its runs."""
    sd_b: float
    """Standard deviation of arm b over its runs."""
    effect: float
    """Mean difference b − a."""
    sd_difference: float | None
    """Standard deviation of the paired differences; `None` when unpaired."""
    standard_error: float
    """Standard error of the effect."""
    df: float
    """Degrees of freedom of the interval."""
    confidence: float
    """Coverage of the interval, such as 0.95."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    method: str
    """How the interval was made, in words."""
    p: float
    """Two-sided p-value: exact sign-flip when paired, Welch's t when not."""
    p_method: str
    """How p was made, in words."""
    t_p: float
    """Two-sided p-value of the t-test that belongs to the interval."""
    correlation: float | None
    """Correlation of the two arms over seeds: how far pairing carries; `None` when unpaired or without spread."""
    smallest_detectable: float | None
    """Smallest true difference found with 80 % power at this n and spread; `None` when n can never suffice."""

    @property
    def effect_in_sds(self) -> float | None:
        """Effect in units of the spread over seeds, √((SD_a² + SD_b²) / 2); `None` when there is no spread."""
        pooled = math.hypot(self.sd_a, self.sd_b) / math.sqrt(2.0)
        return self.effect / pooled if pooled > 0.0 else None

    def __str__(self) -> str:
        """Write effect, interval, n, p and smallest detectable difference on one line."""
        write = NumberStyle((self.high - self.low) / 2, self.effect)
        runs = f"n = {self.n} pairs" if self.paired else f"n = {self.n_a} and {self.n_b} runs"
        text = (
            f"{self.names[1]} − {self.names[0]} = {write(self.effect)} ({percent(self.confidence)} {self.method} "
            f"{write(self.low)} to {write(self.high)}, {runs}, {self.p_method} {p_text(self.p)}; "
        )
        if self.smallest_detectable is None:
            return text + "no difference is detectable with so few pairs)"
        detectable = write(self.smallest_detectable).removeprefix("+")
        return text + f"smallest difference detectable with 80 % power: {detectable})"


def compare(
    a: Values,
    b: Values,
    *,
    paired: bool = True,
    confidence: float = 0.95,
    names: tuple[str, str] = ("a", "b"),
    seed: int = 0,
) -> Comparison:
    """Compare two arms: mean difference b − a with interval and p-value.

    Args:
        a: Outcomes of the first arm, shape `[n]`.
        b: Outcomes of the second arm; when paired, position i belongs to the same seed as in `a`.
        paired: Whether positions are pairs. Pair whenever the arms share their seeds.
        confidence: Coverage of the interval, in (0.5, 1).
        names: Names of the two arms, for the text.
        seed: Seed of the random sign patterns, used only above 30 pairs.

    Returns:
        The comparison. When all differences are equal the interval is a point and the t-test's p is 0 (or 1 for no
        difference).

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, paired arms differ in length, or an arm has fewer than 2 values.

    Examples:
        >>> a, b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.5, 2.6, 3.4, 4.7, 5.3, 6.5]
        >>> result = compare(a, b, names=("fp32", "RR"))
        >>> round(result.effect, 3), result.p
        (0.5, 0.03125)
    """
    check_alpha(1.0 - confidence, "1 - confidence")
    if paired:
        return compare_pairs(as_pairs(a, b), confidence=confidence, names=names, seed=seed)
    return _compare_unpaired(as_values(a, "a"), as_values(b, "b"), confidence, names)


def compare_pairs(
    pairs: Pairs, *, confidence: float, names: tuple[str, str], seed: int, family_size: int = 1
) -> Comparison:
    """Compare arms whose pairs are already checked; `family_size` only widens the smallest detectable difference.

    Raises:
        ValueError: Fewer than 2 pairs.
    """
    n = pairs.n
    if n < 2:
        raise ValueError(f"{n} pair(s) given; a comparison needs at least 2 (and a verdict 6). Run more seeds.")
    error = pairs.sd / math.sqrt(n)
    half = t_quantile(n - 1, (1.0 + confidence) / 2.0) * error
    mean_a, sd_a = mean_and_sd(pairs.a)
    mean_b, sd_b = mean_and_sd(pairs.b)
    return Comparison(
        names=names,
        paired=True,
        n=n,
        n_a=n,
        n_b=n,
        mean_a=mean_a,
        mean_b=mean_b,
        sd_a=sd_a,
        sd_b=sd_b,
        effect=pairs.mean,
        sd_difference=pairs.sd,
        standard_error=error,
        df=float(n - 1),
        confidence=confidence,
        low=pairs.mean - half,
        high=pairs.mean + half,
        method="t-interval",
        p=sign_flip_p(pairs.differences, rounding=pairs.rounding, seed=seed),
        p_method=sign_flip_method(n),
        t_p=_two_sided(pairs.mean, error, n - 1),
        correlation=_correlation(pairs.a, pairs.b, sd_a, sd_b),
        smallest_detectable=smallest_detectable(pairs.sd, n, alpha=1.0 - confidence, family_size=family_size),
    )


def _compare_unpaired(a: FloatArray, b: FloatArray, confidence: float, names: tuple[str, str]) -> Comparison:
    n_a, n_b = a.size, b.size
    if min(n_a, n_b) < 2:
        raise ValueError(f"`a` has {n_a} and `b` has {n_b} values; each arm needs at least 2. Run more seeds.")
    mean_a, sd_a = mean_and_sd(a)
    mean_b, sd_b = mean_and_sd(b)
    part_a, part_b = sd_a / math.sqrt(n_a), sd_b / math.sqrt(n_b)
    error = math.hypot(part_a, part_b)
    df = float(n_a + n_b - 2)
    if error > 0.0:
        share_a, share_b = (part_a / error) ** 2, (part_b / error) ** 2
        df = 1.0 / (share_a**2 / (n_a - 1) + share_b**2 / (n_b - 1))
    half = t_quantile(df, (1.0 + confidence) / 2.0) * error
    effect = mean_b - mean_a
    p = _two_sided(effect, error, df)
    # 0.8416 is the normal quantile of 80 %: with an estimated spread, t stands in for the other normal quantile.
    detectable = (t_quantile(df, (1.0 + confidence) / 2.0) + t_quantile(df, 0.8)) * error
    return Comparison(
        names=names,
        paired=False,
        n=min(n_a, n_b),
        n_a=n_a,
        n_b=n_b,
        mean_a=mean_a,
        mean_b=mean_b,
        sd_a=sd_a,
        sd_b=sd_b,
        effect=effect,
        sd_difference=None,
        standard_error=error,
        df=df,
        confidence=confidence,
        low=effect - half,
        high=effect + half,
        method="Welch interval",
        p=p,
        p_method="Welch t",
        t_p=p,
        correlation=None,
        smallest_detectable=detectable,
    )


def _two_sided(effect: float, error: float, df: float) -> float:
    if effect == 0.0:
        return 1.0
    return min(1.0, 2.0 * t_tail(df, abs(effect) / error)) if error > 0.0 else 0.0


def _correlation(a: FloatArray, b: FloatArray, sd_a: float, sd_b: float) -> float | None:
    if sd_a == 0.0 or sd_b == 0.0:
        return None
    unit_a, unit_b = (a - a.mean()) / sd_a, (b - b.mean()) / sd_b
    return float(np.clip(np.dot(unit_a, unit_b) / (a.size - 1), -1.0, 1.0))
