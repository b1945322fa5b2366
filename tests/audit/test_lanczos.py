"""Lanczos against dense eigenvalues."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.audit.lanczos import lanczos, shorter


def symmetric(seed: int, size: int, scale: float = 1.0) -> torch.Tensor:
    matrix = np.random.default_rng(seed).normal(size=(size, size)) * scale
    return torch.from_numpy(matrix + matrix.T)


def signs(seed: int, size: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng([seed, 1]).choice([-1.0, 1.0], size))


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10_000), st.integers(1, 25), st.floats(1e-8, 1e8))
def test_all_steps_give_all_eigenvalues(seed: int, size: int, scale: float) -> None:
    matrix = symmetric(seed, size, scale)
    found = lanczos(lambda v: matrix @ v, signs(seed, size), size)
    exact = np.linalg.eigvalsh(matrix.numpy())
    np.testing.assert_allclose(found.values, exact, atol=1e-9 * np.abs(exact).max())
    np.testing.assert_allclose(found.weights.sum(), 1.0)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10_000), st.integers(2, 40))
def test_the_residual_bounds_the_error_and_the_basis_is_orthonormal(seed: int, steps: int) -> None:
    matrix = symmetric(seed, 60)
    found = lanczos(lambda v: matrix @ v, signs(seed, 60), steps)
    exact = np.linalg.eigvalsh(matrix.numpy())
    torch.testing.assert_close(found.basis @ found.basis.T, torch.eye(steps, dtype=torch.float64), atol=1e-12, rtol=0)
    for index in (0, -1):
        assert np.abs(exact - found.values[index]).min() <= found.residuals[index]
        vector = found.ritz_vector(index)
        error = (matrix @ vector - found.values[index] * vector).norm()
        assert error <= found.residuals[index] * (1 + 1e-6)
    assert exact[0] - 1e-9 <= found.values[0] <= found.values[-1] <= exact[-1] + 1e-9


def test_a_thousand_close_eigenvalues_do_not_make_ghosts() -> None:
    exact = np.concatenate([[-5.0, 50.0], np.linspace(-1, 1, 998)])
    diagonal = torch.from_numpy(exact)
    found = lanczos(lambda v: diagonal * v, signs(0, 1000), 120)
    assert abs(found.values[0] + 5) < 1e-10
    assert found.values[1] > -1.01  # the most negative value came once
    assert found.values[-2] < 1.01


def test_an_invariant_subspace_ends_it() -> None:
    rank_two = torch.zeros(50, dtype=torch.float64)
    rank_two[3], rank_two[7] = -2.0, 4.0
    found = lanczos(lambda v: rank_two * v, signs(0, 50), 40)
    assert len(found.values) == 3
    np.testing.assert_allclose(found.values, [-2.0, 0.0, 4.0], atol=1e-12)
    assert found.residuals.max() < 1e-10
    zero = lanczos(lambda v: 0 * v, signs(0, 5), 5)
    assert zero.values.tolist() == [0.0]
    assert zero.residuals.tolist() == [0.0]


def test_fewer_steps_from_the_same_basis_are_a_run_of_their_own() -> None:
    matrix = symmetric(0, 30)
    whole, part = (lanczos(lambda v: matrix @ v, signs(0, 30), steps) for steps in (20, 8))
    values, weights = shorter(whole, 8)
    np.testing.assert_allclose(values, part.values, atol=1e-10)
    np.testing.assert_allclose(weights, part.weights, atol=1e-10)
