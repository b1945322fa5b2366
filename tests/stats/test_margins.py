"""One interval for everything: against TOST, `decide`, scipy and baycomp's formula."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import compare, equivalence, region, region_of

ERRORS = st.floats(0.001, 5)
EFFECTS = st.floats(-5, 5)
DF = st.integers(1, 40)
MARGINS = st.floats(0.001, 5)


def test_it_is_the_interval_of_compare_and_the_test_of_equivalence():
    rng = np.random.default_rng(0)
    a = rng.normal(size=9)
    b = a + rng.normal(0.1, 0.3, size=9)
    found, c, e = region(a, b, 0.4), compare(a, b), equivalence(a, b, 0.4)
    assert (found.low, found.high, found.p_difference) == pytest.approx((c.low, c.high, c.t_p))
    assert (found.inner_low, found.inner_high, found.p_equivalent) == pytest.approx((e.low, e.high, e.p))
    assert found.within_margin == e.equivalent


def test_probabilities_follow_the_correlated_t_test():
    d = np.random.default_rng(1).normal(0.2, 0.5, size=10)
    found = region(np.zeros(10), d, 0.3, correlation=0.1)
    scale = math.sqrt(d.var(ddof=1) * (1 / 10 + 0.1 / 0.9))
    posterior = stats.t(9, d.mean(), scale)
    assert (found.below, found.above) == pytest.approx((posterior.cdf(-0.3), posterior.sf(0.3)))
    assert found.inside == pytest.approx(posterior.cdf(0.3) - posterior.cdf(-0.3))


@given(EFFECTS, ERRORS, DF, MARGINS)
def test_interval_test_and_probabilities_never_contradict(effect, error, df, margin):
    found = region_of(effect, error, df, margin)
    assert found.p_equivalent == max(found.below, found.above)
    if abs(found.p_equivalent - 0.05) > 1e-6:
        assert found.within_margin == (found.p_equivalent <= 0.05)
    if abs(found.p_difference - 0.05) > 1e-6:
        assert found.excludes_zero == (found.p_difference <= 0.05)
    assert found.below + found.inside + found.above == pytest.approx(1.0)
    if found.within_margin:
        assert found.inside >= 0.9
    if found.beyond_margin:
        assert found.inside <= 0.05
        assert found.label == "different"


def test_points_and_endless_degrees_of_freedom():
    point = region_of(0.2, 0.0, 5, 0.5)
    assert (point.label, point.p_equivalent, point.inside) == ("equivalent", 0.0, 1.0)
    assert region_of(0.0, 0.0, 5, 0.5).p_difference == 1.0
    assert region_of(0.0, 0.0, 5).label == "undecided"
    assert region_of(1.0, 0.5, math.inf).high == pytest.approx(1.0 + 1.959964 * 0.5)
    assert "TOST" in str(point)


@pytest.mark.parametrize(
    "arguments",
    [
        (math.nan, 1.0, 3),
        (0.0, -1.0, 3),
        (0.0, math.inf, 3),
        (0.0, 1.0, 0),
        (0.0, 1.0, 3, -1.0),
        (0.0, 1.0, 3, 0.1, 0.6),
    ],
)
def test_bad_numbers_are_refused(arguments):
    with pytest.raises(ValueError, match="must"):
        region_of(*arguments)


def test_bad_pairs_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        region([1.0], [2.0], 0.1)
    with pytest.raises(ValueError, match="equal lengths"):
        region([1.0, 2.0], [2.0], 0.1)
    with pytest.raises(ValueError, match="correlation"):
        region([1.0, 2.0], [2.0, 3.0], 0.1, correlation=1.0)
