"""Looking at a study while it runs, with the error held over all looks (see `plan_looks` for the plan).

At look k, with n pairs and the error spent so far alpha_k:

- **different**: the exact sign-flip test over all looks stops the data. The share of sign patterns that were stopped at
  an earlier look, or now reach |Σ ±d_i| ≥ |Σ d_i| without having been stopped, is at most alpha_k (Bonferroni in a
  family). Conditional on |d_1| … |d_n| this is the joint distribution of all looks, so P(false "different" at any look)
  ≤ alpha exactly, for any n, whenever d is as likely +x as −x.
- **equivalent**: two one-sided exact sign-flip tests of d ± margin, each at what the plan gives to this look: alpha_k
  less what earlier looks really used. P(false "equivalent" at any look) ≤ Σ levels ≤ alpha by the union bound. The
  bound is chosen over the joint distribution because it also covers every true difference *beyond* the margin, and a
  single look's p-value is known to fall as that difference grows; for the joint test this is not proven.

Both hold for every distribution of d that is symmetric about its mean: two arms of the same shape, however skewed or
heavy-tailed, give one. The interval is the set of differences that the one-sided tests do not reject; all intervals
of a study together cover the true difference with probability 1 − 2·alpha or more.

Not covered: arms of different shape (one skewed, the other not), unpaired arms, stopping one arm of many by itself.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from trivet.stats.look_plan import LookPlan
from trivet.stats.look_text import look_sentence
from trivet.stats.power import MIN_PAIRS
from trivet.stats.result import Result
from trivet.stats.sentences import Label, Reason
from trivet.stats.sign_patterns import Stopping, patterns_text, stopping, subset_limits
from trivet.stats.values import Pairs, Values, as_pairs, check_margin

__all__ = ["Look", "decide_by_looks", "look"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Look(Result):
    """One look: what was seen, what it was held against, and what was decided."""

    number: int
    """Which look of the plan, from 1."""
    planned: int
    """Looks in the plan."""
    n: int
    """Pairs seen."""
    lost: int
    """Pairs of this look that could not be compared because a run diverged or failed."""
    max_pairs: int
    """The most pairs that the plan allows."""
    label: Label
    """ "different", "equivalent" or "undecided"."""
    sentence: str
    """The look in plain English."""
    reason: Reason
    """When undecided: why, in a few fixed words; otherwise empty."""
    sure_difference: bool
    """Whether a difference is established (may hold beside "equivalent")."""
    within_margin: bool
    """Whether equivalence is established."""
    effect: float
    """Mean difference b − a of the pairs seen."""
    low: float | None
    """Lower end of the interval; `None` while the plan's share is below what n pairs can give."""
    high: float | None
    """Upper end of the interval; `None` likewise."""
    p: float
    """Share of sign patterns stopped up to now or at least as extreme as the data: p-value of "no difference"."""
    p_threshold: float
    """Error that "different" may have spent by this look; compared with `p`."""
    margin: float
    """Largest difference that does not matter; 0 means that none was given."""
    p_equivalent: float
    """The larger of the two one-sided p-values; 1 without a margin."""
    equivalent_threshold: float
    """Error that this look may spend on "equivalent"; compared with `p_equivalent`."""
    equivalent_spent: float
    """Error really spent on "equivalent" up to and including this look."""
    alpha: float
    """Error of each decision over all looks."""
    family_size: int
    """Comparisons that are looked at together."""
    method: str
    """How the patterns were counted, in words."""
    metric: str
    """Name of the metric, or empty."""
    names: tuple[str, str]
    """Names of arm a and arm b."""
    when: str
    """When the look was taken, as the caller says; empty when it does not."""

    @property
    def decided(self) -> bool:
        """Whether this look ends the comparison: by a verdict, or because it is the last one."""
        return self.label != "undecided" or self.number == self.planned

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def look(
    plan: LookPlan,
    a: Values,
    b: Values,
    margin: float = 0.0,
    *,
    previous: Sequence[Look] = (),
    lost: int = 0,
    names: tuple[str, str] = ("a", "b"),
    metric: str = "",
    when: str = "",
    seed: int = 0,
) -> Look:
    """Take the next planned look at two arms, paired by position.

    Args:
        plan: The plan, fixed before the first run.
        a: Outcomes of the first arm, shape `[n]`, in the order in which the pairs came: those of earlier looks first.
        b: Outcomes of the second arm, position by position on the same seeds.
        margin: Largest difference that does not matter; 0 means "none given". The same at every look.
        previous: The earlier looks, in order; none of them may have decided.
        lost: Pairs planned up to this look that could not be compared; n + lost must be the planned number.
        names: Names of the two arms.
        metric: Name of the metric.
        when: Time of the look, kept in the record.
        seed: Seed of the random sign patterns, used only above 20 pairs. The same at every look.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite; the arms differ in length; the look is not one of the plan, comes after the
            decision, or does not continue the earlier ones; or an argument is out of range.

    Examples:
        >>> from trivet.stats import plan_looks
        >>> plan = plan_looks(12, looks=(8, 12))
        >>> a = [0.1, 0.2, 0.3, 0.1, 0.2, 0.4, 0.3, 0.1]
        >>> first = look(plan, a, [x + 1 for x in a], margin=0.5)
        >>> first.label, first.number, first.p, round(first.p_threshold, 3)
        ('different', 1, 0.0078125, 0.038)
    """
    check_margin(margin, zero=True)
    pairs = as_pairs(a, b)
    _check_place(plan, pairs, margin, previous, lost)
    number = len(previous) + 1
    spent_before = previous[-1].equivalent_spent if previous else 0.0
    threshold = plan.spent()[number - 1] - spent_before
    limits = subset_limits(pairs.differences, threshold, margin, rounding=pairs.rounding, seed=seed)
    path = _path(plan, pairs, previous, seed)
    label: Label = "equivalent" if limits.within else "different" if path.stopped else "undecided"
    made = Look(
        number=number,
        planned=len(plan.pairs),
        n=pairs.n,
        lost=lost,
        max_pairs=plan.max_pairs,
        label=label,
        sentence="",
        reason=_reason(plan, pairs.n, number, margin) if label == "undecided" else "",
        sure_difference=path.stopped,
        within_margin=limits.within,
        effect=pairs.mean,
        low=_finite(limits.low),
        high=_finite(limits.high),
        p=path.share,
        p_threshold=plan.spent(family=True)[number - 1],
        margin=margin,
        p_equivalent=limits.p,
        equivalent_threshold=threshold,
        equivalent_spent=spent_before + limits.attained,
        alpha=plan.alpha,
        family_size=plan.family_size,
        method=patterns_text(plan.max_pairs),
        metric=metric,
        names=names,
        when=when,
    )
    following = plan.pairs[number] if number < len(plan.pairs) else None
    return dataclasses.replace(made, sentence=look_sentence(made, following))


