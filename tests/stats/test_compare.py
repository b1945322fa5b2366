"""Two arms against scipy, and the symmetries a comparison must have."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import compare

arms = st.integers(2, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-1000, 1000), min_size=n, max_size=n)] * 2)
)


@pytest.mark.parametrize("n", [2, 6, 8, 25])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_paired_equals_scipy(n, confidence):
    rng = np.random.default_rng(n)
    a = rng.normal(size=n)
    b = a + rng.normal(0.3, 0.5, size=n)
    result, reference = compare(a, b, confidence=confidence), stats.ttest_rel(b, a)
    interval = reference.confidence_interval(confidence)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
    assert result.t_p == pytest.approx(reference.pvalue)
    assert result.effect == pytest.approx((b - a).mean())
    assert result.sd_difference == pytest.approx((b - a).std(ddof=1))
    assert (result.mean_a, result.sd_b) == pytest.approx((a.mean(), b.std(ddof=1)))
    assert result.correlation == pytest.approx(stats.pearsonr(a, b).statistic)
    assert result.df == n - 1
    assert result.n == result.n_a == result.n_b == n
    pooled = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    assert result.effect_in_sds == pytest.approx(result.effect / pooled)


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 2), (5, 9), (20, 7)])
def test_unpaired_equals_scipy_welch(n_a, n_b):
    rng = np.random.default_rng(n_a)
    a, b = rng.normal(size=n_a), rng.normal(1, 3, size=n_b)
    result = compare(a, b, paired=False)
    reference = stats.ttest_ind(b, a, equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
    assert result.p == result.t_p == pytest.approx(reference.pvalue)
    assert result.df == pytest.approx(reference.df)
    assert (result.sd_difference, result.correlation, result.paired) == (None, None, False)
    assert "Welch" in str(result)


def test_unpaired_smallest_detectable_is_found_at_80_percent():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20), rng.normal(size=20)
    result = compare(a, b, paired=False)
    t = stats.t.ppf(0.975, result.df)
    power = stats.nct.sf(t, result.df, result.smallest_detectable / result.standard_error)
    assert power == pytest.approx(0.8, abs=0.01)


@given(arms)
def test_swapping_arms_changes_the_sign_only(pair):
    a, b = pair
    one, two = compare(a, b), compare(b, a)
    assert (one.effect, one.low, one.high) == (-two.effect, -two.high, -two.low)
    assert (one.p, one.t_p, one.sd_difference, one.smallest_detectable) == (
        two.p,
        two.t_p,
        two.sd_difference,
        two.smallest_detectable,
    )


@given(arms, st.integers(-500, 500), st.sampled_from([0.125, 0.5, 2.0, 64.0]))
def test_shift_and_scale(pair, shift, scale):
    a, b = np.array(pair[0], dtype=float), np.array(pair[1], dtype=float)
    one, two = compare(a, b), compare((a + shift) * scale, (b + shift) * scale)
    assert (two.effect, two.low, two.high) == (one.effect * scale, one.low * scale, one.high * scale)
    assert (two.p, two.t_p) == (one.p, pytest.approx(one.t_p))


@given(arms, st.randoms(use_true_random=False))
def test_order_of_pairs_does_not_matter_to_the_last_bit(pair, random):
    together = list(zip(*pair, strict=True))
    random.shuffle(together)
    one, two = compare(*pair), compare([x for x, _ in together], [y for _, y in together])
    assert one.to_dict() | {"correlation": 0} == two.to_dict() | {"correlation": 0}


@given(arms)
def test_plain_dictionary_is_valid_json(pair):
    for paired in (True, False):
        result = compare(*pair, paired=paired)
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
        assert str(result)


def test_identical_arms():
    a = [0.1, 0.2, 0.3, 0.1, 0.5, 0.9]
    result = compare(a, a)
    assert (result.effect, result.low, result.high, result.p, result.t_p) == (0.0, 0.0, 0.0, 1.0, 1.0)
    assert result.smallest_detectable == 0.0
    assert result.correlation == pytest.approx(1.0)


def test_constant_shift_is_a_point():
    a = np.array([0.1, 0.2, 0.3, 0.1, 0.5, 0.9])
    result = compare(a, a + 0.01)
    assert result.low == result.high == result.effect == pytest.approx(0.01)
    assert (result.p, result.t_p) == (0.03125, 0.0)


def test_no_spread_at_all():
    result = compare([1.0] * 6, [1.0] * 6)
    assert (result.effect_in_sds, result.correlation, result.p) == (None, None, 1.0)
    assert compare([1.0, 1.0], [2.0, 2.0, 2.0], paired=False).low == 1.0
    assert compare([1.0, 1.0], [2.0, 3.0, 4.0], paired=False).df == pytest.approx(2.0)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("paired", [True, False])
def test_fewer_than_two_values(n, paired):
    with pytest.raises(ValueError, match=r"at least 2.*Run more seeds"):
        compare([1.0] * n, [2.0] * n, paired=paired)


def test_text():
    text = str(compare([1, 2, 3, 4, 5, 6], [1.5, 2.6, 3.4, 4.7, 5.3, 6.5], names=("fp32", "RR")))
    assert text == (
        "RR − fp32 = +0.50 (95 % t-interval +0.35 to +0.65, n = 6 pairs, exact sign-flip p = 0.031; "
        "smallest difference detectable with 80 % power: 0.25)"
    )
    assert "no difference is detectable" in str(compare([1, 2, 3], [2, 2, 4]))
