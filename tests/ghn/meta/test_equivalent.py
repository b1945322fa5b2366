from __future__ import annotations

import math

import numpy as np
import pytest

from trivet.ghn.meta.equivalent import equivalent_steps

STEPS = [0, 10, 20, 40]


def _curves(count: int, noise: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.array([0.1, 0.3, 0.5, 0.6]) + noise * rng.standard_normal((count, 4))


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0.05, 0), (0.1, 0), (0.2, 5), (0.3, 10), (0.45, 17.5), (0.55, 30), (0.6, 40), (0.61, math.inf)],
)
def test_reads_the_mean_curve(level: float, expected: float) -> None:
    found = equivalent_steps([level] * 4, STEPS, _curves(4))
    assert found.steps == pytest.approx(expected)
    assert found.low == pytest.approx(expected)
    assert found.high == pytest.approx(expected)


def test_a_curve_that_falls_is_read_by_its_running_maximum() -> None:
    curves = np.tile([0.1, 0.5, 0.3, 0.6], (3, 1))
    assert equivalent_steps([0.5] * 3, STEPS, curves).steps == 10
    assert equivalent_steps([0.55] * 3, STEPS, curves).steps == pytest.approx(30)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """40 networks, whose mean accuracies are 0.4: 15 steps on the mean curve."""
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(100):
        level = 0.2 * rng.standard_normal(40)  # good networks are good with predicted and with trained parameters
        predicted = 0.4 + level + 0.1 * rng.standard_normal(40)
        curves = np.array([0.1, 0.3, 0.5, 0.6]) + level[:, None] + 0.05 * rng.standard_normal((40, 4))
        found = equivalent_steps(predicted, STEPS, curves, resamples=200)
        covered.append(found.low <= 15 <= found.high)
    assert 0.88 <= np.mean(covered) <= 0.99


def test_beyond_the_curve_is_said() -> None:
    text = str(equivalent_steps([0.9, 0.8], STEPS, _curves(2)))
    assert text == "> 40 SGD steps (95% bootstrap interval > 40 to > 40, n = 2 networks)"


@pytest.mark.parametrize(
    ("predicted", "steps", "curves"),
    [([0.5], STEPS, _curves(1)), ([0.5] * 2, STEPS[:3], _curves(2)), ([0.5] * 2, [0, 20, 10, 40], _curves(2))],
)
def test_refuses_what_does_not_fit(predicted: list[float], steps: list[int], curves: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"give \[N\]|must grow"):
        equivalent_steps(predicted, steps, curves)