def decide_by_looks(
    plan: LookPlan,
    a: Values,
    b: Values,
    margin: float = 0.0,
    *,
    names: tuple[str, str] = ("a", "b"),
    metric: str = "",
    seed: int = 0,
) -> tuple[Look, ...]:
    """Take the planned looks one after the other, until one decides or the pairs end.

    Args:
        plan: The plan.
        a: Outcomes of the first arm in the order in which they came, shape `[n]`.
        b: Outcomes of the second arm, position by position on the same seeds.
        margin: Largest difference that does not matter; 0 means "none given".
        names: Names of the two arms.
        metric: Name of the metric.
        seed: Seed of the random sign patterns, used only above 20 pairs.

    Returns:
        The looks taken; pairs after the last of them were not used.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, the arms differ in length, or there are fewer pairs than the first look.

    Examples:
        >>> from trivet.stats import plan_looks
        >>> a = [0.1, 0.2, 0.3, 0.1, 0.2, 0.4, 0.3, 0.1, 0.2, 0.3, 0.2, 0.1]
        >>> looks = decide_by_looks(plan_looks(12), a, a, margin=0.5)
        >>> [(seen.n, seen.label) for seen in looks]
        [(7, 'equivalent')]
    """
    pairs = as_pairs(a, b)
    if pairs.n < plan.pairs[0]:
        raise ValueError(f"{pairs.n} pair(s) given; the first look is planned at {plan.pairs[0]}. Run more seeds.")
    taken: list[Look] = []
    for n in plan.pairs:
        if n > pairs.n or (taken and taken[-1].decided):
            break
        first, second = pairs.a[:n], pairs.b[:n]
        taken.append(look(plan, first, second, margin, previous=taken, names=names, metric=metric, seed=seed))
    return tuple(taken)


def _path(plan: LookPlan, pairs: Pairs, previous: Sequence[Look], seed: int) -> Stopping:
    """Where the data stand among all sign patterns after the looks so far."""
    sizes = [*(earlier.n for earlier in previous), pairs.n]
    spent = plan.spent(family=True)[: len(sizes)]
    found = stopping(pairs.differences, sizes, spent, plan.max_pairs, rounding=pairs.rounding, seed=seed)
    return found[-1]


def _check_place(plan: LookPlan, pairs: Pairs, margin: float, previous: Sequence[Look], lost: int) -> None:
    number = len(previous) + 1
    if number > len(plan.pairs):
        raise ValueError(f"all {len(plan.pairs)} planned looks are taken; one more would raise the error above 5 %.")
    if lost < 0:
        raise ValueError(f"`lost={lost}` must be 0 or above; give the number of pairs that could not be compared.")
    if pairs.n + lost != plan.pairs[number - 1]:
        raise ValueError(
            f"{pairs.n} pair(s) and {lost} lost given; look {number} is planned at {plan.pairs[number - 1]} pairs. "
            "Give exactly those, and the pairs that a diverged or failed run took away as `lost`."
        )
    for earlier in previous:
        if earlier.label != "undecided":
            raise ValueError(
                f"look {earlier.number} has decided ({earlier.label}); a study is not looked at after that."
            )
        if earlier.margin != margin:
            raise ValueError(f"`margin={margin}` was {earlier.margin} at look {earlier.number}; it may not change.")
        if earlier.n > pairs.n:
            raise ValueError(f"{pairs.n} pair(s) given; look {earlier.number} had {earlier.n}. Keep the earlier ones.")
        _check_same(pairs, earlier)


def _check_same(pairs: Pairs, earlier: Look) -> None:
    """The pairs of an earlier look must still stand first, with the same values."""
    if earlier.n == 0:
        return
    mean = math.fsum(pairs.differences[: earlier.n].tolist()) / earlier.n
    size = float(max(abs(pairs.a[: earlier.n]).max(), abs(pairs.b[: earlier.n]).max()))
    if abs(mean - earlier.effect) > 1e-12 * size:
        raise ValueError(
            f"the first {earlier.n} pairs have mean difference {mean:g}, at look {earlier.number} it was "
            f"{earlier.effect:g}; give the pairs in the order in which they came, with unchanged values."
        )


def _reason(plan: LookPlan, n: int, number: int, margin: float) -> Reason:
    if n < MIN_PAIRS:
        return "too few pairs"
    if margin == 0.0 and 2.0 ** (1 - n) > plan.spent(family=True)[number - 1]:
        return "family too large" if plan.family_size > 1 else "too few pairs"
    return "no margin" if margin == 0.0 else "interval too wide"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
