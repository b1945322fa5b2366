"""A verdict from planned looks, in the form that comparisons and reports read.

Label, reason and sentence are those of the last look; p is multiplied by the number of comparisons. The interval is
the one that holds over all looks, where the look could give one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trivet.stats import Comparison, Look, LookPlan, Verdict


def looked_verdict(
    plan: LookPlan,
    looks: Sequence[Look],
    a: Sequence[float],
    b: Sequence[float],
    made_for: Mapping[str, Any],
    names: tuple[str, str],
) -> Verdict:
    """The verdict after the looks taken so far.

    Args:
        plan: The plan.
        looks: Looks taken, in order; may be none.
        a: Outcomes of the baseline seen at the last look.
        b: Outcomes of the arm, position by position on the same seeds.
        made_for: `metric` and `margin`.
        names: Names of the two arms.
    """
    from trivet.stats import decide

    metric, margin = made_for["metric"], made_for["margin"]
    base = decide(a, b, margin, plan.alpha, names, metric, family_size=plan.family_size)
    if not looks:
        text = f"No look at {names[1]} against {names[0]} has been taken yet; the first is at {plan.pairs[0]} pairs."
        return dataclasses.replace(
            base, label="undecided", reason="too few pairs", sentence=text, more_seeds=plan.pairs[0],
            sure_difference=False, within_margin=False, beyond_margin=False,
        )  # fmt: skip
    last = looks[-1]
    beyond = last.low is not None and last.high is not None and (last.low > margin or last.high < -margin)
    following = plan.pairs[last.number] if last.number < len(plan.pairs) else None
    return dataclasses.replace(
        base,
        label=last.label,
        sentence=last.sentence,
        reason=last.reason,
        more_seeds=following - last.n if following is not None and last.label == "undecided" else None,
        sure_difference=last.sure_difference,
        within_margin=last.within_margin,
        beyond_margin=margin > 0.0 and last.sure_difference and beyond,
        p=min(1.0, last.p * last.family_size),
        comparison=_comparison(base.comparison, last),
    )


def _comparison(found: Comparison | None, last: Look) -> Comparison | None:
    if found is None or last.low is None or last.high is None:
        return found
    return dataclasses.replace(
        found, low=last.low, high=last.high, confidence=round(1.0 - 2.0 * last.alpha, 6), p=last.p,
        method=f"{last.method} interval over all looks", p_method=f"{last.method} over the looks",
    )  # fmt: skip
