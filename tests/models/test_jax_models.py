"""The second implementation against the first: values, gradients, and where a fault of one would show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

jax = pytest.importorskip("jax", reason="needs `pip install 'trivet[jax]'`")

from trivet.models import PredNet, SmallCNN  # noqa: E402
from trivet.models.jax_models import jax_model  # noqa: E402
from trivet.training.jax_forward import JaxForward  # noqa: E402


def _again(net: nn.Module) -> JaxForward:
    model = jax_model(net)
    return JaxForward(net, model.function, model.pack, model.unpack)


def _compare(net: nn.Module, loss: Callable[[Any], Tensor]) -> float:
    """Largest relative difference of a parameter's gradient; the losses must agree."""
    found = []
    for forward in (net, _again(net)):
        net.zero_grad()
        value = loss(forward)
        value.backward()
        gradients = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}  # type: ignore[union-attr]
        found.append((value.detach(), gradients))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=1e-7)
    return max(
        float((ours - theirs).norm() / ours.norm())
        for ours, theirs in zip(*(g.values() for _, g in found), strict=True)
    )


def test_small_cnn() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 1, 12, 12), torch.arange(6) % 3
    assert _compare(SmallCNN(3, 1, (12, 12), width=4), lambda f: nn.functional.cross_entropy(f(x), y)) < 1e-5


@pytest.mark.parametrize("study", [False, True])
def test_prednet_over_a_window_of_frames(study: bool) -> None:
    torch.manual_seed(0)
    net = PredNet((1, 3, 4), gates="plain", peephole=(8, 12)) if study else PredNet((1, 3, 4))
    for cell in net.cells:
        if study:
            nn.init.normal_(cell.peephole, std=0.1)  # type: ignore[arg-type]
    frames = torch.rand(2, 4, 1, 8, 12)

    def loss(forward: Any) -> Tensor:
        state, total = None, torch.zeros(())
        for index in range(4):
            out = forward(frames[:, index : index + 1], state)
            state = out.state
            total = total + (out.predictions[:, 0] - frames[:, index]).square().mean() + out.errors[:, 0, 1:].mean()
        return total

    assert _compare(net, loss) < 1e-5


def test_what_torch_changes_in_place_does_not_reach_back() -> None:
    torch.manual_seed(0)
    net = SmallCNN(3, 1, (8, 8), width=4)
    x, y = torch.randn(6, 1, 8, 8), torch.arange(6) % 3
    gradients = []
    for disturbed in (False, True):
        inputs = x.clone()
        net.zero_grad()
        loss = nn.functional.cross_entropy(_again(net)(inputs), y)
        if disturbed:
            inputs.zero_()
            inputs.numpy()[:] = 7.0
        loss.backward()
        gradients.append(net.conv1.weight.grad.clone())  # type: ignore[union-attr]
    assert torch.equal(*gradients)


def test_models_without_a_second_implementation_are_named() -> None:
    with pytest.raises(ValueError, match="a Linear has no second implementation in JAX; allowed: SmallCNN"):
        jax_model(nn.Linear(2, 2))
