"""Quantizing a model in place changes nothing that can be seen from outside, and can be undone."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from trivet.core.errors import TrivetError
from trivet.precision import PrecisionController, PrecisionSchedule, dequantize_, quantize_
from trivet.precision.inject import chosen_layers, quantized_sites


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, stride=2, groups=2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(72, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    )


def snapshot(model: nn.Module) -> list[dict[str, Any]]:
    return [dict(vars(module)) for module in model.modules()]


def train(model: nn.Module, steps: int = 3) -> PrecisionController:
    ctl = PrecisionController(
        model, PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=10), seed=1
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 8, 8, generator=generator)).square().mean().backward()
        optimizer.step()
        ctl.step()
    return ctl


def test_nothing_changes_from_outside() -> None:
    model = net()
    types = [type(module) for module in model.modules()]
    keys, names = list(model.state_dict()), [name for name, _ in model.named_parameters()]
    text = repr(model)
    parameters = [id(p) for p in model.parameters()]
    assert quantize_(model) is model
    assert [type(module) for module in model.modules()] == types
    assert list(model.state_dict()) == keys
    assert [name for name, _ in model.named_parameters()] == names
    assert [id(p) for p in model.parameters()] == parameters
    assert repr(model) == text
    net().load_state_dict(model.state_dict())


def test_dequantize_restores_exactly() -> None:
    model = net()
    x = torch.randn(2, 3, 8, 8)
    before = snapshot(model)
    expected = model.eval()(x)
    quantize_(model.train())
    train(model, 0)
    assert not torch.equal(model.eval()(x), expected)
    assert dequantize_(model) is model
    after = snapshot(model.train())
    for old, new in zip(before, after, strict=True):
        assert old.keys() == new.keys()
        assert all(old[key] is new[key] for key in old if key != "training")
    assert torch.equal(model.eval()(x), expected)
    with pytest.raises(TrivetError, match="not quantized"):
        dequantize_(model)


def test_default_choice_and_filter() -> None:
    assert chosen_layers(net()) == {"0", "3", "6"}
    assert chosen_layers(nn.Linear(2, 2)) == {""}
    model = quantize_(net(), lambda module, name: isinstance(module, nn.Linear))
    assert [site.name for site in quantized_sites(model)] == ["6", "8"]


def test_refusals() -> None:
    model = quantize_(net())
    with pytest.raises(TrivetError, match="quantized already"):
        quantize_(model)
    with pytest.raises(TrivetError, match="quantized already"):
        quantize_(nn.Sequential(model, nn.Linear(10, 2)))
    with pytest.raises(ValueError, match="nothing to quantize"):
        quantize_(nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3)))
    with pytest.raises(ValueError, match="nothing to quantize"):
        quantize_(net(), lambda module, name: False)
    with pytest.raises(ValueError, match="must be 'default' or 'published'"):
        quantize_(net(), quantizer="other")


class Doubled(nn.Linear):
    """A layer that computes something else than Linear, with the product inside."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_layers_with_their_own_forward() -> None:
    plain, own = nn.Linear(4, 4), Doubled(4, 4)
    own.load_state_dict(plain.state_dict())
    model = quantize_(nn.Sequential(plain, own), lambda module, name: True)
    x = torch.randn(3, 4)
    assert torch.equal(model[1](x), 2 * model[0](x))
    assert [site.name for site in quantized_sites(model)] == ["0", "1"]


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_are_equal_and_independent(how: str) -> None:
    model = quantize_(net())
    train(model)
    if how == "deepcopy":
        twin = copy.deepcopy(model)
    elif how == "pickle":
        twin = pickle.loads(pickle.dumps(model))
    else:
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        twin = torch.load(buffer, weights_only=False)
    x = torch.randn(4, 3, 8, 8)
    assert torch.equal(model.eval()(x), twin.eval()(x))
    assert all(site.state is quantized_sites(twin)[0].state for site in quantized_sites(twin))
    assert quantized_sites(twin)[0].state is not quantized_sites(model)[0].state
    assert vars(twin[0])["forward"].module is twin[0]
    before = [site.ranges[0].bounds.clone() for site in quantized_sites(model)]
    train(twin.train())
    assert all(torch.equal(a, site.ranges[0].bounds) for a, site in zip(before, quantized_sites(model), strict=True))


