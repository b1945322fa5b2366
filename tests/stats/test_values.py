"""The gate: what is let in, and what is said about the rest."""

import math
import statistics
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.stats import compare, decide, equivalence, estimate
from trivet.stats.values import as_pairs, as_values, mean_and_sd


@pytest.mark.parametrize(
    "bad",
    [
        "abc", ["1", "2"], [None, 1.0], [[1.0], [2.0]], [[1.0], [2.0, 3.0]], {0: 1.0, 1: 2.0}, {}, 3.0, None, b"12",
        [1 + 2j, 3.0], [Decimal("1.5")], [object()], np.array([["a"]]), {1.0, 2.0}, np.float64(3), np.array(3.0),
    ],
)  # fmt: skip
def test_not_a_flat_list_of_numbers(bad):
    with pytest.raises(TypeError, match="numbers"):
        as_values(bad)
    for call in (
        lambda: compare(bad, [1.0, 2.0]),
        lambda: decide([1.0, 2.0], bad, 0.1),
        lambda: equivalence(bad, bad, 0.1),
    ):
        with pytest.raises(TypeError, match="numbers"):
            call()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_not_finite_says_where_and_what_to_do(bad):
    with pytest.raises(ValueError, match=r"`b\[1\]` is .*finite.*Take diverged runs out"):
        decide([1.0, 2.0], [1.0, bad], margin=0.1)
    with pytest.raises(ValueError, match=r"`values\[0\]`"):
        estimate([bad])


def test_unequal_lengths():
    for call in (
        lambda: compare([1, 2, 3], [1, 2]),
        lambda: decide([1, 2, 3], [1, 2]),
        lambda: equivalence([1, 2, 3], [1, 2], 1),
    ):
        with pytest.raises(ValueError, match=r"`a` has 3 values and `b` has 2; .* equal lengths. Keep only the seeds"):
            call()


@pytest.mark.parametrize(
    "values",
    [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3], dtype=np.int32), np.array([1, 2, 3], dtype=np.float32), range(1, 4)],
)
def test_accepts_usual_sequences(values):
    assert as_values(values).tolist() == [1.0, 2.0, 3.0]
    assert as_values(values).dtype == np.float64


def test_booleans_are_zero_and_one():
    assert as_values([True, False]).tolist() == [1.0, 0.0]


def test_input_is_not_changed():
    a, b = np.array([3.0, 1.0, 2.0] * 3), np.array([1.0, 2.0, 3.0] * 3)
    decide(a, b, margin=0.5)
    assert a.tolist() == [3.0, 1.0, 2.0] * 3
    assert b.tolist() == [1.0, 2.0, 3.0] * 3


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_mean_and_sd_against_exact_fractions(values):
    mean, sd = mean_and_sd(np.array(values))
    size = max(map(abs, values))
    assert mean == pytest.approx(statistics.mean(values), rel=1e-12, abs=1e-15 * size)
    assert sd == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-14 * size)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e289])
def test_extreme_scales_neither_overflow_nor_vanish(scale):
    mean, sd = mean_and_sd(np.array([1.0, 2.0, 3.0]) * scale)
    assert mean == pytest.approx(2.0 * scale)
    assert sd == pytest.approx(scale)
    result = compare([0.0] * 6, np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0]) * scale)
    assert math.isfinite(result.low)
    assert result.low > 0
    assert result.p == 0.03125


def test_constant_differences_have_no_spread_despite_rounding():
    a = np.array([0.1, 0.2, 0.3, 0.7, 0.9, 0.4])
    assert as_pairs(a, a + 0.01).sd == 0.0
    assert as_pairs(a, a + 0.01).mean == pytest.approx(0.01)
    last_bit = as_pairs(a, np.nextafter(a, 2))
    assert (last_bit.mean, last_bit.sd, last_bit.identical, last_bit.constant) == (0.0, 0.0, False, True)
