from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trivet.report.aggregate import CurveRow, bands, precision_lines, single_lines, spread, t_half_width, thin


@pytest.mark.parametrize("n", [2, 3, 8, 30])
def test_bands_are_t_intervals_of_scipy(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    (row,) = bands([CurveRow("a", seed, 7, float(v)) for seed, v in enumerate(values)], ["a"])
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert row["n"] == n
    assert row["step"] == 7
    assert [row["mean"], row["low"], row["high"]] == pytest.approx([values.mean(), low, high], rel=1e-12)


def test_one_seed_has_no_band() -> None:
    (row,) = bands([CurveRow("a", 0, 1, 0.5)], ["a", "never ran"])
    assert (row["low"], row["high"], row["n"]) == (None, None, 1)
    assert t_half_width(0.0, 1) is None


def test_bands_leave_out_what_is_not_finite_and_say_n() -> None:
    rows = [CurveRow("a", 0, 1, 1.0), CurveRow("a", 1, 1, math.nan), CurveRow("a", 2, 1, math.inf)]
    assert bands(rows, ["a"])[0]["n"] == 1


def test_bands_keep_the_order_of_the_arms() -> None:
    rows = [CurveRow(arm, 0, step, 1.0) for step in (2, 1) for arm in ("z", "a")]
    assert [(row["arm"], row["step"]) for row in bands(rows, ["z", "a"])] == [("z", 1), ("z", 2), ("a", 1), ("a", 2)]


@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(2, 50))
def test_thin_keeps_both_ends_and_at_most_so_many(steps: list[int], most: int) -> None:
    kept = thin(steps, most)
    assert kept == sorted(set(kept))
    assert set(kept) <= set(steps)
    assert len(kept) <= most
    assert (kept[0], kept[-1]) == (min(steps), max(steps))


@given(st.lists(st.integers(1, 32), min_size=1, max_size=200))
def test_precision_lines_can_be_read_back_at_every_logged_step(bits: list[int]) -> None:
    (line,) = precision_lines([CurveRow("a", 0, step, float(b)) for step, b in enumerate(bits)], ["a"])
    changes = dict(map(tuple, line["points"]))
    current, read = 0, []
    for step in range(len(bits)):
        current = changes.get(step, current)
        read.append(current)
    assert read == bits
    assert line["logged"] == len(bits)
    assert line["mean_bits"] == pytest.approx(sum(bits) / len(bits))


def test_precision_lines_say_when_seeds_differ() -> None:
    rows = [CurveRow("a", 0, 1, 3.0), CurveRow("a", 0, 2, 3.0), CurveRow("a", 1, 2, 4.0)]
    assert precision_lines(rows, ["a"])[0]["seeds_agree"] is False
    assert precision_lines(rows[:2], ["a"])[0]["seeds_agree"] is True
    assert precision_lines([], ["a"]) == []


def test_single_lines_end_at_the_last_finite_value() -> None:
    rows = [CurveRow("a", 4, step, value) for step, value in ((1, 2.0), (2, 9.0), (3, math.nan))]
    lines = single_lines(rows)
    assert [(row["step"], row["last"]) for row in lines] == [(1, False), (2, True)]
    assert lines[0]["seed"] == 4


def test_spread_equals_numpy() -> None:
    values = [3.0, 1.0, 8.0]
    made = spread(values)
    assert made == {
        "n": 3,
        "mean": pytest.approx(4.0),
        "sd": pytest.approx(np.std(values, ddof=1)),
        "min": 1.0,
        "max": 8.0,
    }
    assert spread([2.0]) == {"n": 1, "mean": 2.0, "sd": None, "min": 2.0, "max": 2.0}
