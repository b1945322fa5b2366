r"""Curvature of the loss where a training stands: is it near a saddle, and does the way down along it matter?

In float64, on a copy of the model, with $H$ the Hessian of the loss by its n parameters:

- **ends of the spectrum** $\lambda_{\min}$ and $\lambda_{\max}$ by Lanczos from several random vectors, with the
  residual $\lVert Hy - \lambda y \rVert$ as the bound of their error (`trivet.audit.lanczos`);
- **negative mass** $\sum_{\lambda<0} |\lambda| / \sum |\lambda|$ by stochastic Lanczos quadrature. Its error joins the
  spread over the probes (95 %, jackknife) with the change when the quadrature has half its nodes. (The *share* of
  negative eigenvalues is not given: it hangs on where zero begins, and is off by factors.)
- **drop**: how much the loss falls, at most, along the eigenvector of $\lambda_{\min}$, over steps of both signs of
  $2^{-k} \lVert w \rVert$, k = 0 … 12; and beside it the same along the gradient;
- **near a saddle**: the gradient is small *and* there is a way down. Small means, unless another limit is given,
  $\lVert g \rVert \le 10^{-3} \max|\lambda| \lVert w \rVert$: a move by a thousandth of the weights' length along the
  stiffest direction would change the gradient by more than it is; both sides scale alike when loss or weights are
  rescaled. A way down means $-\lambda_{\min}$ at least 10 times the error of $\lambda_{\min}$.

Negative eigenvalues alone prove nothing: networks that have learned to the end have them too. What they are worth is
the drop.

Not covered: operations without a second derivative; models that do not fit into memory twice, with 2 × steps vectors of
all parameters in float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from trivet.audit.gradients import WindowError
from trivet.audit.lanczos import Krylov, lanczos, shorter
from trivet.audit.reference import Copied
from trivet.core.seeding import seed_everything
from trivet.training.checkpoint import rng_state, set_rng_state

SMALL_GRADIENT = 1e-3
"""Largest gradient near a saddle, over max|λ| · |w|."""
WELL_ABOVE = 10.0
"""How many times its error -λmin must be near a saddle."""
LENGTHS = tuple(2.0**-k for k in range(13))
"""Lengths of the steps that look for a drop, over |w|."""

B = TypeVar("B")


@dataclass(frozen=True, kw_only=True, slots=True)
class Curvature:
    """The loss surface around a model."""

    loss: float
    """The loss."""
    gradient_norm: float
    """2-norm of its gradient."""
    weight_norm: float
    """2-norm of the parameters."""
    hessian_min: float
    """Most negative eigenvalue of the Hessian."""
    hessian_min_error: float
    """An eigenvalue lies within this of it."""
    hessian_max: float
    """Largest eigenvalue."""
    hessian_max_error: float
    """An eigenvalue lies within this of it."""
    negative_mass: float
    """Σ|λ<0| / Σ|λ|, in [0, 1]."""
    negative_mass_error: float
    """Half the width of its 95 % interval, and what halving the quadrature changes."""
    saddle_drop: float
    """How much the loss falls, at most, along the direction of `hessian_min`; 0 or more."""
    saddle_step: float
    """Length of the step at which it does, over |w|."""
    gradient_drop: float
    """How much it falls, at most, along the gradient, over the same lengths."""
    near_saddle: bool
    """Whether the gradient is small and the curvature is surely negative somewhere."""
    parameters: int
    """Numbers that are trained."""
    products: int
    """Products with the Hessian that this took."""
    direction: Tensor = field(repr=False, compare=False)
    """Unit eigenvector of `hessian_min`, float64 [parameters], in the order of `model.parameters()`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them, without the direction."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "direction"}

    def __str__(self) -> str:
        where = "near a saddle" if self.near_saddle else "not near a saddle"
        return (
            f"curvature: {where}; |g| {self.gradient_norm:.2g}, eigenvalues {self.hessian_min:.3g} (± "
            f"{self.hessian_min_error:.0e}) to {self.hessian_max:.3g} (± {self.hessian_max_error:.0e}), negative mass "
            f"{self.negative_mass:.2g} ± {self.negative_mass_error:.1g}; along the most negative direction the loss "
            f"{self.loss:.3g} falls by {self.saddle_drop:.2g}, along the gradient by {self.gradient_drop:.2g} "
            f"({self.parameters:,} parameters, {self.products} products)"
        )


