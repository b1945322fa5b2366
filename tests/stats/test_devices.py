"""Devices as units: rank test against scipy, mixed model against statsmodels and closed forms, error rates."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import compare, decide_devices, mixed_model
from trivet.stats.devices import rank_p


def simulate(rng, sizes, between, effect=0.0):
    """Two classes of devices; `sizes` are the runs of each device of each class."""
    classes = []
    for shift, runs in zip((0.0, effect), sizes, strict=True):
        classes.append(
            {f"{shift}-{k}": shift + between * rng.normal() + rng.normal(size=n) for k, n in enumerate(runs)}
        )
    if effect == 0.0:
        classes[1] = {"b" + name: runs for name, runs in classes[1].items()}
    return classes


@pytest.mark.parametrize("sizes", [(4, 8), (5, 5), (3, 9)])
def test_rank_test_agrees_with_scipy(sizes):
    rng = np.random.default_rng(sizes)
    a, b = rng.normal(size=sizes[0]), rng.normal(0.8, 1.0, size=sizes[1])
    assert rank_p(a, b)[0] == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue, abs=1e-12)
    ties_a, ties_b = np.round(a), np.round(b)
    ranks = stats.rankdata(np.concatenate([ties_a, ties_b]))
    center, observed = ranks.mean() * sizes[1], ranks[sizes[0] :].sum()
    reach = [abs(sum(c) - center) for c in itertools.combinations(ranks.tolist(), sizes[1])]
    wanted = np.mean(np.array(reach) >= abs(observed - center) - 1e-9)
    assert rank_p(ties_a, ties_b)[0] == pytest.approx(wanted)


def test_more_devices_than_can_be_counted():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=12), rng.normal(1.0, 1.0, size=12)
    p, method = rank_p(a, b)
    assert "random splits" in method
    assert p == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue, abs=0.006)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("between", [0.4, 2.0])
def test_unbalanced_fit_agrees_with_statsmodels(seed, between):
    from statsmodels.regression.mixed_linear_model import MixedLM

    rng = np.random.default_rng(seed)
    a, b = simulate(rng, ([3, 5, 8, 2], [4, 4, 9, 2, 6]), between, effect=0.7)
    y = np.concatenate([*a.values(), *b.values()])
    sizes = [len(runs) for runs in (*a.values(), *b.values())]
    groups = np.repeat(np.arange(9), sizes)
    exog = np.column_stack([np.ones(y.size), groups >= 4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = MixedLM(y, exog, groups).fit(reml=True)
    found = mixed_model(a, b)
    between_sd, within_sd = math.sqrt(float(wanted.cov_re[0, 0])), math.sqrt(wanted.scale)
    assert found.effect == pytest.approx(wanted.fe_params[1], abs=2e-3)
    covariance = found.between * (groups[:, None] == groups) + found.within * np.eye(y.size)
    inverse = np.linalg.inv(exog.T @ np.linalg.solve(covariance, exog.astype(float)))
    assert found.standard_error == pytest.approx(math.sqrt(inverse[1, 1]))
    assert (math.sqrt(found.between), math.sqrt(found.within)) == pytest.approx((between_sd, within_sd), abs=1e-2)
    # the same restricted likelihood, and an optimum at least as good
    assert wanted.llf - 1e-6 <= found.log_likelihood <= wanted.llf + 1e-2


def test_balanced_fit_is_the_closed_form_and_the_t_test_on_device_means():
    rng = np.random.default_rng(9)
    a, b = simulate(rng, ([6] * 4, [6] * 5), 1.5, effect=1.0)
    found = mixed_model(a, b)
    means = [np.array([runs.mean() for runs in devices.values()]) for devices in (a, b)]
    wanted = stats.ttest_ind(means[1], means[0])
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval()), rel=1e-6)
    within = np.mean([runs.var(ddof=1) for runs in (*a.values(), *b.values())])
    around = sum(((m - m.mean()) ** 2).sum() for m in means) / 7
    assert (found.within, found.between) == pytest.approx((within, around - within / 6), rel=1e-5)
    assert found.reliability == pytest.approx(found.between / (found.between + found.within))


def test_a_variance_that_would_be_negative_is_zero():
    a = {"a1": [0.0, 4.0], "a2": [1.0, 3.0], "a3": [0.5, 3.5]}
    b = {"b1": [2.0, 6.0], "b2": [3.0, 5.0], "b3": [2.5, 5.5]}
    found = mixed_model(a, b)
    assert found.between == pytest.approx(0.0, abs=1e-9)
    assert found.effect == pytest.approx(2.0)


def test_one_run_on_each_device_and_bit_equal_repeats():
    a, b = {f"a{k}": [float(k)] for k in range(4)}, {f"b{k}": [k + 3.0] for k in range(4)}
    single = mixed_model(a, b)
    repeated = mixed_model({k: v * 3 for k, v in a.items()}, {k: v * 3 for k, v in b.items()})
    wanted = compare([0, 1, 2, 3], [3, 4, 5, 6], paired=False)
    assert single.p == pytest.approx(wanted.p) == pytest.approx(repeated.p)
    assert (single.between, repeated.within) == (0.0, 0.0)
    assert single.within == pytest.approx(repeated.between)


def test_runs_do_not_replace_devices():
    rng = np.random.default_rng(3)
    a, b = simulate(rng, ([200] * 3, [200] * 3), 0.0, effect=3.0)
    verdict = decide_devices(a, b, margin=0.1, names=("CPUs", "GPUs"), metric="loss")
    assert (verdict.label, verdict.reason) == ("undecided", "too few pairs")
    assert verdict.smallest_p == 0.1
    assert "however many runs" in verdict.sentence
    one = decide_devices({"c": [1.0] * 50}, {"g": [2.0] * 50})
    assert (one.label, one.model) == ("undecided", None)
    assert "do not replace" in one.sentence


def test_false_alarms_over_devices_stay_below_five_percent_where_runs_as_units_do_not():
    rng, studies = np.random.default_rng(4), 120
    wrong, naive = 0, 0
    for _ in range(studies):
        a, b = simulate(rng, ([5] * 4, [5] * 6), 1.0)
        wrong += decide_devices(a, b).label == "different"
        pooled = [np.concatenate(list(devices.values())) for devices in (a, b)]
        naive += stats.ttest_ind(*pooled).pvalue <= 0.05
    assert wrong / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert naive / studies > 0.15


def test_labels():
    rng = np.random.default_rng(5)
    a, b = simulate(rng, ([5] * 4, [5] * 8), 0.1, effect=4.0)
    assert decide_devices(a, b, 0.5).label == "different"
    assert decide_devices(a, b, 0.5).superiority == 1.0
    a, b = simulate(rng, ([20] * 5, [20] * 6), 0.1)
    assert decide_devices(a, b, 1.0).label == "equivalent"
    assert decide_devices(a, b, 0.01).reason == "interval too wide"
    assert decide_devices(a, b).reason == "no margin"
    same = {f"a{k}": [0.5] * 3 for k in range(4)}, {f"b{k}": [0.5] * 3 for k in range(4)}
    assert decide_devices(*same, margin=0.1).label == "equivalent"
    assert decide_devices(*same).p == 1.0


@settings(max_examples=30)
@given(st.floats(-5, 5), st.floats(0.01, 100), st.integers(0, 5))
def test_shift_and_scale_do_not_change_the_fit(shift, factor, seed):
    a, b = simulate(np.random.default_rng(seed), ([3, 2, 4], [2, 5, 3]), 1.0, effect=0.5)
    found = mixed_model(a, b)
    moved = mixed_model({k: shift + factor * v for k, v in a.items()}, {k: shift + factor * v for k, v in b.items()})
    assert moved.effect == pytest.approx(factor * found.effect, rel=1e-5, abs=1e-7)
    assert moved.standard_error == pytest.approx(factor * found.standard_error, rel=1e-5)


def test_bad_input_is_refused():
    good = {"d1": [1.0, 2.0], "d2": [1.5, 2.5]}
    with pytest.raises(ValueError, match="both classes"):
        decide_devices(good, good)
    with pytest.raises(ValueError, match="has no run"):
        decide_devices(good, {"e": []})
    with pytest.raises(ValueError, match="finite"):
        decide_devices(good, {"e": [math.nan]})
    with pytest.raises(TypeError, match="mapping"):
        decide_devices([1.0, 2.0], good)
    with pytest.raises(ValueError, match="3 in all"):
        mixed_model(good, {})
    with pytest.raises(ValueError, match="margin"):
        decide_devices(good, {"e": [1.0]}, -1.0)
    assert decide_devices(good, {}).label == "undecided"
