"""Curvature against exact Hessians and closed forms."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from trivet import audit
from trivet.audit import WindowError


class Point(nn.Module):
    """Parameters and nothing else."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(values))


def quadratic(model: nn.Module, scale: Tensor) -> Tensor:
    at = model.get_parameter("at")
    return (scale * at.square()).sum() / 2


def exact(model: nn.Module, loss_fn: Callable[[nn.Module, Any], Tensor], batch: Any) -> tuple[np.ndarray, Tensor]:
    """Eigenvalues of the Hessian and the gradient, in float64, by torch's own second derivatives."""
    model = copy.deepcopy(model).double()
    names, parameters = zip(*model.named_parameters(), strict=True)
    sizes = [parameter.numel() for parameter in parameters]

    class Called(nn.Module):
        def __init__(self, values: dict[str, Tensor]) -> None:
            super().__init__()
            self.values = values

        def forward(self, *inputs: Any) -> Any:
            return functional_call(model, self.values, inputs)

    def of(flat: Tensor) -> Tensor:
        parts = [part.view_as(p) for part, p in zip(flat.split(sizes), parameters, strict=True)]
        return loss_fn(Called(dict(zip(names, parts, strict=True))), batch)

    flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
    hessian = torch.autograd.functional.hessian(of, flat)
    gradient = torch.autograd.functional.jacobian(of, flat)
    assert isinstance(hessian, Tensor)
    assert isinstance(gradient, Tensor)
    return np.linalg.eigvalsh(((hessian + hessian.T) / 2).numpy()), gradient


def classified(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def tanh_net(seed: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return net, (torch.randn(40, 6, dtype=torch.float64), torch.arange(40) % 3)


def normed_net(seed: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    return body, (torch.randn(20, 1, 6, 6, dtype=torch.float64), torch.arange(20) % 3)


@pytest.mark.parametrize("make", [tanh_net, normed_net])
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_hessians_of_small_networks(make: Callable[[int], Any], seed: int) -> None:
    model, batch = make(seed)
    values, gradient = exact(model, classified, batch)
    found = audit.curvature(model, classified, batch, steps=40, probes=6)
    largest = np.abs(values).max()
    assert found.parameters == len(values)
    assert found.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-9)
    assert found.hessian_min == pytest.approx(values[0], abs=1e-4 * largest)
    assert found.hessian_max == pytest.approx(values[-1], abs=1e-6 * largest)
    assert np.abs(values - found.hessian_min).min() <= found.hessian_min_error
    mass = np.maximum(-values, 0).sum() / np.abs(values).sum()
    assert abs(found.negative_mass - mass) <= found.negative_mass_error
    assert found.negative_mass_error < 0.3
    assert found.saddle_drop >= 0


@settings(deadline=None, max_examples=8)
@given(st.lists(st.floats(-3, 3).filter(lambda x: abs(x) > 1e-3), min_size=2, max_size=12), st.integers(0, 100))
def test_quadratics_have_the_spectrum_that_they_are_made_of(scale: list[float], seed: int) -> None:
    scale = [float(np.float32(x)) for x in scale]
    weights = np.random.default_rng(seed).normal(size=len(scale)).astype(np.float32).tolist()
    found = audit.curvature(Point(weights), quadratic, torch.tensor(scale), steps=len(scale))
    assert found.hessian_min == pytest.approx(min(scale), abs=1e-9)
    assert found.hessian_max == pytest.approx(max(scale), abs=1e-9)
    assert found.gradient_norm == pytest.approx(math.hypot(*(s * w for s, w in zip(scale, weights, strict=True))))
    negative = sum(-x for x in scale if x < 0) / sum(map(abs, scale))
    assert found.negative_mass == pytest.approx(negative, abs=1e-9)


def test_the_drop_along_a_saddle_is_the_closed_form() -> None:
    found = audit.curvature(Point([0.0, 2.0]), quadratic, torch.tensor([-1.0, 3.0]))
    assert found.saddle_drop == pytest.approx(2.0**2 / 2)  # at the longest step, |w| = 2, the loss falls by 2²/2
    assert found.saddle_step == 1.0
    assert found.direction.abs().tolist() == pytest.approx([1.0, 0.0], abs=1e-9)
    bowl = audit.curvature(Point([0.0, 2.0]), quadratic, torch.tensor([1.0, 3.0]))
    assert (bowl.saddle_drop, bowl.near_saddle, bowl.negative_mass) == (0.0, False, 0.0)
    assert bowl.gradient_drop == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("at", "scale", "near"),
    [
        ([0.0, 0.0], [-1.0, 3.0], True),
        ([0.0, 0.0], [1.0, 3.0], False),  # a minimum
        ([1.0, 1.0], [-1.0, 3.0], False),  # the gradient is large
    ],
)
def test_near_a_saddle_takes_a_small_gradient_and_a_way_down(at: list[float], scale: list[float], near: bool) -> None:
    found = audit.curvature(Point(at), quadratic, torch.tensor(scale))
    assert found.near_saddle is near
    assert ("not near" in str(found)) is not near
    assert set(found.to_dict()) == set(found.__dataclass_fields__) - {"direction"}


def test_a_loss_without_curvature() -> None:
    found = audit.curvature(Point([1.0, 2.0]), lambda model, scale: (model.get_parameter("at") * scale).sum(), 2.0)
    assert (found.hessian_min, found.hessian_max, found.negative_mass) == (0.0, 0.0, 0.0)
    assert found.near_saddle is False


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inside(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_attention_lstm_and_dropout_are_within_reach() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4)
    lstm = nn.LSTM(4, 3)
    for model, loss_fn in (
        (Attends(), lambda model, x: model(x).square().mean()),
        (lstm, lambda model, x: model(x)[0].square().mean()),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), lambda model, x: model(x).square().mean()),
    ):
        first, second = (audit.curvature(model, loss_fn, x, steps=5, probes=2) for _ in range(2))
        assert first == second
        assert first.hessian_max > 0


def test_neither_the_model_nor_random_states_change() -> None:
    model, batch = normed_net(0)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with torch.no_grad():
        inside = audit.curvature(model, classified, batch, steps=3, probes=2)
    assert inside == audit.curvature(model, classified, batch, steps=3, probes=2)
    assert inside.hessian_max > 0
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_slips_are_refused() -> None:
    one = torch.ones(2)
    with pytest.raises(ValueError, match="`probes=1` must be ≥ 2"):
        audit.curvature(Point([1.0, 1.0]), quadratic, one, probes=1)
    with pytest.raises(WindowError, match="not finite"):
        audit.curvature(Point([math.inf, 1.0]), quadratic, one)
    with pytest.raises(WindowError, match="scalar that depends on the model"):
        audit.curvature(Point([1.0, 1.0]), lambda model, x: x.sum(), one)
    with pytest.raises(WindowError, match="no parameter"):
        audit.curvature(nn.ReLU(), lambda model, x: x.sum(), one)
    with pytest.raises(WindowError, match="cannot be computed in float64"):
        audit.curvature(Point([1.0, 1.0]), lambda model, x: model(x), one)
