"""Kernel ridge regression: against its definition, what it finds, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trivet.ghn.regression import PENALTIES, _left_out, fit_regression


def test_it_solves_its_definition() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)) * [1, 10, 100, 1, 0] + 3, rng.normal(size=40)
    fitted = fit_regression(x, y)
    z = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    kernel = np.array([[np.exp(-fitted.gamma * ((a - b) ** 2).sum()) for b in z] for a in z])
    hat = kernel @ np.linalg.inv(kernel + fitted.penalty * np.eye(40))
    assert fitted.predict(x) == pytest.approx(y.mean() + hat @ (y - y.mean()), abs=1e-9)


def test_errors_left_out_are_those_of_fits_without_the_part() -> None:
    rng = np.random.default_rng(1)
    z, y, parts = rng.normal(size=(20, 2)), rng.normal(size=20), np.arange(20) % 4
    kernel = np.exp(-((z[:, None] - z) ** 2).sum(2))
    expected: list[float] = []
    for penalty in PENALTIES:
        errors: list[float] = []
        for part in range(4):
            rest = parts != part
            mean = y[rest].mean()
            weights = np.linalg.solve(kernel[rest][:, rest] + penalty * np.eye(rest.sum()), y[rest] - mean)
            errors += list(kernel[~rest][:, rest] @ weights + mean - y[~rest])
        expected.append(float(np.mean(np.square(errors))))
    assert _left_out(kernel, y, parts) == pytest.approx(expected, rel=1e-6)


def test_it_learns_a_curve_and_shrinks_noise_to_the_mean() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, (150, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + 0.05 * rng.normal(size=150)
    fitted = fit_regression(x[:100], y[:100])
    rest = fitted.predict(x[100:]) - y[100:]
    assert np.std(rest) < 0.2 < np.std(y[100:])
    assert fitted.error < 0.3
    noise = rng.normal(size=100)
    assert np.std(fit_regression(x[:100], noise).predict(x[100:])) < 0.5


def test_neither_scale_nor_order_of_features_matters() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    one = fit_regression(x, y).predict(x[:5])
    other = fit_regression((x * [5, 0.1, 1] - 7)[:, ::-1], y).predict((x[:5] * [5, 0.1, 1] - 7)[:, ::-1])
    assert one == pytest.approx(other, abs=1e-8)


def test_networks_that_look_the_same_get_the_mean() -> None:
    fitted = fit_regression(np.ones((12, 4)), np.arange(12.0))
    assert fitted.predict(np.ones((2, 4))) == pytest.approx([5.5, 5.5])


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (np.ones((9, 2)), np.ones(9), {}, "9 networks .* give 10 or more"),
        (np.ones((12, 2)), np.ones(11), {}, r"shape \[12, 2\] and `y` \[11\]"),
        (np.ones((12, 2)), np.full(12, np.nan), {}, "finite"),
        (np.ones((12, 2)), np.ones(12), {"folds": 13}, r"`folds=13` must lie in \[2, 12\]"),
    ],
)
def test_refusals(x: Any, y: Any, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_regression(x, y, **options)


def test_predictions_need_the_same_features() -> None:
    with pytest.raises(ValueError, match=r"give \[networks, 2\]"):
        fit_regression(np.ones((12, 2)), np.ones(12)).predict(np.ones((3, 4)))
