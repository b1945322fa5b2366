"""Planning: power and sample sizes against noncentral t, simulation and the published table."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from trivet.stats import compare, power_different, power_equivalent, seeds_needed, smallest_detectable

# Published table (simulated there, so ±1 to ±3 % off), in units of the SD of the paired difference.
EQUIVALENT = {0.25: (136, 175), 0.5: (36, 46), 0.75: (17, 21), 1.0: (11, 13), 1.5: (6, 7), 2.0: (4, 5)}
DIFFERENT = {0.25: (128, 171), 0.5: (34, 44), 1.0: (10, 13), 1.5: (6, 7), 2.0: (5, 5), 3.0: (4, 4)}


@pytest.mark.parametrize("unit", EQUIVALENT)
def test_published_table_equivalent(unit):
    for power, published in zip((0.8, 0.9), EQUIVALENT[unit], strict=True):
        assert seeds_needed(1.0, margin=unit, power=power, rule="t") == pytest.approx(
            published, abs=max(1e-9, 0.025 * published)
        )


@pytest.mark.parametrize("unit", DIFFERENT)
def test_published_table_different(unit):
    for power, published in zip((0.8, 0.9), DIFFERENT[unit], strict=True):
        assert seeds_needed(1.0, difference=unit, power=power, rule="t") == published


@pytest.mark.parametrize(("n", "unit"), [(2, 1.0), (5, 0.3), (10, 1.0), (100, 0.25), (5000, 0.02), (8, 0.0), (8, -1.2)])
def test_t_power_equals_noncentral_t(n, unit):
    t, shift = stats.t.ppf(0.975, n - 1), unit * math.sqrt(n)
    expected = stats.nct.sf(t, n - 1, shift) + stats.nct.cdf(-t, n - 1, shift)
    assert power_different(n, unit, rule="t") == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    ("n", "margin", "true"), [(6, 1.5, 0.0), (8, 0.6, 0.0), (11, 1.0, 0.3), (45, 0.5, 0.0), (3, 1.0, 0.0)]
)
def test_tost_power_equals_simulation(n, margin, true):
    rng = np.random.default_rng(n)
    runs = 100_000
    mean = true + rng.normal(size=runs) / math.sqrt(n)
    error = np.sqrt(rng.chisquare(n - 1, size=runs) / (n - 1) / n)
    t = special.stdtrit(n - 1, 0.95)
    simulated = np.mean(np.abs(mean) + t * error < margin)
    assert power_equivalent(n, margin, true_difference=true, rule="t") == pytest.approx(simulated, abs=0.006)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 4.0), st.sampled_from([0.5, 0.8, 0.9, 0.95]), st.sampled_from([0.05, 0.01]), st.booleans())
def test_seeds_needed_is_the_smallest_number(unit, power, alpha, find):
    if find:
        n = seeds_needed(2.0, difference=2.0 * unit, power=power, alpha=alpha, rule="t")
        reached = lambda k: power_different(k, unit, alpha=alpha, rule="t")  # noqa: E731
    else:
        n = seeds_needed(2.0, margin=2.0 * unit, power=power, alpha=alpha, rule="t")
        reached = lambda k: power_equivalent(k, unit, alpha=alpha, rule="t")  # noqa: E731
    assert reached(n) >= power
    assert n == 2 or reached(n - 1) < power


def test_planning_for_decide_respects_its_floors():
    assert seeds_needed(1.0, difference=50.0) == 6
    assert seeds_needed(1.0, margin=50.0) == 6
    assert seeds_needed(1.0, difference=50.0, family_size=7) == 9
    assert power_different(5, 50.0) == 0.0
    assert power_equivalent(5, 50.0) == 0.0
    assert seeds_needed(1.0, difference=0.5, family_size=6) > seeds_needed(1.0, difference=0.5)


def test_negative_difference_is_the_same_question():
    assert seeds_needed(1.0, difference=-0.7) == seeds_needed(1.0, difference=0.7)


def test_smallest_detectable_has_the_power_asked_for():
    for n in (6, 8, 12, 40):
        found = smallest_detectable(0.02, n)
        assert power_different(n, found / 0.02) == pytest.approx(0.8, abs=1e-6)
    assert smallest_detectable(0.02, 5) is None
    assert smallest_detectable(0.0, 8) == 0.0
    assert smallest_detectable(0.02, 8, family_size=7) is None
    assert compare(np.arange(8.0), np.arange(8.0)[::-1]).smallest_detectable == smallest_detectable(
        np.std(np.arange(8.0)[::-1] - np.arange(8.0), ddof=1), 8
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sd_difference": 0.0, "difference": 1.0}, "sd_difference=0.0"),
        ({"sd_difference": math.nan, "difference": 1.0}, "sd_difference=nan"),
        ({"sd_difference": 1.0}, "exactly one"),
        ({"sd_difference": 1.0, "difference": 1.0, "margin": 1.0}, "exactly one"),
        ({"sd_difference": 1.0, "difference": 0.0}, "difference=0.0"),
        ({"sd_difference": 1.0, "margin": -1.0}, "margin=-1.0"),
        ({"sd_difference": 1.0, "margin": 1.0, "true_difference": 1.0}, "smaller than `margin=1.0`"),
        ({"sd_difference": 1.0, "margin": 1.0, "power": 80}, "power=80"),
        ({"sd_difference": 1.0, "margin": 1.0, "rule": "z"}, "rule='z'"),
        ({"sd_difference": 1.0, "difference": 1e-5}, "more than 1,000,000 pairs"),
        ({"sd_difference": 1.0, "margin": 1e-5}, "more than 1,000,000 pairs"),
        ({"sd_difference": 1.0, "difference": 1.0, "family_size": 0}, "family_size=0"),
    ],
)
def test_refuses_bad_plans(arguments, message):
    with pytest.raises(ValueError, match=message):
        seeds_needed(**arguments)


def test_refuses_bad_detectable():
    for call in (
        lambda: smallest_detectable(-1.0, 8),
        lambda: smallest_detectable(1.0, 1),
        lambda: smallest_detectable(1.0, 8, power=2),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
