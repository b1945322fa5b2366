"""Different, equivalent or undecided: one rule for every comparison in trivet.

With paired differences b − a, error rate alpha (5 %) and an equivalence margin m fixed in advance:

- **different**: the 1 − alpha t-interval excludes 0 *and* the exact sign-flip p (after Holm in a family) is ≤ alpha.
  Asking for both keeps false alarms at or below alpha for any two arms with the same distribution, however skewed.
- **equivalent**: the 1 − 2·alpha t-interval lies inside (−m, m) (TOST). Without a margin nothing is ever equivalent.
- both hold: "equivalent" if the whole 1 − alpha interval is inside the margin (the sentence then says that a small
  but sure difference exists), else "different".
- **undecided**: neither, and always below 6 pairs, where the exact test cannot reach 5 %.

Not covered: looking again after adding pairs (each extra look raises the error; fix n beforehand), arms of which one
alone is strongly skewed (false alarms about the *mean* reach 15 %, see docs/statistics.md), unpaired arms, devices as
experimental units.
"""

from dataclasses import dataclass

from trivet.stats import sentences
from trivet.stats.compare import Comparison, compare_pairs
from trivet.stats.equivalence import Equivalence, equivalence_of_pairs
from trivet.stats.power import MIN_PAIRS, needed_for_difference, needed_for_equivalence
from trivet.stats.result import Result
from trivet.stats.sentences import Facts, Label, Reason
from trivet.stats.signflip import min_pairs
from trivet.stats.values import Values, as_pairs, check_alpha, check_margin

__all__ = ["PLANNED_POWER", "Label", "Reason", "Verdict", "decide"]

PLANNED_POWER = 0.8
"""Probability behind `Verdict.more_seeds`."""

