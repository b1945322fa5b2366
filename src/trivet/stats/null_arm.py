"""Is an effect larger than rounding can explain? Effects against an arm that differs by rounding alone.

The null arm is trained like the baseline, but for noise of the size of rounding (`noise: {kind: rounding, bits: 24}`).
Its differences r_i from the baseline, seed by seed, are what rounding alone does to the outcome:

    RMS = √(mean(r²)),   reach = 2 · RMS,   ratio = |mean(d)| / reach

with d_i the differences of another arm. Were r normal, 95 of 100 runs would differ by less than the reach. The interval
of the ratio joins the 1 − alpha t-interval of mean(d) with the 1 − alpha χ² interval of RMS (Bonferroni, so it holds
however d and r are correlated through the baseline that they share), at worst in each direction:

- **larger**: the sign-flip p of d is ≤ alpha (after Holm in a family) and the whole interval lies above 1;
- **no larger**: the whole interval lies below 1;
- **undecided**: neither, and always below 6 pairs in either arm.

If the arm differs from the baseline by rounding alone, however distributed, "larger" is wrong with probability alpha at
most: d is then symmetric about 0, and the sign-flip test exact. At a true ratio of 1 each claim is wrong with
probability alpha at most for normal data. Where rounding seldom matters but then much, a null arm of few seeds may
have seen none of it, and "larger" means: than anything seen (rates in docs/null-arm.md).

Not covered: rounding of other sizes than the null arm's, effects on the spread instead of the mean, unpaired runs.
"""

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Literal

from trivet.stats.compare import compare_pairs
from trivet.stats.distributions import sd_factors
from trivet.stats.power import MIN_PAIRS
from trivet.stats.result import Result
from trivet.stats.spread import PilotPlan, seeds_from_pilot
from trivet.stats.values import Values, as_pairs, check_alpha, check_margin, mean_and_sd
from trivet.stats.wording import NumberStyle, p_text, pairs_text, percent, plain_number

__all__ = ["REACH", "AgainstNull", "NullArm", "against_null", "null_arm"]

REACH = 2.0
"""How many root mean squares of its differences rounding is said to explain."""

PLANNED_MARGIN = 0.2
"""Margin, in SDs over seeds, that pairs are planned for where the study has none."""

