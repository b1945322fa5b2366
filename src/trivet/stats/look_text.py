"""A planned look in plain English.

Not covered: whether a higher value is better; that is the caller's knowledge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.stats.wording import NumberStyle, p_text, pairs_text, percent, plain_number

if TYPE_CHECKING:
    from trivet.stats.looks import Look

__all__ = ["look_sentence"]


def look_sentence(seen: Look, following: int | None) -> str:
    """What a look found, what it rests on, and what comes next.

    Args:
        seen: The look; its own sentence is not read.
        following: Number of pairs at the next look; `None` after the last.
    """
    on_metric = f" on {seen.metric}" if seen.metric else ""
    a, b = seen.names
    if seen.label == "equivalent":
        text = f"{b} and {a} are equivalent{on_metric}: {_effect(seen)} lies inside ±{plain_number(seen.margin)} "
        text += f"({_equivalence(seen)})."
        if seen.sure_difference:
            text += f" A small but sure difference exists ({_difference(seen)})."
    elif seen.label == "different":
        text = f"{b} is {'higher' if seen.effect > 0 else 'lower'} than {a}{on_metric}: {_effect(seen)}; "
        text += f"{_difference(seen)}."
        if seen.margin > 0.0:
            text += _against_margin(seen)
    else:
        text = f"Undecided whether {b} and {a} differ{on_metric}: {_effect(seen)}; {_difference(seen)}."
        text += _why_undecided(seen)
    return text + _where(seen, following)


def _effect(seen: Look) -> str:
    a, b = seen.names
    if seen.low is None or seen.high is None:
        write = NumberStyle(abs(seen.effect) / 10, seen.effect)
        return f"the mean difference {b} − {a} = {write(seen.effect)} (n = {pairs_text(seen.n)})"
    write = NumberStyle((seen.high - seen.low) / 2, seen.effect)
    confidence = percent(round(1.0 - 2.0 * seen.alpha, 6))
    return (
        f"the mean difference {b} − {a} = {write(seen.effect)} ({confidence} interval over all looks "
        f"{write(seen.low)} to {write(seen.high)}, n = {pairs_text(seen.n)})"
    )


def _difference(seen: Look) -> str:
    family = f", Bonferroni over {seen.family_size} comparisons" if seen.family_size > 1 else ""
    relation = "within" if seen.sure_difference else "not within"
    planned = f"{relation} the {_share(seen.p_threshold)} planned by now{family}"
    return f"{seen.method} over the looks {p_text(seen.p)}, {planned}"


def _equivalence(seen: Look) -> str:
    return f"one-sided sign-flip {p_text(seen.p_equivalent)}, at most {_share(seen.equivalent_threshold)} at this look"


def _share(error: float) -> str:
    return f"{100.0 * error:.2g} %"


def _against_margin(seen: Look) -> str:
    margin = plain_number(seen.margin)
    if seen.low is not None and seen.high is not None and (seen.low > seen.margin or seen.high < -seen.margin):
        return f" The whole interval lies beyond the margin ±{margin}, so the difference matters."
    return f" The interval reaches inside the margin ±{margin}, so the difference is sure but may not matter."


def _why_undecided(seen: Look) -> str:
    if seen.reason == "too few pairs":
        return f" {pairs_text(seen.n).capitalize()} cannot decide."
    if seen.reason == "family too large":
        return f" {pairs_text(seen.n).capitalize()} cannot decide among {seen.family_size} comparisons."
    if seen.margin == 0.0:
        return " Without a margin, equivalence cannot be shown (give the largest difference that does not matter)."
    return f" Equivalence within ±{plain_number(seen.margin)} is not shown ({_equivalence(seen)})."


def _where(seen: Look, following: int | None) -> str:
    lost = f", {pairs_text(seen.lost)} lost because a run diverged or failed" if seen.lost else ""
    text = (
        f" Look {seen.number} of {seen.planned}{lost}; the error of each decision is held at "
        f"{percent(seen.alpha)} over all looks."
    )
    if seen.label == "undecided":
        text += f" The next look is at {following} pairs." if following else " No look is left."
    return text
