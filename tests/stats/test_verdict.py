"""The three-way rule: every branch, every edge, every sentence."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.stats import compare, decide, equivalence
from trivet.stats.verdict import PAIRS_LIMIT

NAMES = ("fp32", "RR")
BASE = np.array([0.901, 0.912, 0.897, 0.905, 0.908, 0.899, 0.903, 0.910])
NOISE = np.array([1.0, -1.0, 2.0, -2.0, 1.5, -1.5, 0.5, -0.5])
arms = st.integers(0, 12).flatmap(lambda n: st.tuples(*[st.lists(st.integers(-40, 40), min_size=n, max_size=n)] * 2))


def verdict(shift, noise, margin=0.005, n=8, **more):
    return decide(BASE[:n], BASE[:n] + shift + noise * NOISE[:n], margin, names=NAMES, metric="test_accuracy", **more)


def test_different_beyond_the_margin():
    v = verdict(-0.02, 0.001)
    assert (v.label, v.more_seeds, v.reason) == ("different", None, "")
    assert (v.sure_difference, v.within_margin, v.beyond_margin) == (True, False, True)
    assert str(v) == v.sentence == (
        "RR is lower than fp32 on test_accuracy: the mean difference RR − fp32 = −0.0200 "
        "(95 % t-interval −0.0212 to −0.0188, n = 8 pairs, exact sign-flip p = 0.0078). "
        "The whole interval lies beyond the margin ±0.005, so the difference matters."
    )  # fmt: skip


def test_different_but_reaching_into_the_margin():
    v = verdict(0.0055, 0.001)
    assert (v.label, v.sure_difference, v.within_margin, v.beyond_margin) == ("different", True, False, False)
    assert "RR is higher than fp32" in v.sentence
    assert "sure but may not matter" in v.sentence


def test_different_without_a_margin_says_nothing_of_one():
    v = verdict(0.02, 0.001, margin=0.0)
    assert v.label == "different"
    assert v.equivalence is None
    assert "margin" not in v.sentence


def test_equivalent():
    v = verdict(0.0001, 0.001)
    assert (v.label, v.sure_difference, v.within_margin) == ("equivalent", False, True)
    assert v.sentence == (
        "RR and fp32 are equivalent on test_accuracy: the mean difference RR − fp32 = +0.00010 "
        "(90 % interval −0.00088 to +0.00108, n = 8 pairs, TOST p < 0.0001) lies inside ±0.005."
    )


def test_equivalent_with_a_small_but_sure_difference():
    v = verdict(0.002, 0.0005)
    assert (v.label, v.sure_difference, v.within_margin, v.beyond_margin) == ("equivalent", True, True, False)
    assert "A small but sure difference exists: the 95 % t-interval" in v.sentence
    assert "excludes 0 (exact sign-flip p = 0.0078)" in v.sentence


def test_both_hold_but_the_wide_interval_leaves_the_margin():
    v = verdict(0.004, 0.00090)
    c, e = v.comparison, v.equivalence
    assert c.high > 0.005 > e.high > 0
    assert c.low > 0
    assert (v.label, v.sure_difference, v.within_margin) == ("different", True, True)


def test_undecided_says_why_and_how_many_more():
    v = verdict(0.002, 0.006)
    assert (v.label, v.reason) == ("undecided", "interval too wide")
    assert v.more_seeds > 0
    assert "does not lie inside ±0.005" in v.sentence
    assert f"about {v.more_seeds} more pairs ({8 + v.more_seeds} pairs in all)" in v.sentence
    assert "with 80 % probability" in v.sentence


def test_more_seeds_decides_in_four_of_five_repeats():
    v = verdict(0.002, 0.006)
    sd, n = v.comparison.sd_difference, 8 + v.more_seeds
    rng = np.random.default_rng(0)
    labels = [decide(np.zeros(n), rng.normal(0.002, sd, n), 0.005).label for _ in range(300)]
    assert np.mean([label != "undecided" for label in labels]) > 0.8 - 0.07


def test_without_a_margin_never_equivalent():
    v = verdict(0.0, 0.001, margin=0.0)
    assert (v.label, v.reason, v.margin, v.equivalence) == ("undecided", "no margin", 0.0, None)
    assert "without a margin, equivalence cannot be shown" in v.sentence
    same = decide(BASE, BASE, names=NAMES)
    assert (same.label, same.more_seeds) == ("undecided", None)
    assert "exactly the same value (8 pairs)" in same.sentence


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_below_six_pairs_always_undecided(n, margin):
    for shift, noise in ((0.02, 0.001), (0.0, 0.0001), (0.0, 0.0), (0.02, 0.0)):
        v = verdict(shift, noise, margin=margin, n=n)
        assert (v.label, v.reason) == ("undecided", "too few pairs")
        assert f"cannot go below p = {2.0 ** (1 - n):.4g}, so it cannot reach 5 %; that takes 6 pairs" in v.sentence
        assert v.more_seeds is None or v.more_seeds >= 6 - n
    assert verdict(0.02, 0.0, n=n).more_seeds == 6 - n


def test_five_pairs_at_alpha_ten_percent_are_still_too_few():
    v = verdict(0.02, 0.001, n=5, alpha=0.1)
    assert (v.label, v.reason) == ("undecided", "too few pairs")
    assert "No verdict is given below 6 pairs (5 here)." in v.sentence


def test_six_pairs_can_decide():
    assert verdict(0.02, 0.001, n=6).label == "different"
    assert verdict(0.0, 0.001, n=6).label == "equivalent"


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_pairs_is_a_verdict_not_a_crash(n):
    v = decide([1.0] * n, [2.0] * n, 0.1, names=NAMES, metric="loss", lost=8 - n)
    assert (v.label, v.reason, v.n, v.more_seeds) == ("undecided", "too few pairs", n, 6 - n)
    assert v.comparison is v.equivalence is v.p is None
    assert f"At least {6 - n} more pairs are needed" in v.sentence
    assert f"{8 - n} further pairs could not be compared: a run diverged or failed." in v.sentence
    assert json.loads(json.dumps(v.to_dict(), allow_nan=False)) == v.to_dict()


def test_bit_identical_arms_with_a_margin_are_equivalent():
    v = decide(BASE, BASE, 0.005, names=NAMES)
    assert (v.label, v.sure_difference) == ("equivalent", False)
    assert "Both runs of every pair gave exactly the same value (8 pairs)." in v.sentence


def test_last_bit_differences_are_rounding():
    v = decide(BASE, np.nextafter(BASE, 2), 0.005)
    assert v.label == "equivalent"
    assert "the same value up to rounding (8 pairs)" in v.sentence
    assert decide(BASE, np.nextafter(BASE, 2)).label == "undecided"


def test_constant_shift():
    v = verdict(0.01, 0.0)
    assert v.label == "different"
    assert "All 8 differences are equal, so the interval is a point." in v.sentence


def test_exact_test_overrules_a_lucky_interval():
    # n = 6 with one small difference of the other sign: t excludes 0, sign-flip p = 4/64 does not reach 5 %.
    d = np.array([1.0, 1.1, 0.9, 1.0, 1.05, -0.01])
    v = decide(np.zeros(6), d)
    assert v.comparison.low > 0
    assert v.p == 0.0625
    assert (v.label, v.reason) == ("undecided", "tests disagree")
    assert "excludes 0, but the exact sign-flip test does not confirm it at 5 %" in v.sentence


def test_interval_overrules_the_exact_test():
    d = np.array([0.01, 0.01, 0.01, 0.01, 0.01, 5.0])
    v = decide(np.zeros(6), d)
    assert v.p == 0.03125
    assert v.comparison.low < 0
    assert (v.label, v.reason) == ("undecided", "tests disagree")
    assert "finds a difference, but the interval does not exclude 0" in v.sentence


def test_correction_in_a_family():
    v = verdict(0.02, 0.001, adjusted_p=3 * 0.0078125, family_size=3)
    assert v.label == "different"
    assert "p = 0.023 after Holm over 3 comparisons" in v.sentence
    v = verdict(0.02, 0.001, adjusted_p=7 * 0.0078125, family_size=7)
    assert (v.label, v.reason, v.more_seeds) == ("undecided", "family too large", 1)
    assert "that takes 9 pairs or fewer comparisons" in v.sentence
    assert verdict(0.02, 0.001, adjusted_p=0.0).p == 0.0078125


def test_out_of_reach():
    v = decide(np.zeros(8), NOISE + 1e-4)
    assert v.more_seeds is None
    assert "No realistic number of further pairs" in v.sentence
    assert PAIRS_LIMIT == 10_000


def test_many_pairs_use_random_patterns_and_say_so():
    rng = np.random.default_rng(1)
    v = decide(np.zeros(60), rng.normal(1.0, 1.0, 60))
    assert v.label == "different"
    assert "sign-flip with 19,999 random patterns p < 0.0001" in v.sentence


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margin": -0.1}, r"`margin=-0.1` must be a finite number, 0 \(no margin\) or above; give the largest"),
        ({"margin": float("nan")}, "margin=nan"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"alpha": 5}, "alpha=5"),
        ({"adjusted_p": 1.5}, "adjusted_p=1.5"),
        ({"family_size": 0}, "family_size=0"),
        ({"lost": -1}, "lost=-1"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        decide(BASE, BASE, **arguments)


@given(arms, st.floats(0.1, 40), st.floats(1.0, 4.0))
def test_properties(pair, margin, factor):
    a, b = pair
    v, wide, none = decide(a, b, margin), decide(a, b, margin * factor), decide(a, b)
    swapped, shifted = decide(b, a, margin), decide(np.array(a) + 5.0, np.array(b) + 5.0, margin)
    scaled = decide(np.array(a) * 4.0, np.array(b) * 4.0, margin * 4.0)
    assert v.label == swapped.label == shifted.label == scaled.label
    assert v.more_seeds == swapped.more_seeds == shifted.more_seeds == scaled.more_seeds
    assert none.label != "equivalent"
    assert none.sure_difference == v.sure_difference == wide.sure_difference
    assert wide.label == "equivalent" or v.label != "equivalent"
    assert len(a) >= 6 or v.label == "undecided"
    assert v.label == "undecided" or v.more_seeds is None
    assert v.more_seeds is None or v.more_seeds >= 1
    if len(a) >= 2:
        assert v.comparison == compare(a, b)
        assert v.equivalence == equivalence(a, b, margin)
    for each in (v, none):
        assert json.loads(json.dumps(each.to_dict(), allow_nan=False)) == each.to_dict()
        assert "nan" not in each.sentence
        assert "inf" not in each.sentence.replace("information", "")
        assert "--" not in each.sentence


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_neither_scipy_nor_torch():
    assert run_python("import sys, trivet.stats; print({'scipy', 'torch', 'pandas'} & set(sys.modules))") == "set()"


def test_functions_are_not_shadowed_by_their_modules():
    code = "import trivet.stats.compare, trivet.stats.estimate; from trivet.stats import compare, estimate, equivalence"
    assert (
        run_python(f"{code}; print(callable(compare), callable(estimate), callable(equivalence))") == "True True True"
    )


def test_deciding_does_not_load_scipy_stats():
    code = "import sys; from trivet.stats import decide; x = list(range(8)); decide(x, x[::-1], 0.1)"
    assert run_python(f"{code}; print('scipy.special' in sys.modules, 'scipy.stats' in sys.modules)") == "True False"