Label = Literal["larger", "no larger", "undecided"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NullArm(Result):
    """What rounding alone does to the outcome. Everything is in the metric's own unit unless it is a ratio."""

    name: str
    """Name of the null arm."""
    n: int
    """Pairs of null arm and baseline."""
    mean: float
    """Mean difference from the baseline."""
    sd: float
    """Standard deviation of the differences (divisor n − 1)."""
    rms: float
    """Root mean square of the differences."""
    rms_low: float
    """Lower end of its interval."""
    rms_high: float
    """Upper end of its interval."""
    largest: float
    """Largest difference, without its sign."""
    reach: float
    """2 · RMS: as much as rounding is said to explain."""
    sd_seed: float
    """Standard deviation of the baseline over seeds."""
    confidence: float
    """Coverage of the interval, such as 0.95."""
    plan: PilotPlan | None
    """Pairs that an arm which changes no more than rounding needs to be found equivalent; `None` without any spread."""

    @property
    def ratio(self) -> float | None:
        """SD of the differences over the SD of the seeds: how far pairing carries; `None` when seeds do not vary."""
        return self.sd / self.sd_seed if self.sd_seed > 0.0 else None

    def __str__(self) -> str:
        """Write spread, ratio, reach and the pairs needed."""
        runs = f"null arm {self.name}, n = {pairs_text(self.n)}"
        if self.rms == 0.0:
            text = f"Rounding alone ({runs}) changes nothing: every difference is exactly 0."
        else:
            ratio = "" if self.ratio is None else f", {self.ratio:.2g} times the SD over seeds"
            text = (
                f"Rounding alone ({runs}) changes the outcome by an SD of {plain_number(self.sd)}{ratio}; it explains "
                f"differences up to ±{plain_number(self.reach)} (2 RMS; {percent(self.confidence)} interval "
                f"{plain_number(REACH * self.rms_low)} to {plain_number(REACH * self.rms_high)})."
            )
        if self.plan is None:
            return text
        safe = "more than a million" if self.plan.safe_pairs is None else f"{self.plan.safe_pairs:,}"
        return (
            f"{text} At this spread {self.plan.target} needs {pairs_text(self.plan.pairs)} for "
            f"{percent(self.plan.power)} power, {safe} to be safe."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AgainstNull(Result):
    """An arm's effect against what rounding alone does."""

    label: Label
    """ "larger", "no larger" or "undecided"."""
    sentence: str
    """The same in plain English, with effect, reach, ratio, interval and n."""
    effect: float
    """Mean difference arm − baseline."""
    low: float
    """Lower end of its 1 − alpha t-interval."""
    high: float
    """Upper end."""
    in_seed_sds: float | None
    """Effect over the baseline's SD over seeds; `None` when seeds do not vary."""
    ratio: float | None
    """|effect| / reach; `None` when rounding changed nothing."""
    ratio_low: float | None
    """Lower end of the ratio's 1 − 2·alpha interval; `None` when rounding changed nothing."""
    ratio_high: float | None
    """Upper end."""
    n: int
    """Pairs of arm and baseline."""
    p: float
    """Sign-flip p, after Holm's correction if there is a family."""
    alpha: float
    """Error rate of each of the two claims."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def null_arm(
    baseline: Values, null: Values, *, name: str = "null", margin: float = 0.0, alpha: float = 0.05
) -> NullArm:
    """Measure what rounding alone does to the outcome.

    Args:
        baseline: Outcomes of the baseline, at least 2.
        null: Outcomes of the null arm, position by position on the same seeds.
        name: Name of the null arm.
        margin: Largest difference that does not matter, for the number of pairs needed; 0 takes 0.2 SDs over seeds.
        alpha: Error rate; the interval has coverage 1 − alpha.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: Fewer than 2 pairs, a value that is not finite, or an argument out of range.

    Examples:
        >>> found = null_arm([1.0, 2.0, 3.0, 4.0], [1.01, 1.99, 3.01, 3.99], name="2^-24", margin=0.05)
        >>> round(found.reach, 3), round(found.ratio, 4)
        (0.02, 0.0089)
        >>> found.plan.pairs
        6
    """
    check_alpha(alpha)
    check_margin(margin, zero=True)
    pairs = as_pairs(baseline, null)
    if pairs.n < 2:
        raise ValueError(f"{pairs.n} pair(s) of null arm and baseline; a spread needs at least 2. Run more seeds.")
    rms = math.hypot(pairs.mean, pairs.sd * math.sqrt((pairs.n - 1) / pairs.n))
    shrink, stretch = sd_factors(pairs.n, 1.0 - alpha)
    sd_seed = mean_and_sd(pairs.a)[1]
    plan, wanted = None, margin or PLANNED_MARGIN * sd_seed
    if wanted > 0.0:
        with contextlib.suppress(ValueError):  # the arguments are sound, so only "more than a million" is left
            plan = seeds_from_pilot(baseline, null, margin=wanted, alpha=alpha)
    return NullArm(
        name=name,
        n=pairs.n,
        mean=pairs.mean,
        sd=pairs.sd,
        rms=rms,
        rms_low=shrink * rms,
        rms_high=stretch * rms,
        largest=max(abs(d) for d in pairs.differences.tolist()),
        reach=REACH * rms,
        sd_seed=sd_seed,
        confidence=1.0 - alpha,
        plan=plan,
    )


def against_null(
    baseline: Values,
    arm: Values,
    null: NullArm,
    *,
    names: tuple[str, str] = ("a", "b"),
    metric: str = "",
    alpha: float = 0.05,
    adjusted_p: float | None = None,
    seed: int = 0,
) -> AgainstNull:
    """Hold an arm's effect against what rounding alone does.

    Args:
        baseline: Outcomes of the baseline, at least 2.
        arm: Outcomes of the arm, position by position on the same seeds.
        null: What rounding does, as `null_arm` measured it against the same baseline.
        names: Names of baseline and arm.
        metric: Name of the metric.
        alpha: Error rate of each claim.
        adjusted_p: Sign-flip p after correction for a family; at least the raw p is used.
        seed: Seed of the random sign patterns, used only above 30 pairs.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: Fewer than 2 pairs, a value that is not finite, or an argument out of range.

    Examples:
        >>> base = [0.30, 0.32, 0.31, 0.29, 0.33, 0.30, 0.28, 0.31]
        >>> rounded = [x + d for x, d in zip(base, [1e-4, -2e-4, 1e-4, 0.0, 2e-4, -1e-4, 1e-4, -1e-4])]
        >>> null = null_arm(base, rounded, name="2^-24")
        >>> print(against_null(base, [x + 0.01 + 0.001 * (i % 3) for i, x in enumerate(base)], null, metric="loss"))
        43 × larger than rounding can explain (at least 21 ×): the effect on loss is +0.01088, 0.678 seed SDs, and \
rounding alone explains ±0.000255 (null arm 2^-24, n = 8 pairs).
    """
    check_alpha(alpha)
    pairs = as_pairs(baseline, arm)
    found = compare_pairs(pairs, confidence=1.0 - alpha, names=names, seed=seed)
    least = max(found.low, -found.high, 0.0)
    most = max(abs(found.low), abs(found.high))
    p = max(found.p, adjusted_p or 0.0)
    is_sure = p <= alpha and least > 0.0
    enough = min(pairs.n, null.n) >= MIN_PAIRS
    ratio = low = high = None
    if null.rms > 0.0:
        ratio, low, high = (
            abs(found.effect) / null.reach,
            least / (REACH * null.rms_high),
            most / (REACH * null.rms_low),
        )
    label: Label = "undecided"
    if enough and is_sure and (low is None or low > 1.0):
        label = "larger"
    elif enough and (most == 0.0 or (high is not None and high < 1.0)):
        label = "no larger"
    sds = found.effect / null.sd_seed if null.sd_seed > 0.0 else None
    result = AgainstNull(
        label=label, sentence="", effect=found.effect, low=found.low, high=found.high, in_seed_sds=sds,
        ratio=ratio, ratio_low=low, ratio_high=high, n=pairs.n, p=p, alpha=alpha,
    )  # fmt: skip
    return replace(result, sentence=_sentence(result, null, metric))


def _sentence(found: AgainstNull, null: NullArm, metric: str) -> str:
    write = NumberStyle((found.high - found.low) / 2, found.effect)
    on = f" on {metric}" if metric else ""
    sds = "" if found.in_seed_sds is None else f", {plain_number(abs(found.in_seed_sds))} seed SDs"
    runs = f"(null arm {null.name}, n = {pairs_text(null.n)})"
    explains = f"rounding alone explains ±{plain_number(null.reach)} {runs}"
    if null.rms == 0.0:
        explains = f"rounding alone changes nothing {runs}"
    facts = f"the effect{on} is {write(found.effect)}{sds}, and {explains}."
    if found.label == "larger":
        if found.ratio is None or found.ratio_low is None:
            return f"Larger than rounding can explain: {facts}"
        return f"{_times(found.ratio)} larger than rounding can explain (at least {_times(found.ratio_low)}): {facts}"
    if found.label == "no larger":
        high = "" if found.ratio_high is None else f" (at most {plain_number(found.ratio_high)} of it)"
        return f"No larger than rounding explains{high}: {facts}"
    if found.ratio is None or found.ratio_low is None or found.ratio_high is None:
        return f"Whether rounding explains it is undecided: {facts}"
    between = f"{_times(found.ratio)}, {percent(1 - 2 * found.alpha)} interval {_times(found.ratio_low)} to"
    fewest = f" Below {MIN_PAIRS} pairs nothing is claimed." if min(found.n, null.n) < MIN_PAIRS else ""
    doubt = f" The effect itself is not sure ({p_text(found.p)})." if found.ratio_low > 1.0 and not fewest else ""
    return f"Whether rounding explains it is undecided ({between} {_times(found.ratio_high)}): {facts}{fewest}{doubt}"


def _times(ratio: float) -> str:
    return f"{float(f'{ratio:.2g}'):,.10g} ×"
