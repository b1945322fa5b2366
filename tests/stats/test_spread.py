"""SD of accuracy against its floor, and plans from pilots."""

import math

import numpy as np
import pytest
from scipy import stats

from trivet.stats import accuracy_spread, seeds_from_pilot, seeds_needed


def test_the_floor_is_binomial_and_the_test_is_chi_squared():
    rng = np.random.default_rng(0)
    values = rng.binomial(1000, 0.9, size=12) / 1000
    found = accuracy_spread(values, 1000)
    mean, sd = values.mean(), values.std(ddof=1)
    assert found.floor == pytest.approx(math.sqrt(mean * (1 - mean) / 1000))
    assert found.p == pytest.approx(stats.chi2.sf(11 * (sd / found.floor) ** 2, 11))
    assert found.high == pytest.approx(sd * math.sqrt(11 / stats.chi2.ppf(0.025, 11)))


def test_the_error_of_the_test_is_held_and_a_wider_spread_is_found():
    rng, studies = np.random.default_rng(1), 600
    tables = rng.binomial(500, 0.8, size=(studies, 10)) / 500
    alarms = np.mean([accuracy_spread(row, 500).p <= 0.05 for row in tables])
    assert alarms <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    rates = np.clip(0.8 + 0.05 * rng.normal(size=(50, 10)), 0, 1)
    assert np.mean([accuracy_spread(rng.binomial(500, row) / 500, 500).p <= 0.05 for row in rates]) > 0.9


def test_equal_accuracies_and_perfect_ones():
    found = accuracy_spread([0.9] * 5, 100)
    assert (found.sd, found.p, found.ratio) == (0.0, 1.0, 0.0)
    perfect = accuracy_spread([1.0] * 5, 100)
    assert (perfect.floor, perfect.ratio, perfect.p) == (0.0, None, 1.0)
    assert "no floor" in str(perfect)


@pytest.mark.parametrize(
    ("values", "examples", "text"),
    [
        ([0.9], 100, "at least 2"),
        ([], 100, "at least 2"),
        ([0.9, 91.0], 100, "fractions, not percentages"),
        ([0.9, math.nan], 100, "finite"),
        ([0.9, 0.8], 0, "at least 1"),
    ],
)
def test_bad_accuracies_are_refused(values, examples, text):
    with pytest.raises(ValueError, match=text):
        accuracy_spread(values, examples)


def test_a_plan_from_a_pilot():
    rng = np.random.default_rng(2)
    a = rng.normal(size=8)
    b = a + 0.3 * rng.normal(size=8)
    plan = seeds_from_pilot(a, b, difference=0.2, confidence=0.9)
    sd = (b - a).std(ddof=1)
    high = sd * math.sqrt(7 / stats.chi2.ppf(0.1, 7))
    assert (plan.sd_difference, plan.sd_high) == pytest.approx((sd, high))
    assert plan.pairs == seeds_needed(sd, difference=0.2)
    assert plan.safe_pairs == seeds_needed(high, difference=0.2)
    assert plan.ratio < 0.6
    assert "to be safe" in str(plan)
    assert '"equivalent" within ±0.2' in str(seeds_from_pilot(a, b, margin=0.2))


def test_the_safe_plan_is_enough_as_often_as_promised():
    rng, studies = np.random.default_rng(3), 150
    needed = seeds_needed(1.0, margin=0.6)
    draws = rng.normal(size=(studies, 6))
    plans = [seeds_from_pilot(np.zeros(6), row, margin=0.6) for row in draws]
    assert np.mean([plan.safe_pairs >= needed for plan in plans]) >= 0.8 - 3 * math.sqrt(0.16 / studies)
    assert np.mean([plan.pairs >= needed for plan in plans]) < 0.65


def test_bit_equal_arms_and_endless_plans():
    assert seeds_from_pilot([1.0, 2.0], [1.0, 2.0], margin=0.1).pairs == 6
    assert seeds_from_pilot([1.0, 1.0], [1.0, 1.0], margin=0.1).ratio is None
    assert seeds_from_pilot([0.0, 0.0], [0.0, 1.0], difference=0.003).safe_pairs is None


@pytest.mark.parametrize(
    ("a", "b", "options", "text"),
    [
        ([1.0], [2.0], {"margin": 0.1}, "at least 2"),
        ([1.0, 2.0], [2.0], {"margin": 0.1}, "equal lengths"),
        ([1.0, 2.0], [2.0, 3.5], {}, "exactly one"),
        ([1.0, 2.0], [2.0, 3.5], {"margin": 0.1, "difference": 0.1}, "exactly one"),
        ([1.0, 2.0], [2.0, 3.5], {"margin": -0.1}, "margin"),
        ([1.0, 2.0], [2.0, 3.5], {"margin": 0.0}, "margin"),
        ([1.0, 2.0], [2.0, 3.5], {"difference": 0.0}, "other than 0"),
        ([1.0, math.nan], [2.0, 3.0], {"margin": 0.1}, "finite"),
        ([1.0, 2.0], [2.0, 3.5], {"margin": 1e-7}, "more than 1,000,000"),
    ],
)
def test_bad_pilots_are_refused(a, b, options, text):
    with pytest.raises(ValueError, match=text):
        seeds_from_pilot(a, b, **options)