def test_both_backward_products_use_the_rounded_gradient() -> None:
    model = quantize_(nn.Linear(6, 5))
    PrecisionController(model, PrecisionSchedule.static(32, total_steps=5), grad_bits=2)
    x = torch.randn(7, 6, requires_grad=True)
    y = model(x)
    grad = torch.randn(7, 5)
    y.backward(grad)
    assert x.grad is not None
    assert model.bias.grad is not None
    assert model.weight.grad is not None
    rounded = torch.linalg.lstsq(model.weight.detach().T, x.grad.T).solution.T  # dX = ĝ W
    assert rounded.round(decimals=3).unique().numel() <= 4
    torch.testing.assert_close(model.weight.grad, rounded.T @ x.detach(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.bias.grad, rounded.sum(0), rtol=1e-3, atol=1e-3)


def test_second_derivatives_are_refused() -> None:
    model = quantize_(nn.Linear(3, 2))
    x = torch.randn(4, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.square().sum().backward()


def test_32_bits_are_full_precision_exactly() -> None:
    model, plain = quantize_(net()), net()
    PrecisionController(model, PrecisionSchedule.static(32, total_steps=5), grad_bits=32)
    x = torch.randn(4, 3, 8, 8)
    for m in (model, plain):
        m(x).square().mean().backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert torch.equal(p.grad, q.grad)


def test_published_quantizer_trains_and_rounds_the_bias() -> None:
    model = quantize_(nn.Linear(4, 3), quantizer="published")
    PrecisionController(model, PrecisionSchedule.static(1, total_steps=5))
    x = torch.randn(2, 4)
    y = model(x)
    weight = torch.where(
        model.weight - model.weight.amin(1, True) > (model.weight.amax(1, True) - model.weight.amin(1, True)) / 2,
        model.weight.amax(1, True),
        model.weight.amin(1, True),
    )
    middle = (model.bias.max() + model.bias.min()) / 2
    bias = torch.where(model.bias > middle, model.bias.max(), model.bias.min())
    sharp = torch.where(x > (x.max() + x.min()) / 2, x.max(), x.min())
    torch.testing.assert_close(y, sharp @ weight.T + bias, rtol=1e-5, atol=1e-6)
    y.sum().backward()


@pytest.mark.parametrize("quantizer", ["default", "published"])
def test_awkward_batches(quantizer: str) -> None:
    model = quantize_(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), quantizer=quantizer)
    empty = model(torch.zeros(0, 4))
    assert empty.shape == (0, 2)
    empty.sum().backward()
    assert model(torch.zeros(3, 4)).isfinite().all()
    assert model(torch.full((3, 4), 7.0)).isfinite().all()
    assert model(torch.zeros(4)).shape == (2,)


def test_one_nan_spoils_one_example_only() -> None:
    model = quantize_(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = torch.randn(5, 4)
    x[2, 1] = float("nan")
    y = model(x)
    assert y.isnan().any(1).tolist() == [False, False, True, False, False]
    assert model(torch.randn(5, 4)).isfinite().all()
    assert model.eval()(torch.randn(5, 4)).isfinite().all()


def test_autocast_keeps_float32_ranges() -> None:
    model = quantize_(net())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(torch.randn(4, 3, 8, 8))
        y.float().square().mean().backward()
    site = quantized_sites(model)[1]
    assert site.ranges[0].bounds.dtype == torch.float32
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_first_evaluated_in_inference_mode_then_trained() -> None:
    model = quantize_(net())
    with torch.inference_mode():
        model.eval()(torch.randn(4, 3, 8, 8))
    train(model.train())


def test_bits_change_without_recompiling() -> None:
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    torch._dynamo.reset()
    model = quantize_(nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 3)))
    ctl = PrecisionController(model, PrecisionSchedule.named("LR", q_min=2, q_max=12, num_cycles=2, total_steps=22))
    fast = torch.compile(model, backend=backend, fullgraph=True)
    seen = set()
    for _ in range(22):
        seen.add(ctl.bits)
        fast(torch.randn(2, 2, 6, 6)).sum().backward()
        ctl.step()
    assert len(seen) >= 10
    assert len(compiled) == 1
    assert [row.calls for row in ctl.report()] == [22, 22]
