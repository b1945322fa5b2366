"""Is the spread of accuracies over runs more than a finite test set explains? And how many seeds does a pilot ask for?

An accuracy p measured on N examples has, if each example's outcome were drawn anew, the binomial standard deviation

    floor = √(p (1 − p) / N)

and the observed SD s of R runs is compared with it: s/floor, and (R − 1) s²/floor² against χ²(R − 1). Much of what is
reported as "variance between seeds" is this floor (Jordan 2024): it says how far the *test set* spreads runs that are
equally good, and more test examples make it smaller. All runs share one test set, so examples that every run gets right
add nothing: s may lie below the floor without anything being wrong.

Not covered: the SD of the true accuracy over all possible test sets (on one shared set s² − floor² does not estimate
it).
"""

import contextlib
import math
from dataclasses import dataclass

from trivet.stats.distributions import sd_factors
from trivet.stats.power import MIN_PAIRS, seeds_needed
from trivet.stats.result import Result
from trivet.stats.values import Values, as_pairs, as_values, check_alpha, check_margin, mean_and_sd
from trivet.stats.wording import p_text, pairs_text, percent

__all__ = ["AccuracySpread", "PilotPlan", "accuracy_spread", "seeds_from_pilot"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracySpread(Result):
    """Spread of accuracies over runs and its binomial floor."""

    mean: float
    """Mean accuracy."""
    sd: float
    """Standard deviation over runs (divisor R − 1)."""
    low: float
    """Lower end of the standard deviation's interval."""
    high: float
    """Upper end of the standard deviation's interval."""
    floor: float
    """Binomial standard deviation of one accuracy on this many examples."""
    ratio: float | None
    """sd / floor; `None` when the floor is 0 (all right or all wrong)."""
    p: float
    """p-value of "no more spread than the floor" (one-sided χ²)."""
    runs: int
    """Number of runs."""
    examples: int
    """Number of test examples."""
    confidence: float
    """Coverage of the interval, such as 0.95."""

    def __str__(self) -> str:
        """Write mean, SD with interval, floor and n on one line."""
        ratio = "no floor" if self.ratio is None else f"{self.ratio:.2f} times the binomial floor {self.floor:.2g}"
        return (
            f"accuracy {self.mean:.4f}, SD over runs {self.sd:.2g} ({percent(self.confidence)} {self.low:.2g} to "
            f"{self.high:.2g}), {ratio} (χ² {p_text(self.p)}; {self.runs} runs, {self.examples:,} examples)"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PilotPlan(Result):
    """Pairs that a study needs, planned from a pilot."""

    pairs: int
    """Pairs needed if the pilot's SD of the differences is the true one."""
    safe_pairs: int | None
    """Pairs needed if the true SD is at its upper confidence limit; `None` above a million."""
    sd_difference: float
    """SD of the paired differences in the pilot."""
    sd_high: float
    """Its upper confidence limit (one-sided)."""
    sd_seed: float
    """SD over seeds of one arm (root mean square of both)."""
    pilot_pairs: int
    """Pairs in the pilot."""
    confidence: float
    """Of the upper limit, such as 0.8."""
    power: float
    """Probability of the verdict that is planned for."""
    target: str
    """What is planned for, in words."""

    @property
    def ratio(self) -> float | None:
        """SD of the differences over the SD of the seeds: below 1.41 pairing helps; `None` when seeds do not vary."""
        return self.sd_difference / self.sd_seed if self.sd_seed > 0.0 else None

    def __str__(self) -> str:
        """Write both numbers and what they rest on."""
        safe = "more than a million" if self.safe_pairs is None else f"{self.safe_pairs:,}"
        ratio = "" if self.ratio is None else f", {self.ratio:.2g} times the SD over seeds"
        return (
            f"{pairs_text(self.pairs)} for {self.target} with {percent(self.power)} power; {safe} to be safe (pilot of "
            f"{pairs_text(self.pilot_pairs)}: SD of the differences {self.sd_difference:.3g}{ratio}, with "
            f"{percent(self.confidence)} confidence at most {self.sd_high:.3g})"
        )


def accuracy_spread(accuracies: Values, examples: int, *, confidence: float = 0.95) -> AccuracySpread:
    """Compare the spread of accuracies over runs with the binomial floor.

    Args:
        accuracies: Accuracy of each run on the same test set, in [0, 1], at least 2.
        examples: Size of the test set.
        confidence: Coverage of the interval of the SD, in (0.5, 1).

    Raises:
        TypeError: `accuracies` is not a flat sequence of numbers.
        ValueError: Fewer than 2 runs, a value outside [0, 1] (percentages, for instance), or an option out of range.

    Examples:
        >>> print(accuracy_spread([0.91, 0.92, 0.90, 0.93], 10_000))
        accuracy 0.9150, SD over runs 0.013 (95 % 0.0073 to 0.048), 4.63 times the binomial floor 0.0028 \
(χ² p < 0.0001; 4 runs, 10,000 examples)
    """
    from scipy import special

    check_alpha(1.0 - confidence, "1 - confidence")
    values = as_values(accuracies, "accuracies")
    if values.size < 2:
        raise ValueError(f"{values.size} run(s) given; a spread needs at least 2. Run more seeds.")
    outside = [x for x in values.tolist() if not 0.0 <= x <= 1.0]
    if outside:
        raise ValueError(f"accuracy {outside[0]:g} lies outside [0, 1]; give fractions, not percentages.")
    if examples < 1:
        raise ValueError(f"`examples={examples}` must be at least 1; give the size of the test set.")
    mean, sd = mean_and_sd(values)
    floor = math.sqrt(max(0.0, mean * (1.0 - mean)) / examples)
    shrink, stretch = sd_factors(values.size - 1, confidence)
    p = 1.0 if sd == 0.0 else 0.0
    if floor > 0.0:
        p = float(special.chdtrc(values.size - 1, (values.size - 1) * (sd / floor) ** 2))
    return AccuracySpread(
        mean=mean,
        sd=sd,
        low=shrink * sd,
        high=stretch * sd,
        floor=floor,
        ratio=sd / floor if floor > 0.0 else None,
        p=p,
        runs=values.size,
        examples=examples,
        confidence=confidence,
    )


def seeds_from_pilot(
    a: Values,
    b: Values,
    *,
    difference: float | None = None,
    margin: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    family_size: int = 1,
    confidence: float = 0.8,
) -> PilotPlan:
    """Plan the number of pairs from a pilot: at its SD, and at the upper confidence limit of its SD.

    An SD from few pairs is rough, and a study planned at the pilot's own SD falls short more often than not; planned at
    the upper limit, with probability `confidence` it does not.

    Args:
        a: The pilot's outcomes of the first arm, at least 2.
        b: Those of the second arm, position by position on the same seeds.
        difference: True mean difference to find, not 0.
        margin: Or: largest difference that does not matter, above 0, to show equivalence.
        power: Probability wanted, in (0, 1).
        alpha: Error rate of the verdict.
        family_size: Comparisons in the family (only for `difference`).
        confidence: Of the upper limit of the SD, in (0.5, 1).

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: Fewer than 2 pairs, both or neither question, or an argument out of range.

    Examples:
        >>> a, b = [0.90, 0.92, 0.91, 0.93], [0.91, 0.92, 0.93, 0.93]
        >>> plan = seeds_from_pilot(a, b, margin=0.005)
        >>> plan.pairs, plan.safe_pairs
        (33, 96)
    """
    check_alpha(1.0 - confidence, "1 - confidence")
    if (difference is None) == (margin is None):
        raise ValueError("give exactly one of `difference` (to find it) and `margin` (to show equivalence).")
    if margin is not None:
        check_margin(margin, zero=False)
    pairs = as_pairs(a, b)
    if pairs.n < 2:
        raise ValueError(f"{pairs.n} pair(s) in the pilot; a spread needs at least 2. Run more seeds.")
    # one-sided limit: the upper end of a two-sided interval with twice the tail
    high = pairs.sd * sd_factors(pairs.n - 1, 2.0 * confidence - 1.0)[1]
    sd_a, sd_b = mean_and_sd(pairs.a)[1], mean_and_sd(pairs.b)[1]

    def needed(sd: float) -> int:
        if sd == 0.0:
            return MIN_PAIRS
        return seeds_needed(sd, difference=difference, margin=margin, power=power, alpha=alpha, family_size=family_size)

    planned = needed(pairs.sd)
    safe: int | None = None
    with contextlib.suppress(ValueError):  # the arguments are sound, so only "more than a million" is left
        safe = needed(high)
    return PilotPlan(
        pairs=planned,
        safe_pairs=safe,
        sd_difference=pairs.sd,
        sd_high=high,
        sd_seed=math.hypot(sd_a, sd_b) / math.sqrt(2.0),
        pilot_pairs=pairs.n,
        confidence=confidence,
        power=power,
        target=f'"different" at ±{abs(difference):g}' if difference is not None else f'"equivalent" within ±{margin:g}',
    )