def curvature(
    model: nn.Module,
    loss_fn: Callable[[nn.Module, B], Tensor],
    batch: B,
    *,
    steps: int = 60,
    probes: int = 4,
    small_gradient: float | None = None,
    seed: int = 0,
) -> Curvature:
    """Measure the curvature of the loss at a model's parameters.

    Args:
        model: Computed on a copy of it in float64, in the mode (training or evaluation) in which it is; it is not
            changed, and neither are the global random states.
        loss_fn: `loss_fn(model, batch)` → scalar, a function of these alone. Dropout draws the same masks every time.
        batch: What `loss_fn` is given.
        steps: Products of one Lanczos run, 2 or more.
        probes: Lanczos runs, each from random signs, 2 or more.
        small_gradient: Largest gradient norm near a saddle; by default 1e-3 · max|λ| · |w|.
        seed: Of masks and start vectors.

    Raises:
        ValueError: `steps` or `probes` is too small.
        WindowError: The model cannot be copied or computed twice differentiably in float64, or loss or gradient are
            not finite.

    Examples:
        >>> class Saddle(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.at = nn.Parameter(torch.tensor([1e-6, 1e-6]))
        >>> def loss(model, scale):
        ...     return (scale * model.at.square()).sum() / 2
        >>> found = curvature(Saddle(), loss, torch.tensor([3.0, -1.0]), small_gradient=1e-3)
        >>> round(found.hessian_min, 6), round(found.hessian_max, 6), round(found.negative_mass, 6)
        (-1.0, 3.0, 0.25)
        >>> found.near_saddle
        True
    """
    for name, value in (("steps", steps), ("probes", probes)):
        if value < 2:
            raise ValueError(f"`{name}={value}` must be ≥ 2; {60 if name == 'steps' else 4} is the default")
    state = rng_state()
    try:
        surface = _Surface(model, loss_fn, batch, seed)
        generator = torch.Generator().manual_seed(seed)
        runs = []
        for _ in range(probes):
            signs = torch.randint(0, 2, (surface.size,), generator=generator).double() * 2 - 1
            runs.append(lanczos(surface.product, signs.to(surface.gradient), steps))
        surface.release()
        return _measured(surface, runs, small_gradient)
    finally:
        set_rng_state(state)


