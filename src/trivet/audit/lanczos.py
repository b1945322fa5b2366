r"""Lanczos with full re-orthogonalization: the ends of a symmetric matrix's spectrum, and sums over all of it.

After m products the matrix A is represented by a tridiagonal T = Qᵀ A Q with orthonormal Q. The eigenvalues θ of T
(Ritz values) approach those of A at both ends first; with s the last entry of the unit eigenvector of T,
$\lVert A y - \theta y \rVert = \beta_m |s|$, so an eigenvalue of A lies within that of θ. The squares of the first
entries are weights of a Gauss quadrature, $z^\top f(A) z \approx \sum_j w_j f(\theta_j)$ for a unit start z; averaged
over random signs z and times n it estimates the trace of f(A) (stochastic Lanczos quadrature, Ubaru, Chen and Saad
2017).

Orthogonality is lost within a few dozen steps without re-orthogonalization, and eigenvalues then come twice. Each new
vector is therefore made orthogonal to all before it, twice (Parlett 1998, §6.9), which costs m² n operations.

Not covered: interior eigenvalues, restarts, multiplicities (a start vector sees an eigenspace as one direction).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.float64]

BROKEN_DOWN = 1e-12
"""Below this share of the largest entry of T, a further direction is rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Krylov:
    """What Lanczos made of a matrix and a start vector."""

    basis: Tensor
    """Q, float64 [m, n], rows orthonormal."""
    values: Array
    """Ritz values [m], ascending."""
    vectors: Array
    """Eigenvectors of T [m, m], one a column."""
    residuals: Array
    """Bound on the error of each Ritz value [m]; never below rounding."""

    @property
    def weights(self) -> Array:
        """Weights of the quadrature, [m], summing to 1."""
        return self.vectors[0] ** 2

    def ritz_vector(self, index: int) -> Tensor:
        """The unit vector [n] that belongs to a Ritz value."""
        part = torch.as_tensor(self.vectors[:, index].copy(), dtype=self.basis.dtype, device=self.basis.device)
        vector = part @ self.basis
        return vector / vector.norm()


def lanczos(product: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Krylov:
    """Run Lanczos.

    Args:
        product: A times a vector, for a symmetric A; float64 [n] → [n].
        start: First vector, not zero, float64 [n].
        steps: Most products; fewer when the directions are used up.

    Examples:
        >>> matrix = torch.diag(torch.tensor([-2.0, 0.0, 1.0, 5.0], dtype=torch.float64))
        >>> found = lanczos(lambda v: matrix @ v, torch.ones(4, dtype=torch.float64), 4)
        >>> found.values.round(6).tolist()
        [-2.0, -0.0, 1.0, 5.0]
    """
    vector = start / start.norm()
    basis = start.new_empty((min(steps, start.numel()), start.numel()))
    diagonal: list[float] = []
    beside: list[float] = []
    for step in range(len(basis)):
        basis[step] = vector
        image = product(vector)
        diagonal.append(float(vector @ image))
        known = basis[: step + 1]
        for _ in range(2):
            image = image - known.T @ (known @ image)
        beside.append(float(image.norm()))
        if beside[-1] <= BROKEN_DOWN * max(map(abs, (*diagonal, *beside[:-1]))):
            break
        vector = image / beside[-1]
    return _solved(basis[: len(diagonal)], np.array(diagonal), np.array(beside))


def _solved(basis: Tensor, diagonal: Array, beside: Array) -> Krylov:
    matrix = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    values, vectors = np.linalg.eigh(matrix)
    rounding = len(diagonal) * np.finfo(np.float64).eps * float(np.abs(values).max(initial=0.0))
    return Krylov(basis=basis, values=values, vectors=vectors, residuals=np.abs(beside[-1] * vectors[-1]) + rounding)


def shorter(krylov: Krylov, diagonal_steps: int) -> tuple[Array, Array]:
    """Ritz values and weights after fewer steps, from the same basis.

    Examples:
        >>> matrix = torch.diag(torch.tensor([-2.0, 0.0, 1.0, 5.0], dtype=torch.float64))
        >>> found = lanczos(lambda v: matrix @ v, torch.ones(4, dtype=torch.float64), 4)
        >>> shorter(found, 1)[0].round(6).tolist()
        [1.0]
    """
    whole = (krylov.vectors * krylov.values) @ krylov.vectors.T
    values, vectors = np.linalg.eigh(whole[:diagonal_steps, :diagonal_steps])
    return values, vectors[0] ** 2
