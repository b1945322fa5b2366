"""Agreement of rankers with the truth: against scipy, its interval against simulation, and its refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.stats import agreement_difference, rank_agreement


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_equal_to_scipy_with_and_without_ties(data: st.DataObject) -> None:
    from scipy import stats

    n = data.draw(st.integers(3, 12))
    column = st.lists(st.integers(0, 6), min_size=n, max_size=n).filter(lambda values: len(set(values)) > 1)
    scores, truth = data.draw(column), data.draw(column)
    found = rank_agreement(scores, truth, resamples=100)
    assert found.tau == pytest.approx(float(stats.kendalltau(scores, truth).statistic), abs=1e-12)
    assert -1 <= found.low <= found.high <= 1
    assert found.n == n


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=4, max_size=12))
@settings(deadline=None, max_examples=40)
def test_only_orders_matter_and_a_reversed_order_turns_the_sign(pairs: list[tuple[float, float]]) -> None:
    scores, truth = zip(*pairs, strict=True)
    if len(set(truth)) == 1:
        return
    found = rank_agreement(scores, truth, resamples=100)
    cubed = rank_agreement([3 * rank for rank in np.unique(scores, return_inverse=True)[1]], truth, resamples=100)
    assert (found.tau, found.low, found.high) == (cubed.tau, cubed.low, cubed.high)
    turned = rank_agreement([-score for score in scores], truth, resamples=100)
    assert turned.tau == -found.tau
    assert turned.low == pytest.approx(-found.high, abs=1e-12)


def test_a_resample_is_what_scipy_makes_of_the_items_drawn() -> None:
    from scipy import stats

    from trivet.stats.agreement import _taus

    rng = np.random.default_rng(2)
    scores, truth = rng.integers(0, 9, 12).astype(float), rng.normal(size=12)
    rows = rng.integers(12, size=(20, 12))
    weights = np.array([np.bincount(row, minlength=12) for row in rows], dtype=float)
    expected = [float(stats.kendalltau(scores[row], truth[row]).statistic) for row in rows]
    assert _taus(scores, truth, weights) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_interval_covers_the_true_coefficient(rho: float) -> None:
    rng = np.random.default_rng([3, int(10 * rho)])
    tau, hits = 2 / math.pi * math.asin(rho), 0
    for _ in range(150):
        truth = rng.normal(size=30)
        scores = rho * truth + math.sqrt(1 - rho**2) * rng.normal(size=30)
        found = rank_agreement(scores, truth, resamples=300)
        hits += found.low <= tau <= found.high
    assert hits / 150 > 0.89


def test_a_difference_is_drawn_over_the_same_items() -> None:
    rng = np.random.default_rng(5)
    truth, noise, other = rng.normal(size=(3, 60))
    scores, better = truth + noise, truth + 0.8 * noise + 0.05 * other
    same = agreement_difference(scores, scores.copy(), truth)
    assert (same.difference, same.low, same.high) == (0, 0, 0)
    found = agreement_difference(scores, better, truth)
    one, two = rank_agreement(scores, truth), rank_agreement(better, truth)
    assert (found.tau_a, found.tau_b) == (one.tau, two.tau)
    assert found.difference == two.tau - one.tau
    assert found.low > 0  # though the two intervals overlap by far
    assert one.high > two.low
    assert found == agreement_difference(scores, better, truth)


def test_scores_that_are_equal_or_infinite() -> None:
    assert rank_agreement([1, 1, 1], [1, 2, 3]).tau == 0
    diverged = rank_agreement([float("-inf"), 0.5, 0.7, float("inf")], [1, 2, 3, 4])
    assert diverged.tau == 1
    assert rank_agreement([float("-inf")] * 2 + [0.0], [1.0, 1.0, 2.0]).tau == 1


def test_it_says_everything_on_one_line_and_is_plain() -> None:
    found = rank_agreement([1, 2, 3, 4], [1, 2, 3, 4])
    assert str(found) == "Kendall τ +1.00 (95 % percentile bootstrap +1.00 to +1.00, n = 4)"
    assert found.to_dict()["method"] == "percentile bootstrap"
    assert str(agreement_difference([1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 4])).startswith("Δτ -2.00 (95 % paired")


@pytest.mark.parametrize(
    ("scores", "truth", "options", "message"),
    [
        ([1, 2], [1, 2], {}, "at least 3"),
        ([1, 2], [1, 2, 3], {}, r"2 scores and 3 values of `truth`"),
        ([1, 2, 3], [2, 2, 2], {}, "`truth` are equal"),
        ([1, 2, float("nan")], [1, 2, 3], {}, "finite"),
        ([1, 2, 3], [1, 2, 3], {"resamples": 10}, "`resamples=10` must be ≥ 100"),
        ([1, 2, 3], [1, 2, 3], {"confidence": 0.3}, "confidence"),
    ],
)
def test_refusals(scores: Any, truth: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_agreement(scores, truth, **options)


def test_words_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="`scores` holds 'a'"):
        rank_agreement(["a", "b", "c"], [1, 2, 3])  # type: ignore[list-item]