PAIRS_LIMIT = 10_000
"""Above this number of pairs in all, `Verdict.more_seeds` is `None`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict(Result):
    """The verdict on two arms and everything it rests on."""

    label: Label
    """ "different", "equivalent" or "undecided"."""
    sentence: str
    """The verdict in plain English, with effect, interval, n, method and p."""
    more_seeds: int | None
    """When undecided: further pairs that would decide with 80 % probability; `None` when decided or out of reach."""
    reason: Reason
    """When undecided: why, in a few fixed words; otherwise empty."""
    sure_difference: bool
    """Whether a difference is established (may hold beside "equivalent")."""
    within_margin: bool
    """Whether equivalence is established (may hold beside "different")."""
    beyond_margin: bool
    """Whether a difference is established and the whole interval lies beyond the margin."""
    n: int
    """Number of pairs."""
    p: float | None
    """Sign-flip p that was compared with alpha, Holm-adjusted in a family; `None` below 2 pairs."""
    family_size: int
    """Comparisons in the family (1: no correction)."""
    alpha: float
    """Error rate of each of the two decisions."""
    margin: float
    """Equivalence margin in the metric's unit; 0 means that none was given."""
    metric: str
    """Name of the metric, or empty."""
    names: tuple[str, str]
    """Names of arm a and arm b."""
    comparison: Comparison | None
    """Effect, interval and p; `None` below 2 pairs."""
    equivalence: Equivalence | None
    """The equivalence test; `None` without a margin or below 2 pairs."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def decide(
    a: Values,
    b: Values,
    margin: float = 0.0,
    alpha: float = 0.05,
    names: tuple[str, str] = ("a", "b"),
    metric: str = "",
    adjusted_p: float | None = None,
    *,
    family_size: int = 1,
    lost: int = 0,
    seed: int = 0,
) -> Verdict:
    """Decide whether two arms, paired by position, are different, equivalent or undecided.

    Args:
        a: Outcomes of the first arm, shape `[n]`; fewer than 6 pairs are always undecided.
        b: Outcomes of the second arm, position by position on the same seeds.
        margin: Largest difference that does not matter, in the metric's unit; 0 means "none given".
        alpha: Error rate, in (0, 0.5).
        names: Names of the two arms.
        metric: Name of the metric.
        adjusted_p: Sign-flip p after correction for a family (see `decide_family`); at least the raw p is used.
        family_size: Number of comparisons in that family.
        lost: Pairs that could not be compared because a run diverged or failed; only told in the sentence.
        seed: Seed of the random sign patterns, used only above 30 pairs.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, the arms differ in length, or another argument is out of range.

    Examples:
        >>> a = [0.901, 0.912, 0.897, 0.905, 0.908, 0.899, 0.903, 0.910]
        >>> b = [0.902, 0.911, 0.899, 0.904, 0.909, 0.898, 0.902, 0.911]
        >>> verdict = decide(a, b, margin=0.005, names=("fp32", "RR"), metric="test_accuracy")
        >>> verdict.label
        'equivalent'
        >>> print(verdict)
        RR and fp32 are equivalent on test_accuracy: the mean difference RR − fp32 = +0.00013 (90 % interval \
−0.00071 to +0.00096, n = 8 pairs, TOST p < 0.0001) lies inside ±0.005.
    """
    check_alpha(alpha)
    check_margin(margin, zero=True)
    fewest = max(MIN_PAIRS, min_pairs(alpha, family_size))
    if lost < 0:
        raise ValueError(f"`lost={lost}` must be 0 or above; give the number of pairs that could not be compared.")
    if adjusted_p is not None and not 0.0 <= adjusted_p <= 1.0:
        raise ValueError(f"`adjusted_p={adjusted_p}` must lie in [0, 1]; use `holm` on the raw p-values.")
    pairs = as_pairs(a, b)
    if pairs.n < 2:
        return _nothing_to_compare(pairs.n, fewest, names, metric, margin, alpha, family_size, lost)
    comparison = compare_pairs(pairs, confidence=1.0 - alpha, names=names, seed=seed, family_size=family_size)
    facts = Facts(
        comparison=comparison,
        equivalence=equivalence_of_pairs(pairs, margin, alpha) if margin > 0.0 else None,
        metric=metric,
        alpha=alpha,
        p=max(comparison.p, adjusted_p or 0.0),
        family_size=family_size,
        fewest=fewest,
        constant=pairs.constant,
        identical=pairs.identical,
    )
    return _verdict(facts, margin, lost)


def _verdict(facts: Facts, margin: float, lost: int) -> Verdict:
    c, e = facts.comparison, facts.equivalence
    enough = c.n >= MIN_PAIRS
    sure = enough and facts.p <= facts.alpha and (c.low > 0.0 or c.high < 0.0)
    within = enough and e is not None and e.equivalent
    reason: Reason = ""
    more: int | None = None
    if within and (not sure or (-margin < c.low and c.high < margin)):
        label: Label = "equivalent"
        sentence = sentences.equivalent(facts, sure_difference=sure)
    elif sure:
        label = "different"
        sentence = sentences.different(facts)
    else:
        label, reason = "undecided", _reason(facts)
        more, likely = _more_pairs(facts)
        sentence = sentences.undecided(facts, reason, more, likely)
    return Verdict(
        label=label,
        sentence=sentence + _lost_text(lost),
        more_seeds=more,
        reason=reason,
        sure_difference=sure,
        within_margin=within,
        beyond_margin=sure and sentences.beyond_margin(facts),
        n=c.n,
        p=facts.p,
        family_size=facts.family_size,
        alpha=facts.alpha,
        margin=margin,
        metric=facts.metric,
        names=c.names,
        comparison=c,
        equivalence=e,
    )


def _reason(facts: Facts) -> Reason:
    c = facts.comparison
    excludes_zero = c.low > 0.0 or c.high < 0.0
    if c.n < MIN_PAIRS:
        return "too few pairs"
    if excludes_zero and c.n < facts.fewest:
        return "family too large" if facts.family_size > 1 else "too few pairs"
    if excludes_zero != (facts.p <= facts.alpha):
        return "tests disagree"
    return "no margin" if facts.equivalence is None else "interval too wide"


def _more_pairs(facts: Facts) -> tuple[int | None, Label]:
    """Further pairs that would decide with 80 % probability if mean and SD stay as observed, and the likely verdict."""
    c, e = facts.comparison, facts.equivalence
    floor = MIN_PAIRS if e is not None and abs(c.effect) < e.margin else facts.fewest
    if facts.constant:
        return (floor - c.n, "undecided") if c.n < floor else (None, "undecided")
    sd = c.sd_difference or 0.0
    options: list[tuple[int, Label]] = []
    unit = abs(c.effect) / sd
    if unit > 0.0:
        n = needed_for_difference(unit, PLANNED_POWER, facts.alpha, facts.family_size, "decide", PAIRS_LIMIT)
        if n is not None:
            options.append((n, "different"))
    if e is not None and abs(c.effect) < e.margin:
        n = needed_for_equivalence(e.margin / sd, unit, PLANNED_POWER, facts.alpha, "decide", PAIRS_LIMIT)
        if n is not None:
            options.append((n, "equivalent"))
    if not options:
        return None, "undecided"
    total, likely = min(options)
    return max(1, total - c.n), likely


def _nothing_to_compare(
    n: int,
    fewest: int,
    names: tuple[str, str],
    metric: str,
    margin: float,
    alpha: float,
    family_size: int,
    lost: int,
) -> Verdict:
    more = (MIN_PAIRS if margin > 0.0 else fewest) - n
    return Verdict(
        label="undecided",
        sentence=sentences.no_comparison(names, metric, n, more) + _lost_text(lost),
        more_seeds=more,
        reason="too few pairs",
        sure_difference=False,
        within_margin=False,
        beyond_margin=False,
        n=n,
        p=None,
        family_size=family_size,
        alpha=alpha,
        margin=margin,
        metric=metric,
        names=names,
        comparison=None,
        equivalence=None,
    )


def _lost_text(lost: int) -> str:
    if lost == 0:
        return ""
    return f" {lost} further {'pair' if lost == 1 else 'pairs'} could not be compared: a run diverged or failed."
