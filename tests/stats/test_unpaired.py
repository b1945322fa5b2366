"""Unpaired arms against scipy; error rates; bad input."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import decide_unpaired, permutation_p

numbers = st.floats(-100, 100).map(lambda x: round(x, 2))


def welch(a, b, axis=-1):
    return stats.ttest_ind(b, a, equal_var=False, axis=axis).statistic


@pytest.mark.parametrize("sizes", [(4, 4), (3, 6), (7, 5)])
def test_permutation_agrees_with_scipy(sizes):
    rng = np.random.default_rng(sizes)
    a, b = rng.normal(size=sizes[0]), rng.normal(0.9, 2.0, size=sizes[1])
    statistic = lambda x, y, axis: np.abs(welch(x, y, axis))  # noqa: E731
    wanted = stats.permutation_test((a, b), statistic, alternative="greater", n_resamples=np.inf)
    found, method = permutation_p(a, b)
    assert (found, method) == (pytest.approx(wanted.pvalue, abs=1e-12), "exact permutation")


def test_welch_and_tost_agree_with_scipy():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=9), rng.normal(0.2, 1.5, size=14)
    verdict = decide_unpaired(a, b, margin=1.2)
    held = verdict.region
    assert held is not None
    inner = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.90)
    assert (held.inner_low, held.inner_high) == pytest.approx((inner.low, inner.high))
    assert held.p_difference == pytest.approx(stats.ttest_ind(b, a, equal_var=False).pvalue)
    sides = (
        stats.ttest_ind(b, a + 1.2, equal_var=False, alternative="less").pvalue,
        stats.ttest_ind(b, a - 1.2, equal_var=False, alternative="greater").pvalue,
    )
    assert held.p_equivalent == pytest.approx(max(sides))


def test_many_runs_use_random_splits_and_are_repeatable():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=15), rng.normal(0.8, 1.0, size=15)
    p, method = permutation_p(a, b)
    assert "random splits" in method
    assert permutation_p(a, b) == (p, method)
    assert p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, abs=0.01)


@given(
    st.lists(numbers, min_size=2, max_size=6), st.lists(numbers, min_size=2, max_size=5), st.sampled_from([-3, 0.5, 8])
)
def test_p_ignores_order_shift_and_scale(a, b, factor):
    p = permutation_p(a, b)[0]
    assert 0 < p <= 1
    assert permutation_p(a[::-1], b)[0] == p
    assert permutation_p([factor * x + 1 for x in a], [factor * x + 1 for x in b])[0] == pytest.approx(p)


def test_error_rates_on_simulated_studies():
    rng = np.random.default_rng(6)
    runs = 250
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    for draw in (rng.normal, rng.lognormal):
        a, b = draw(size=(runs, 5)), draw(size=(runs, 7))
        verdicts = [decide_unpaired(x, y + 1e-9, 2.0) for x, y in zip(a, b, strict=True)]
        assert np.mean([v.sure_difference for v in verdicts]) <= limit
    a, b = rng.normal(size=(runs, 5)), rng.normal(2.0, 1.0, size=(runs, 7))
    assert np.mean([decide_unpaired(x, y, 2.0).label == "equivalent" for x, y in zip(a, b, strict=True)]) <= limit


@pytest.mark.parametrize(
    ("a", "b", "margin", "label", "reason"),
    [
        ([], [1.0], 0.1, "undecided", "too few pairs"),
        ([1.0, 1.0, 1.0], [9.0, 9.1, 9.2, 9.3], 0.1, "undecided", "too few pairs"),
        ([1.0] * 5, [1.0] * 5, 0.1, "equivalent", ""),
        ([1.0] * 5, [1.0] * 5, 0.0, "undecided", "no margin"),
        ([1.0] * 5, [2.0] * 5, 0.1, "different", ""),
        ([1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5, 4.5], 0.1, "undecided", "interval too wide"),
    ],
)
def test_small_and_equal_outcomes(a, b, margin, label, reason):
    verdict = decide_unpaired(a, b, margin, names=("x", "y"), metric="loss")
    assert (verdict.label, verdict.reason) == (label, reason)
    assert "on loss" in str(verdict)
    verdict.to_dict()


def test_bad_input_is_refused():
    good = [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="finite"):
        decide_unpaired(good, [1.0, math.nan, 2.0, 3.0])
    with pytest.raises(ValueError, match="margin"):
        decide_unpaired(good, good, -0.1)
    with pytest.raises(ValueError, match="alpha"):
        decide_unpaired(good, good, alpha=0.7)
    with pytest.raises(TypeError):
        decide_unpaired("abcd", good)
    with pytest.raises(ValueError, match="at least 2"):
        permutation_p([1.0], good)
