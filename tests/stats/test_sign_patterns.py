"""Sign patterns against brute force and scipy; the error over all looks, counted over every data set there is."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import LookPlan, sign_flip_p
from trivet.stats.sign_patterns import EXACT_PAIRS, stopping, subset_limits


def brute_force(d, sizes, budgets):
    """Stop patterns look by look, literally as the definition says."""
    patterns = [np.array(s) for s in itertools.product([1, -1], repeat=len(d))]
    alive = [True] * len(patterns)
    found = []
    for size, budget in zip(sizes, budgets, strict=True):
        reach = [round(abs(float(np.dot(s[:size], d[:size]))), 9) for s in patterns]
        gone = len(alive) - sum(alive)
        share = [
            (gone + sum(a and other >= own for a, other in zip(alive, reach, strict=True))) / len(patterns)
            for own in reach
        ]
        alive = [a and not s <= budget for a, s in zip(alive, share, strict=True)]
        found.append((share[0], not alive[0]))
        if not alive[0]:
            break
    return found


@pytest.mark.parametrize("seed", range(6))
def test_paths_agree_with_brute_force(seed):
    rng = np.random.default_rng(seed)
    d = rng.normal(0.8, 1.0, size=9) if seed % 2 else rng.integers(-1, 3, size=9).astype(float)
    sizes, budgets = [6, 7, 9], [0.035, 0.06, 0.1]
    wanted = brute_force(d, sizes, budgets)
    got = [(one.share, one.stopped) for one in stopping(d, sizes, budgets, 9)]
    assert got[: len(wanted)] == wanted


def test_one_look_is_the_sign_flip_test():
    rng = np.random.default_rng(5)
    for n in (6, 9, 13):
        d = rng.normal(0.5, 1.0, size=n)
        assert stopping(d, [n], [0.05], n)[0].share == pytest.approx(sign_flip_p(d), abs=1e-15)


def sign_sets(magnitudes):
    return (np.array(s) * magnitudes for s in itertools.product([1.0, -1.0], repeat=len(magnitudes)))


@settings(max_examples=8)
@given(st.lists(st.floats(0.0, 10.0).map(lambda x: round(x, 2)), min_size=8, max_size=8), st.booleans())
def test_error_over_all_looks_never_exceeds_alpha_whatever_the_sizes(magnitudes, pocock):
    plan = LookPlan(pairs=(6, 7, 8), spending="pocock" if pocock else "obrien-fleming", alpha=0.1)
    data = list(sign_sets(np.array(magnitudes)))
    stopped = [any(one.stopped for one in stopping(d, plan.pairs, plan.spent(), 8)) for d in data]
    assert np.mean(stopped) <= 0.1


def test_the_error_is_used_up_when_there_are_no_ties():
    plan = LookPlan(pairs=(6, 8, 10), alpha=0.05)
    magnitudes = np.random.default_rng(0).lognormal(size=10)
    stopped = [any(one.stopped for one in stopping(d, plan.pairs, plan.spent(), 10)) for d in sign_sets(magnitudes)]
    assert 0.045 < np.mean(stopped) <= 0.05


def test_subset_limits_agree_with_scipy_and_brute_force():
    d = np.random.default_rng(1).normal(0.3, 1.0, size=9)
    found = subset_limits(d, 0.05, margin=0.9)
    upper = stats.permutation_test((d - 0.9,), np.mean, permutation_type="samples", alternative="less")
    lower = stats.permutation_test((d + 0.9,), np.mean, permutation_type="samples", alternative="greater")
    assert found.p == pytest.approx(max(upper.pvalue, lower.pvalue), abs=1e-12)
    means = sorted(np.mean(c) for r in range(1, 10) for c in itertools.combinations(d, r))
    k = math.floor(0.05 * 2**9)
    assert (found.low, found.high) == pytest.approx((means[k - 1], means[-k]))
    assert found.attained == k / 2**9


@given(
    st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=6, max_size=10),
    st.floats(0.02, 0.2),
    st.floats(0.01, 8.0),
)
def test_limits_and_p_say_the_same(values, level, margin):
    found = subset_limits(np.array(values), level, margin)
    assert found.within == (found.p <= found.attained)
    if found.within:
        assert found.low > -margin
        assert found.high < margin


@pytest.mark.parametrize("beyond", [0.0, 0.4])
def test_one_sided_error_never_exceeds_the_level_at_and_beyond_the_margin(beyond):
    magnitudes = np.random.default_rng(2).lognormal(size=9)
    wrong = [subset_limits(1.0 + beyond + d, 0.04, 1.0).within for d in sign_sets(magnitudes)]
    assert np.mean(wrong) <= 0.04


def test_below_six_pairs_nothing_is_stopped_and_no_limit_is_given():
    d = np.full(5, 1.0)
    assert not stopping(d, [5], [0.2], 12)[0].stopped
    found = subset_limits(d, 0.2, 9.0)
    assert (found.low, found.high, found.attained, found.within) == (-math.inf, math.inf, 0.0, False)


def test_random_patterns_come_near_the_exact_ones_and_are_repeatable():
    rng = np.random.default_rng(3)
    d = rng.normal(0.6, 1.0, size=16)
    exact = stopping(d, [8, 12, 16], [0.01, 0.02, 0.05], EXACT_PAIRS)
    drawn = [stopping(d, [8, 12, 16], [0.01, 0.02, 0.05], EXACT_PAIRS + 1) for _ in range(2)]
    assert drawn[0] == drawn[1]
    for one, other in zip(exact, drawn[0], strict=True):
        assert other.share == pytest.approx(one.share, abs=4 * math.sqrt(one.share / 10_000) + 1e-4)
    long = np.concatenate([d, d[::-1], d])
    found = subset_limits(long, 0.05)
    low, high = stats.t.interval(0.90, len(long) - 1, long.mean(), stats.sem(long))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.12)


def test_all_equal_outcomes():
    zero = np.zeros(8)
    assert stopping(zero, [8], [0.05], 8)[0] == stopping(zero, [6, 8], [0.03, 0.05], 8)[1]
    assert stopping(zero, [8], [0.05], 8)[0].share == 1.0
    found = subset_limits(zero, 0.05, 0.1)
    assert (found.low, found.high, found.within, found.p) == (0.0, 0.0, True, 2**-8)
