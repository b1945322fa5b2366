"""Sign-flip test against enumeration, scipy and its own symmetries."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import min_pairs, sign_flip_p, smallest_p
from trivet.stats.signflip import DRAWS, EXACT_LIMIT, attained_alpha, sign_flip_method

small_ints = st.lists(st.integers(-6, 6), min_size=1, max_size=9)


def brute_force(differences: list[int]) -> float:
    """Count every pattern of signs with whole numbers, where sums are exact."""
    target = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(x >= target for x in sums) / len(sums)


@given(small_ints)
def test_equals_full_enumeration_including_ties(differences):
    assert sign_flip_p(np.array(differences, dtype=float)) == brute_force(differences)


@given(small_ints)
def test_ties_survive_decimal_rounding(differences):
    # Accuracies are multiples of 1/2000: equal differences must stay ties after dividing by 2000.
    a = np.linspace(0.85, 0.93, len(differences)).round(3)
    b = a + np.array(differences) / 2000
    noisy = b - a
    p = sign_flip_p(noisy, rounding=4 * np.finfo(float).eps)
    assert p == brute_force(differences)


@pytest.mark.parametrize("n", [6, 8, 11])
def test_equals_scipy_permutation_test(n):
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.7):
        a, b = rng.normal(size=n), rng.normal(shift, 1, size=n)
        reference = stats.permutation_test(
            (b, a),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            n_resamples=np.inf,
            vectorized=True,
        )
        assert sign_flip_p(b - a) == pytest.approx(reference.pvalue, abs=1e-12)


@pytest.mark.parametrize("n", [12, 17, 20])
def test_meet_in_the_middle_equals_plain_enumeration(n):
    rng = np.random.default_rng(n)
    d = rng.normal(0.3, 1, size=n)
    sums = np.zeros(1)
    for x in d:
        sums = np.concatenate([sums + x, sums - x])
    assert sign_flip_p(d) == np.mean(np.abs(sums) >= abs(d.sum()) * (1 - 1e-12))


def test_smallest_p_table():
    table = {3: 0.25, 4: 0.125, 5: 0.0625, 6: 0.03125, 8: 0.0078125, 10: 0.001953125}
    for n, expected in table.items():
        assert smallest_p(n) == expected
        assert sign_flip_p(np.arange(1.0, n + 1)) == expected
        assert sign_flip_p(-np.ones(n)) == expected
    assert min_pairs() == 6
    assert next(n for n in range(1, 20) if smallest_p(n) <= 0.05) == 6


@pytest.mark.parametrize(
    ("alpha", "family", "expected"), [(0.05, 1, 6), (0.05, 6, 8), (0.05, 7, 9), (0.01, 1, 8), (0.0625, 1, 5)]
)
def test_min_pairs_is_the_first_that_reaches_alpha(alpha, family, expected):
    n = min_pairs(alpha, family)
    assert n == expected
    assert smallest_p(n) * family <= alpha < smallest_p(n - 1) * family


thousandths = st.integers(-1_000_000, 1_000_000).map(lambda k: k / 1000)


@given(st.lists(thousandths, min_size=2, max_size=12), st.randoms(use_true_random=False), st.floats(1e-3, 1e3))
def test_symmetries(differences, random, scale):
    d = np.array(differences)
    shuffled = list(differences)
    random.shuffle(shuffled)
    p = sign_flip_p(d)
    assert 2.0 ** (1 - d.size) <= p <= 1.0
    assert sign_flip_p(np.array(shuffled)) == p
    assert sign_flip_p(-d) == p
    assert sign_flip_p(d * 4.0) == p
    assert sign_flip_p(d * scale) == pytest.approx(p, abs=1e-9)


def test_all_zero_differences_give_one():
    assert sign_flip_p(np.zeros(8)) == 1.0
    assert sign_flip_p(np.full(8, 1e-17), rounding=4e-16) == 1.0


def test_sampled_p_is_close_to_exact_and_says_so():
    rng = np.random.default_rng(5)
    d = rng.normal(0.35, 1, size=EXACT_LIMIT)
    exact = sign_flip_p(d)
    from trivet.stats.signflip import _sampled

    sampled = _sampled(np.sort(np.abs(d)), abs(d.sum()) * (1 - 1e-12), seed=0)
    assert sampled == pytest.approx(exact, abs=5 * math.sqrt(exact / DRAWS))
    assert sign_flip_method(EXACT_LIMIT) == "exact sign-flip"
    assert "19,999 random" in sign_flip_method(EXACT_LIMIT + 1)


def test_sampled_p_repeats_and_never_reaches_zero():
    rng = np.random.default_rng(6)
    d = rng.normal(3, 1, size=EXACT_LIMIT + 10)
    p = sign_flip_p(d, seed=3)
    assert p == sign_flip_p(d, seed=3) == sign_flip_p(-d[::-1], seed=3) == 1 / (DRAWS + 1) == smallest_p(40)


@settings(max_examples=30)
@given(st.integers(2, 14), st.sampled_from([0.05, 0.01, 0.1]))
def test_attained_alpha_is_a_reachable_p(n, alpha):
    level, count = attained_alpha(n, alpha)
    assert level <= alpha
    assert level == count / 2 ** (n - 1)
    assert level + 2.0 ** (1 - n) > alpha


@pytest.mark.parametrize("call", [lambda: smallest_p(0), lambda: min_pairs(0.7), lambda: min_pairs(0.05, 0)])
def test_refuses_out_of_range(call):
    with pytest.raises(ValueError, match="must"):
        call()
