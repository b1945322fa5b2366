"""Rank correlation against scipy, its interval against simulation, and its refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.stats import rank_correlation


def oracle(method: str, x: Any, y: Any) -> float:
    from scipy import stats

    found = stats.spearmanr(x, y) if method == "spearman" else stats.kendalltau(x, y)
    return float(found.statistic)


@pytest.mark.parametrize("method", ["spearman", "kendall"])
@given(st.data())
@settings(deadline=None, max_examples=40)
def test_equal_to_scipy_with_and_without_ties(method: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(3, 7))
    n = data.draw(st.integers(2, 4))
    x = data.draw(st.lists(st.integers(0, 6), min_size=k, max_size=k).filter(lambda v: len(set(v)) > 1))
    cell = st.integers(0, 5)
    rows = st.lists(st.lists(cell, min_size=n, max_size=n), min_size=k, max_size=k)
    outcomes = np.array(data.draw(rows.filter(lambda r: len({sum(row) for row in r}) > 1)), dtype=float)
    result = rank_correlation(x, list(outcomes), method=method)
    assert result.of_means == pytest.approx(oracle(method, x, outcomes.mean(axis=1)), abs=1e-9)
    for seed, value in enumerate(result.within_seeds):
        column = outcomes[:, seed]
        expected = oracle(method, x, column) if len(set(column)) > 1 else 0.0
        assert value == pytest.approx(expected, abs=1e-9)
    assert result.coefficient == pytest.approx(np.mean(result.within_seeds), abs=1e-12)
    assert -1 <= result.low <= result.coefficient + 1e-12
    assert result.coefficient - 1e-12 <= result.high <= 1


def test_p_value_is_that_of_all_orders() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [0.1, 0.3, 0.2, 0.5, 0.4]
    result = rank_correlation(x, [[v, v] for v in y])
    orders = [abs(oracle("spearman", order, y)) for order in itertools.permutations(x)]
    assert result.p == pytest.approx(np.mean([v >= abs(result.of_means) - 1e-9 for v in orders]))


def test_drawn_orders_agree_with_scipy_and_repeat() -> None:
    from scipy import stats

    rng = np.random.default_rng(4)
    x = np.arange(14.0)
    outcomes = list(0.15 * x[:, None] + rng.normal(size=(14, 8)))
    result = rank_correlation(x, outcomes, method="kendall")
    assert result == rank_correlation(x, outcomes, method="kendall")
    exact = stats.kendalltau(x, np.mean(outcomes, axis=1), method="exact").pvalue
    assert result.p == pytest.approx(exact, abs=0.004)


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0])
def test_interval_covers_the_mean_coefficient_of_a_seed(spread: float) -> None:
    rng = np.random.default_rng([7, int(10 * spread)])
    x = np.arange(7.0)
    means = spread * x / 6

    def draw(n: int) -> np.ndarray:
        return means[:, None] + rng.normal(size=(7, n))

    truth = np.mean(rank_correlation(x, list(draw(20_000))).within_seeds)
    results = [rank_correlation(x, list(draw(8))) for _ in range(150)]
    assert np.mean([result.low <= truth <= result.high for result in results]) > 0.89


def test_what_seeds_do_to_all_arms_alike_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    outcomes = rng.normal(size=(5, 6))
    shifted = outcomes + 100 * rng.normal(size=(1, 6))
    a, b = (rank_correlation([1, 2, 3, 4, 5], list(table)) for table in (outcomes, shifted))
    assert a.within_seeds == pytest.approx(b.within_seeds)


@pytest.mark.parametrize(
    ("x", "outcomes", "message"),
    [
        ([1, 2], [[1, 2], [2, 3]], "at least 3"),
        ([1, 2, 3], [[1, 2], [2, 3]], "one row an arm"),
        ([1, 2, 3], [[1, 2], [2, 3], [4]], "keep the seeds that every arm has"),
        ([1, 2, 3], [[1], [2], [4]], "at least 2"),
        ([1, 1, 1], [[1, 2], [2, 3], [4, 4]], "all values of `x` are equal"),
        ([1, 2, 3], [[1, 2], [2, 1], [1.5, 1.5]], "same mean outcome"),
        ([1, 2, 3], [[1, 2], [2, float("nan")], [1.5, 1.5]], "finite"),
    ],
)
def test_refusals(x: Any, outcomes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_correlation(x, outcomes)


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match="spearman, kendall"):
        rank_correlation([1, 2, 3], [[1, 2], [2, 3], [4, 4]], method="pearson")
