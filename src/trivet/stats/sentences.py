"""The verdict in plain English: one text that a person can read without knowing the tests.

Every sentence names the arms, the metric, the effect, its interval, n, the method and p, and what the verdict rests on.

Not covered: whether a higher value is better; that is the caller's knowledge.
"""

from dataclasses import dataclass
from typing import Literal

from trivet.stats.compare import Comparison
from trivet.stats.equivalence import Equivalence
from trivet.stats.signflip import smallest_p
from trivet.stats.wording import NumberStyle, p_text, pairs_text, percent, plain_number

__all__ = ["Facts", "Label", "Reason", "different", "equivalent", "no_comparison", "undecided", "unreported"]

Label = Literal["different", "equivalent", "undecided"]

Reason = Literal["", "too few pairs", "family too large", "no margin", "interval too wide", "tests disagree"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a sentence is written from."""

    comparison: Comparison
    equivalence: Equivalence | None
    metric: str
    alpha: float
    p: float
    """Sign-flip p, after Holm's correction if there is a family."""
    family_size: int
    fewest: int
    """Fewest pairs with which "different" can be reached in this family."""
    constant: bool
    """All differences are equal, up to rounding."""
    identical: bool
    """All differences are exactly 0."""

    @property
    def on_metric(self) -> str:
        """The words " on <metric>", or nothing when the metric has no name."""
        return f" on {self.metric}" if self.metric else ""


def different(facts: Facts) -> str:
    """Say that the arms differ, and how the difference stands to the margin."""
    c = facts.comparison
    text = (
        f"{c.names[1]} is {'higher' if c.effect > 0 else 'lower'} than {c.names[0]}{facts.on_metric}: {_effect(facts)}."
    )
    if facts.equivalence is not None:
        margin = plain_number(facts.equivalence.margin)
        if beyond_margin(facts):
            text += f" The whole interval lies beyond the margin ±{margin}, so the difference matters."
        else:
            text += f" The interval reaches inside the margin ±{margin}, so the difference is sure but may not matter."
    return text + _point(facts)


def equivalent(facts: Facts, *, sure_difference: bool) -> str:
    """Say that the arms are equivalent, and, if so, that a small but sure difference exists."""
    c, e = facts.comparison, facts.equivalence
    if e is None:
        raise ValueError("an 'equivalent' sentence needs the equivalence test; pass a margin.")
    write = NumberStyle((e.high - e.low) / 2, e.effect)
    text = (
        f"{c.names[1]} and {c.names[0]} are equivalent{facts.on_metric}: the mean difference {_difference(c)} = "
        f"{write(e.effect)} ({percent(e.confidence)} interval {write(e.low)} to {write(e.high)}, "
        f"n = {pairs_text(e.n)}, TOST {p_text(e.p)}) lies inside ±{plain_number(e.margin)}."
    )
    if sure_difference:
        text += (
            f" A small but sure difference exists: the {_interval(c)} excludes 0 ({c.p_method} {_adjusted(facts)}), "
            "and all of it is inside the margin."
        )
    return text + _point(facts)


def undecided(facts: Facts, reason: Reason, more: int | None, likely: Label) -> str:
    """Say that the data do not decide, why, and what would."""
    c = facts.comparison
    text = f"Undecided whether {c.names[1]} and {c.names[0]} differ{facts.on_metric}: {_effect(facts)}."
    return f"{text} {_why(facts, reason)}{_point(facts)}{_outlook(facts, more, likely)}"


def no_comparison(names: tuple[str, str], metric: str, n: int, more: int) -> str:
    """Say that there is nothing to compare: fewer than two pairs."""
    on_metric = f" on {metric}" if metric else ""
    have = "there is no pair" if n == 0 else "there is only 1 pair"
    return (
        f"Undecided whether {names[1]} and {names[0]} differ{on_metric}: {have} of runs, so neither a "
        f"difference nor its spread can be estimated. At least {more} more {'pair is' if more == 1 else 'pairs are'} "
        "needed for a verdict."
    )


def unreported(lost: int, metric: str) -> str:
    """Say how many pairs were lost because a run finished without the metric.

    Examples:
        >>> unreported(2, "acc")
        ' 2 further pairs could not be compared: a run did not report acc.'
        >>> unreported(0, "acc")
        ''
    """
    if lost == 0:
        return ""
    return f" {lost} further {'pair' if lost == 1 else 'pairs'} could not be compared: a run did not report {metric}."


def beyond_margin(facts: Facts) -> bool:
    """Whether the whole interval lies beyond the margin."""
    c, e = facts.comparison, facts.equivalence
    return e is not None and (c.low > e.margin or c.high < -e.margin)


def _difference(c: Comparison) -> str:
    return f"{c.names[1]} − {c.names[0]}"


def _interval(c: Comparison) -> str:
    write = NumberStyle((c.high - c.low) / 2, c.effect)
    return f"{percent(c.confidence)} {c.method} {write(c.low)} to {write(c.high)}"


def _adjusted(facts: Facts) -> str:
    holm = f" after Holm over {facts.family_size} comparisons" if facts.family_size > 1 else ""
    return p_text(facts.p) + holm


def _effect(facts: Facts) -> str:
    c = facts.comparison
    write = NumberStyle((c.high - c.low) / 2, c.effect)
    return (
        f"the mean difference {_difference(c)} = {write(c.effect)} ({_interval(c)}, n = {pairs_text(c.n)}, "
        f"{c.p_method} {_adjusted(facts)})"
    )


def _point(facts: Facts) -> str:
    """A note for differences that do not vary: their interval is a point, not a measured spread."""
    if not facts.constant:
        return ""
    c = facts.comparison
    if c.effect == 0.0:
        same = "exactly the same value" if facts.identical else "the same value up to rounding"
        return f" Both runs of every pair gave {same} ({pairs_text(c.n)})."
    return f" All {c.n} differences are equal, so the interval is a point."


def _why(facts: Facts, reason: Reason) -> str:
    c, e = facts.comparison, facts.equivalence
    if reason == "too few pairs":
        if smallest_p(c.n) > facts.alpha:
            return (
                f"With {pairs_text(c.n)} the exact test cannot go below p = {smallest_p(c.n):.4g}, so it cannot reach "
                f"{percent(facts.alpha)}; that takes {facts.fewest} pairs."
            )
        return f"No verdict is given below {facts.fewest} pairs ({c.n} here)."
    if reason == "family too large":
        return (
            f"With {pairs_text(c.n)} and {facts.family_size} comparisons the exact test cannot reach "
            f"{percent(facts.alpha)} after Holm's correction; that takes {facts.fewest} pairs or fewer comparisons."
        )
    if reason == "tests disagree":
        if c.low > 0.0 or c.high < 0.0:
            return f"The interval excludes 0, but the {c.p_method} test does not confirm it at {percent(facts.alpha)}."
        return f"The {c.p_method} test finds a difference, but the interval does not exclude 0."
    if e is None:
        return (
            "No difference is established; without a margin, equivalence cannot be shown "
            "(give the largest difference that does not matter)."
        )
    write = NumberStyle((e.high - e.low) / 2, e.effect)
    return (
        f"No difference is established, and the {percent(e.confidence)} interval {write(e.low)} to {write(e.high)} "
        f"does not lie inside ±{plain_number(e.margin)} (TOST {p_text(e.p)})."
    )


def _outlook(facts: Facts, more: int | None, likely: Label) -> str:
    if more is None:
        if facts.constant and facts.comparison.effect == 0.0:
            return ""
        return " No realistic number of further pairs would decide if the mean difference and its SD stay as observed."
    total = pairs_text(facts.comparison.n + more)
    if facts.constant or likely == "undecided":
        return f" At least {more} more {'pair is' if more == 1 else 'pairs are'} needed ({total} in all)."
    return (
        f" If the mean difference and its SD stay as observed, about {more:,} more {'pair' if more == 1 else 'pairs'} "
        f"({total} in all) would show them {likely} with 80 % probability."
    )
