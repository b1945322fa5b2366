"""Plans of looks: spending against the formulas, first looks that can decide, refusals."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from trivet.stats import LookPlan, plan_looks
from trivet.stats.look_plan import read_plan


def test_spending_follows_the_formulas():
    plan = LookPlan(pairs=(6, 12, 18, 24), spending="obrien-fleming")
    expected = [2 - 2 * norm.cdf(norm.ppf(0.975) / math.sqrt(t)) for t in (0.25, 0.5, 0.75)]
    assert plan.spent() == pytest.approx([*expected, 0.05])
    plan = LookPlan(pairs=(6, 12, 24))
    expected = [0.05 * math.log(1 + (math.e - 1) * t) for t in (0.25, 0.5)]
    assert plan.spent() == pytest.approx([*expected, 0.05])
    assert LookPlan(pairs=(8,), family_size=5).spent(family=True) == (0.01,)


@given(
    most=st.integers(6, 60),
    looks=st.integers(1, 8),
    spending=st.sampled_from(["pocock", "obrien-fleming"]),
    family=st.integers(1, 6),
)
def test_any_plan_ends_at_the_most_and_spends_all_of_alpha(most, looks, spending, family):
    plan = plan_looks(most, looks, spending=spending, family_size=family)
    assert plan.pairs[-1] == most
    assert 1 <= len(plan.pairs) <= looks
    assert plan.pairs[0] >= 6
    assert list(plan.spent()) == sorted(plan.spent())
    assert plan.spent()[-1] == 0.05
    assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(plan.pairs))
    if len(plan.pairs) > 1:
        assert 2.0 ** (1 - plan.pairs[0]) <= plan.spent(family=True)[0]
    assert read_plan(plan.to_dict()) == plan


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_pairs": 5}, "at least 6"),
        ({"max_pairs": 12, "looks": 0}, "at least 1"),
        ({"max_pairs": 12, "looks": (4, 12)}, "at least 6 pairs"),
        ({"max_pairs": 12, "looks": (8, 8, 12)}, "must increase"),
        ({"max_pairs": 12, "looks": (6, 10)}, "must end at"),
        ({"max_pairs": 12, "looks": ()}, "must end at"),
        ({"max_pairs": 12, "alpha": 0.0}, "alpha"),
        ({"max_pairs": 12, "alpha": math.nan}, "alpha"),
        ({"max_pairs": 12, "family_size": 0}, "at least 1"),
        ({"max_pairs": 12, "spending": "all"}, "one of"),
    ],
)
def test_what_is_no_plan_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        plan_looks(**arguments)


def test_a_file_that_is_no_plan_is_refused():
    for content in (None, {}, {"pairs": 3, "alpha": 0.05, "spending": "pocock", "family_size": 1}):
        with pytest.raises(ValueError, match="not a plan"):
            read_plan(content)
