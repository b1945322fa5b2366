"""TOST against statsmodels and the interval that belongs to it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.weightstats import ttost_paired

from trivet.stats import equivalence

arms = st.integers(2, 12).flatmap(lambda n: st.tuples(*[st.lists(st.integers(-50, 50), min_size=n, max_size=n)] * 2))


@pytest.mark.parametrize("n", [3, 8, 30])
@pytest.mark.parametrize("margin", [0.1, 0.5, 2.0])
def test_equals_statsmodels(n, margin):
    rng = np.random.default_rng(n)
    a = rng.normal(size=n)
    b = a + rng.normal(0.1, 0.5, size=n)
    result = equivalence(a, b, margin)
    p, lower, upper = ttost_paired(b, a, -margin, margin)
    assert result.p == pytest.approx(p)
    assert (result.p_lower, result.p_upper) == pytest.approx((lower[1], upper[1]))


@given(arms, st.floats(0.01, 100), st.sampled_from([0.01, 0.05, 0.1]))
def test_interval_and_p_say_the_same(pair, margin, alpha):
    result = equivalence(*pair, margin, alpha)
    assert result.equivalent == (-margin < result.low and result.high < margin)
    if abs(result.p - alpha) > 1e-9:
        assert result.equivalent == (result.p < alpha)


@given(arms, st.floats(0.01, 50), st.floats(1.0, 10.0))
def test_monotone_in_the_margin(pair, margin, factor):
    narrow, wide = equivalence(*pair, margin), equivalence(*pair, margin * factor)
    assert wide.p <= narrow.p
    assert wide.equivalent or not narrow.equivalent


@given(arms, st.floats(0.01, 50))
def test_swapping_arms(pair, margin):
    one, two = equivalence(*pair, margin), equivalence(pair[1], pair[0], margin)
    assert (one.equivalent, one.p, one.low) == (two.equivalent, two.p, -two.high)


def test_equal_differences():
    assert equivalence([1, 2, 3], [1, 2, 3], 0.1).p == 0.0
    assert equivalence([1, 2, 3], [1, 2, 3], 0.1).equivalent
    assert equivalence([1, 2, 3], [2, 3, 4], 0.5).p == 1.0
    assert not equivalence([1, 2, 3], [2, 3, 4], 1.0).equivalent


@pytest.mark.parametrize("margin", [0.0, -0.1, float("nan"), float("inf")])
def test_margin_out_of_range(margin):
    with pytest.raises(ValueError, match=r"`margin=.*must be a finite number above 0; give the largest difference"):
        equivalence([1, 2, 3], [1, 2, 4], margin)


def test_other_errors():
    with pytest.raises(ValueError, match=r"at least 2"):
        equivalence([1], [1], 0.1)
    with pytest.raises(ValueError, match=r"alpha=0.7"):
        equivalence([1, 2], [1, 2], 0.1, alpha=0.7)


def test_text_and_dictionary():
    result = equivalence([0.90, 0.91, 0.92, 0.93], [0.901, 0.909, 0.921, 0.93], margin=0.01)
    assert str(result) == (
        "equivalent: mean difference +0.0003, 90 % interval −0.0009 to +0.0014 inside ±0.01 "
        "(n = 4 pairs, TOST p = 0.00013)"
    )
    assert "not shown equivalent" in str(equivalence([1, 2, 3], [2, 2, 4], 0.1))
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
    assert result.confidence == pytest.approx(0.9)
