"""Churn and spread by class: closed forms, coverage, bad input."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trivet.stats import accuracy_spread, churn, class_spread


def noisy(rng, runs, examples, rate, classes=5):
    """Runs that each replace a share of the same labels by random classes."""
    labels = rng.integers(0, classes, size=examples)
    wrong = rng.random((runs, examples)) < rate
    return labels, np.where(wrong, rng.integers(0, classes, size=(runs, examples)), labels)


def test_churn_is_the_mean_over_pairs():
    _, table = noisy(np.random.default_rng(0), 6, 500, 0.1)
    found = churn(table)
    pairs = [np.mean(a != b) for a, b in itertools.combinations(table, 2)]
    assert found.churn == pytest.approx(np.mean(pairs))
    assert (found.smallest, found.largest) == (min(pairs), max(pairs))
    assert found.unstable == np.mean([len(set(column)) > 1 for column in table.T.tolist()])


def test_equal_shares_are_their_own_mean():
    found = churn([[0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
    assert found.smallest == found.low == found.churn == found.high == found.largest == 0.4


@given(arrays(np.int64, st.tuples(st.integers(2, 5), st.integers(1, 8)), elements=st.integers(0, 3)))
def test_order_of_runs_examples_and_names_of_classes_do_not_matter(table):
    found = churn(table)
    for other in (table[::-1], table[:, ::-1], 7 - table):
        assert churn(other).churn == pytest.approx(found.churn)
    assert 0.0 <= found.smallest <= found.churn <= found.largest <= found.unstable <= 1.0
    if found.low is not None:
        assert found.low <= found.churn <= found.high


def test_interval_covers_when_runs_differ_in_how_far_they_stray():
    rng, studies, hits = np.random.default_rng(1), 300, 0
    weights = np.array([0.05, 0.1, 0.2])
    spread = 0.8  # probability that a replaced label is really another one
    for _ in range(studies):
        rates = rng.choice(weights, size=8)
        _, table = noisy(rng, 8, 400, rates[:, None])
        found = churn(table)
        mean = weights.mean()
        # two runs agree when both keep the label, or by chance
        p = mean
        wanted = 2 * p * (1 - p) * spread + p * p * spread
        hits += found.low <= wanted <= found.high
    assert hits / studies > 0.88


def test_equal_runs_and_two_runs():
    same = churn([[0, 1, 2]] * 4)
    assert (same.churn, same.low, same.high, same.unstable) == (0.0, 0.0, 0.0, 0.0)
    two = churn([[0, 1, 2], [0, 2, 1]])
    assert (two.low, two.high) == (None, None)
    assert "no interval below 3 runs" in str(two)


def test_spread_by_class_finds_the_class_that_moves():
    rng = np.random.default_rng(2)
    labels, table = noisy(rng, 8, 2000, 0.05)
    moving = np.flatnonzero(labels == 3)
    for run, share in enumerate(np.linspace(0.1, 0.9, 8)):
        table[run, moving[: int(share * moving.size)]] = 0
    found = class_spread(table, labels)
    assert found.widest == 3
    assert set(found.classes) == set(range(5))
    assert found.classes[3].ratio > 5
    assert found.overall == accuracy_spread((table == labels).mean(axis=1), 2000)
    assert sum(one.examples for one in found.classes.values()) == 2000
    assert "class 3" in str(found)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"1 run\(s\)"):
        churn([[0, 1]])
    with pytest.raises(ValueError, match=r"0 example\(s\)"):
        churn([[], []])
    with pytest.raises(ValueError, match="differ in length"):
        churn([[0, 1], [0]])
    for wrong in ([0, 1], [[0.5, 1.0], [0.0, 1.0]], [[0.0, float("nan")], [0.0, 1.0]], [["a"], ["b"]]):
        with pytest.raises(TypeError, match="whole numbers"):
            churn(wrong)
    with pytest.raises(ValueError, match="one label an example"):
        class_spread([[0, 1], [0, 1]], [0])
    with pytest.raises(ValueError, match="confidence"):
        churn([[0, 1], [0, 1]], confidence=0.3)
