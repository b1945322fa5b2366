"""Verdicts on several comparisons at once, with Holm's correction for "different".

The sign-flip p-values of all comparisons are adjusted together (`holm`), so that the probability of any false
"different" in the family stays at or below alpha. "Equivalent" is not adjusted: the joint claim "all arms are
equivalent" holds at alpha because every single test must succeed (intersection–union); a single "equivalent" picked
out of many does not carry that guarantee.

Not covered: hierarchies of questions, arms compared on several metrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trivet.stats.multiplicity import holm
from trivet.stats.signflip import sign_flip_p
from trivet.stats.values import Values, as_pairs
from trivet.stats.verdict import Verdict, decide

__all__ = ["ArmPair", "decide_family", "decide_pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmPair:
    """Two arms to compare; position i of both belongs to the same seed."""

    names: tuple[str, str]
    """Names of arm a and arm b."""
    a: Values
    """Outcomes of the first arm."""
    b: Values
    """Outcomes of the second arm."""
    lost: int = 0
    """Pairs that could not be compared because a run diverged or failed."""


def decide_pairs(
    pairs: Sequence[ArmPair], margin: float = 0.0, alpha: float = 0.05, metric: str = "", *, seed: int = 0
) -> list[Verdict]:
    """Decide on any list of comparisons as one family; the pairs may differ in their number of seeds.

    A comparison with fewer than 2 pairs counts in the family with p = 1.

    Args:
        pairs: The comparisons.
        margin: Largest difference that does not matter; 0 means "none given".
        alpha: Probability of any false "different" in the family.
        metric: Name of the metric.
        seed: Seed of the random sign patterns, used only above 30 pairs.

    Returns:
        One verdict per comparison, in the order given.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, two arms differ in length, or an argument is out of range.

    Examples:
        >>> low, high = [1.0, 1.2, 1.1, 1.3, 1.2, 1.1, 1.4, 1.2], [2.1, 2.0, 2.2, 2.4, 2.1, 2.3, 2.2, 2.1]
        >>> up, same = ArmPair(names=("x", "y"), a=low, b=high), ArmPair(names=("x", "z"), a=low, b=low)
        >>> first, second = decide_pairs([up, same])
        >>> first.label, first.p, second.label
        ('different', 0.015625, 'undecided')
    """
    checked = [as_pairs(pair.a, pair.b) for pair in pairs]
    raw = [sign_flip_p(c.differences, rounding=c.rounding, seed=seed) if c.n >= 2 else 1.0 for c in checked]
    return [
        decide(
            pair.a,
            pair.b,
            margin,
            alpha,
            pair.names,
            metric,
            float(p),
            family_size=len(pairs),
            lost=pair.lost,
            seed=seed,
        )
        for pair, p in zip(pairs, holm(raw), strict=True)
    ]


def decide_family(
    baseline: Values,
    arms: Mapping[str, Values],
    margin: float = 0.0,
    alpha: float = 0.05,
    metric: str = "",
    baseline_name: str = "baseline",
    *,
    seed: int = 0,
) -> dict[str, Verdict]:
    """Decide on each arm against one baseline, as one family.

    Args:
        baseline: Outcomes of the baseline, shape `[n]`.
        arms: Name → outcomes of each arm, position by position on the baseline's seeds.
        margin: Largest difference that does not matter; 0 means "none given".
        alpha: Probability of any false "different" in the family.
        metric: Name of the metric.
        baseline_name: Name of the baseline.
        seed: Seed of the random sign patterns, used only above 30 pairs.

    Returns:
        Name → verdict, in the order of `arms`.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, an arm's length differs from the baseline's, or an argument is out of range.

    Examples:
        >>> base = [1.0, 1.2, 1.1, 1.3, 1.2, 1.1, 1.4, 1.2]
        >>> verdicts = decide_family(base, {"same": base, "up": [x + 1 for x in base]}, margin=0.1)
        >>> {name: verdict.label for name, verdict in verdicts.items()}
        {'same': 'equivalent', 'up': 'different'}
    """
    pairs = [ArmPair(names=(baseline_name, name), a=baseline, b=values) for name, values in arms.items()]
    return dict(zip(arms, decide_pairs(pairs, margin, alpha, metric, seed=seed), strict=True))
