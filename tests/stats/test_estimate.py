"""One arm's mean and spread."""

import json

import numpy as np
import pytest
from scipy import stats

from trivet.stats import estimate
from trivet.stats.distributions import sd_factors


@pytest.mark.parametrize("n", [2, 5, 8, 40])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_intervals_equal_scipy(n, confidence):
    x = np.random.default_rng(n).normal(3, 2, size=n)
    e = estimate(x, confidence=confidence)
    assert (e.low, e.high) == pytest.approx(stats.t.interval(confidence, n - 1, x.mean(), stats.sem(x)))
    chi = stats.chi2.ppf([(1 + confidence) / 2, (1 - confidence) / 2], n - 1)
    assert (e.sd_low, e.sd_high) == pytest.approx(tuple(x.std(ddof=1) * np.sqrt((n - 1) / chi)))


@pytest.mark.parametrize(("n", "low", "high"), [(5, 0.60, 2.87), (10, 0.69, 1.83), (20, 0.76, 1.46), (100, 0.88, 1.16)])
def test_published_factors_of_an_sd(n, low, high):
    assert sd_factors(n - 1, 0.95) == pytest.approx((low, high), abs=0.005)


def test_one_run_has_a_mean_and_no_interval():
    e = estimate([0.5])
    assert (e.n, e.mean, e.sd, e.low, e.high, e.sd_low, e.sd_high) == (1, 0.5, None, None, None, None, None)
    assert str(e) == "0.5 (n = 1, no interval)"
    assert json.loads(json.dumps(e.to_dict(), allow_nan=False))["low"] is None


def test_equal_runs_give_a_point():
    e = estimate([0.25] * 4)
    assert (e.low, e.high, e.sd, e.sd_high) == (0.25, 0.25, 0.0, 0.0)
    assert str(e) == "0.25 (95 % t-interval 0.25 to 0.25, n = 4)"


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="at least 1 run"):
        estimate([])
    with pytest.raises(ValueError, match="confidence"):
        estimate([1.0, 2.0], confidence=95)


def test_text():
    assert str(estimate([0.91, 0.92, 0.90, 0.93])) == "0.915 (95 % t-interval 0.894 to 0.936, n = 4)"
    assert str(estimate([-1.0, -1.5, -2.0])) == "−1.5 (95 % t-interval −2.7 to −0.3, n = 3)"