class _Surface:
    """The loss as a function of all parameters as one vector, around one point."""

    def __init__(self, model: nn.Module, loss_fn: Callable[[nn.Module, Any], Tensor], batch: Any, seed: int) -> None:
        try:
            self._model = copy.deepcopy(model).double()
        except Exception as error:
            raise WindowError(
                f"the model cannot be copied ({error}); detach what it keeps from earlier steps"
            ) from error
        self._loss_fn, self._batch, self._seed = loss_fn, batch, seed
        self._parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        if not self._parameters:
            raise WindowError("the model has no parameter that is trained")
        self.size = sum(parameter.numel() for parameter in self._parameters)
        self.weights = _flat(self._parameters).detach().clone()
        self.products = 0
        with torch.enable_grad():
            loss = self._computed()
            if not (loss.numel() == 1 and loss.requires_grad):
                raise WindowError("the loss must be a scalar that depends on the model that it is given")
            parts = torch.autograd.grad(
                loss, self._parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
            self._graph = _flat(parts)
        self.loss, self.gradient = loss.item(), self._graph.detach().clone()
        if not (math.isfinite(self.loss) and bool(self.gradient.isfinite().all())):
            raise WindowError(
                f"the loss is {self.loss} and its gradient not finite; nothing can be said of its curvature"
            )

    def product(self, vector: Tensor) -> Tensor:
        """The Hessian times a vector."""
        self.products += 1
        if not self._graph.requires_grad:  # a loss linear in every parameter
            return torch.zeros_like(vector)
        try:
            parts = torch.autograd.grad(
                self._graph, self._parameters, vector, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        except RuntimeError as error:
            raise WindowError(f"the loss cannot be differentiated twice: {error}") from error
        return _flat(parts).detach()

    def release(self) -> None:
        """Forget the graph."""
        self._graph = self.gradient

    @torch.no_grad()
    def at(self, weights: Tensor) -> float:
        """The loss at other parameters."""
        start = 0
        for parameter in self._parameters:
            parameter.copy_(weights[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()
        return self._computed().item()

    def _computed(self) -> Tensor:
        seed_everything(self._seed)
        try:
            with Copied(double=True), sdpa_kernel(SDPBackend.MATH):
                return self._loss_fn(self._model, self._batch)
        except (RuntimeError, TypeError, ValueError) as error:
            raise WindowError(f"the loss cannot be computed in float64: {type(error).__name__}: {error}") from error


def _flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _measured(surface: _Surface, runs: list[Krylov], small: float | None) -> Curvature:
    lowest = min(runs, key=lambda run: run.values[0])
    highest = max(runs, key=lambda run: run.values[-1])
    low, high = float(lowest.values[0]), float(highest.values[-1])
    error = float(lowest.residuals[0])
    mass, mass_error = negative_mass(runs)
    direction = lowest.ritz_vector(0)
    gradient_norm, weight_norm = float(surface.gradient.norm()), float(surface.weights.norm())
    drop, length = _drop(surface, direction, (1.0, -1.0))
    down = -surface.gradient / gradient_norm if gradient_norm else direction
    limit = SMALL_GRADIENT * max(abs(low), abs(high)) * weight_norm if small is None else small
    return Curvature(
        loss=surface.loss,
        gradient_norm=gradient_norm,
        weight_norm=weight_norm,
        hessian_min=low,
        hessian_min_error=error,
        hessian_max=high,
        hessian_max_error=float(highest.residuals[-1]),
        negative_mass=mass,
        negative_mass_error=mass_error,
        saddle_drop=drop,
        saddle_step=length,
        gradient_drop=_drop(surface, down, (1.0,))[0],
        near_saddle=gradient_norm <= limit and -low >= WELL_ABOVE * error > 0,
        parameters=surface.size,
        products=surface.products,
        direction=direction,
    )


def _drop(surface: _Surface, direction: Tensor, signs: tuple[float, ...]) -> tuple[float, float]:
    """How much the loss falls, at most, along a unit direction, and at which length over |w|."""
    unit = float(surface.weights.norm()) or 1.0
    best, where = 0.0, 0.0
    for length in LENGTHS:
        for sign in signs:
            fall = surface.loss - surface.at(surface.weights + sign * length * unit * direction)
            if fall > best:
                best, where = fall, length
    return best, where


def negative_mass(runs: list[Krylov]) -> tuple[float, float]:
    """Σ|λ<0| / Σ|λ| from Lanczos runs that start from random signs, and its error.

    Args:
        runs: Two or more.

    Returns:
        The ratio of the sums over all runs; half the width of its 95 % interval over runs (jackknife, t) plus the
        change when each run has half its steps.

    Examples:
        >>> matrix = torch.diag(torch.tensor([-1.0, 3.0], dtype=torch.float64))
        >>> runs = [lanczos(lambda v: matrix @ v, torch.tensor([1.0, s], dtype=torch.float64), 2) for s in (1, -1)]
        >>> round(negative_mass(runs)[0], 6)
        0.25
    """
    full = [_sums(run.values, run.weights) for run in runs]
    half = [_sums(*shorter(run, max(1, len(run.values) // 2))) for run in runs]
    whole = _ratio(full)
    left_out = np.array([_ratio(full[:i] + full[i + 1 :]) for i in range(len(full))])
    count = len(full)
    spread = math.sqrt((count - 1) / count * float(((left_out - left_out.mean()) ** 2).sum()))
    return whole, _T95[min(count - 1, len(_T95) - 1)] * spread + abs(whole - _ratio(half))


_T95 = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom."""


def _sums(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    return float(weights @ np.maximum(-values, 0.0)), float(weights @ np.abs(values))


def _ratio(sums: list[tuple[float, float]]) -> float:
    total = sum(both for _, both in sums)
    return sum(negative for negative, _ in sums) / total if total > 0 else 0.0
