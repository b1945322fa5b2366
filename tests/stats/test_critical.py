"""Where a critical period ends: synthetic periods with a known end, coverage of the interval, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trivet.stats import critical_period

LENGTHS = np.array([50.0, 100.0, 200.0, 300.0, 400.0, 600.0])


def damage(x: np.ndarray, end: float, slope: float = 1e-4) -> np.ndarray:
    """Rises linearly and crosses 0.02 at `end`."""
    return np.maximum(0.02 + slope * (x - end), 0.0)


def simulate(rng: np.random.Generator, end: float, n: int = 8, noise: float = 0.006) -> tuple[Any, Any]:
    base = 0.9 + 0.01 * rng.normal(size=n)
    rows = base - damage(LENGTHS, end)[:, None] + noise * rng.normal(size=(LENGTHS.size, n))
    return list(rows), base


def test_finds_the_end_exactly_without_noise() -> None:
    rows, base = simulate(np.random.default_rng(0), 250.0, noise=0.0)
    found = critical_period(LENGTHS, rows, base, margin=0.02)
    assert found.estimate == pytest.approx(250.0)
    assert (found.low, found.high) == (200.0, 300.0)
    assert "up to a length of about 250 steps" in found.sentence


def test_windows_are_the_mirror_image() -> None:
    rows, base = simulate(np.random.default_rng(1), 250.0, noise=0.003)
    lengths = critical_period(LENGTHS, rows, base, margin=0.02)
    starts = critical_period(-LENGTHS, rows, base, margin=0.02, kind="start")
    assert starts.estimate == pytest.approx(-lengths.estimate)
    assert (starts.low, starts.high) == (-lengths.high, -lengths.low)
    less = critical_period(LENGTHS, [-row for row in rows], -base, margin=0.02, maximize=False)
    assert less.estimate == pytest.approx(lengths.estimate)


@pytest.mark.parametrize("end", [120.0, 260.0, 500.0])
def test_the_interval_covers_and_the_estimate_is_near(end: float) -> None:
    rng = np.random.default_rng(int(end))
    found = [critical_period(LENGTHS, *simulate(rng, end), margin=0.02) for _ in range(300)]
    covered = [(f.low is None or f.low <= end) and (f.high is None or end <= f.high) for f in found]
    assert np.mean(covered) >= 0.94
    estimates = [f.estimate for f in found if f.estimate is not None]
    assert abs(np.mean(estimates) - end) < 40


def test_worst_case_at_a_grid_point_keeps_its_level() -> None:
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(600):
        found = critical_period(LENGTHS, *simulate(rng, 300.0), margin=0.02)
        missed += (found.low is not None and found.low >= 300.0) or (found.high is not None and found.high <= 300.0)
    assert missed / 600 < 0.075


def test_fit_is_that_of_scipy() -> None:
    from scipy.optimize import isotonic_regression

    rng = np.random.default_rng(2)
    for _ in range(20):
        rows, base = simulate(rng, 300.0, noise=0.03)
        found = critical_period(LENGTHS, rows, base, margin=0.02)
        means = [item.mean for item in found.damages]
        assert [item.fitted for item in found.damages] == pytest.approx(isotonic_regression(means).x)


def test_open_ends_are_said() -> None:
    rows, base = simulate(np.random.default_rng(3), 5_000.0)
    found = critical_period(LENGTHS, rows, base, margin=0.02)
    assert found.estimate is None
    assert found.high is None
    assert found.low == 600.0
    assert "does no damage above 0.02 at any length tried (95 %" in found.sentence
    assert found.is_monotone
    assert "no upper end" in found.sentence
    assert found.to_dict()["high"] is None


def test_damage_that_grows_with_a_later_start_is_said() -> None:
    """No critical period: the last window hurts most, because nothing comes after it."""
    base = [0.97, 0.98, 0.975, 0.97, 0.98]
    rows = [[value - damage for value in base] for damage in (0.01, 0.02, 0.03, 0.05)]
    rows[0][0] += 0.001
    found = critical_period([0, 40, 80, 150], rows, base, margin=0.005, kind="start")
    assert "does damage above 0.005 at every start tried (95 %" in found.sentence
    assert not found.is_monotone
    assert found.sentence.endswith("neither the estimate nor the interval can be relied on")


@pytest.mark.parametrize(
    ("x", "rows", "base", "options", "message"),
    [
        ([1], [[1, 2, 3]], [1, 2, 3], {}, "at least 2 different"),
        ([1, 1], [[1, 2, 3]] * 2, [1, 2, 3], {}, "at least 2 different"),
        ([1, 2], [[1, 2, 3]], [1, 2, 3], {}, "one row a point"),
        ([1, 2], [[1, 2, 3], [1, 2]], [1, 2, 3], {}, "keep common seeds"),
        ([1, 2], [[1, 2]] * 2, [1, 2], {}, "at least 3"),
        ([1, 2], [[1, 2, 3]] * 2, [1, 2, 3], {"margin": 0.0}, "above 0"),
        ([1, 2], [[1, 2, 3]] * 2, [1, 2, 3], {"kind": "end"}, "length, start"),
    ],
)
def test_refusals(x: Any, rows: Any, base: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        critical_period(x, rows, base, **{"margin": 0.1, **options})
