"""CIFAR ResNets: size, shape, initial values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import trivet.models
from trivet.models.names import RESNET_DEPTHS
from trivet.models.resnet import ResNet


def closed_form(depth: int, *, c: int, k: int, w: int) -> int:
    """The formula of the module's docstring."""
    n = (depth - 2) // 6
    stages = sum(9 * v * v // 2 + (2 * n - 1) * 9 * v * v + 4 * n * v + v * v // 2 + 2 * v for v in (2 * w, 4 * w))
    return 9 * c * w + 2 * w + n * (18 * w * w + 4 * w) + stages + (4 * w + 1) * k


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.integers(1, 20))
def test_parameters_follow_the_closed_form(n: int, c: int, k: int, w: int) -> None:
    model = ResNet(6 * n + 2, num_classes=k, in_channels=c, width=w)
    assert count(model) == closed_form(6 * n + 2, c=c, k=k, w=w)


PUBLISHED = {20: 0.27e6, 32: 0.46e6, 56: 0.85e6, 110: 1.7e6}  # arXiv:1512.03385, table 6


@pytest.mark.parametrize("depth", RESNET_DEPTHS)
def test_named_models(depth: int) -> None:
    function = getattr(trivet.models, f"resnet{depth}")
    model = function(num_classes=7, in_channels=1, width=4).eval()
    assert count(model) == closed_form(depth, c=1, k=7, w=4)
    assert model(torch.zeros(1, 1, 16, 16)).shape == (1, 7)
    convolutions = sum(isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) for m in model.modules())
    assert convolutions + 1 == depth
    default = closed_form(depth, c=3, k=10, w=16)
    assert f"{default:,} parameters" in (function.__doc__ or "")
    if depth in PUBLISHED:
        assert default == pytest.approx(PUBLISHED[depth], rel=0.025)


def test_resnet20_has_the_known_number_of_parameters() -> None:
    assert count(trivet.models.resnet20()) == 272_474


@pytest.mark.parametrize(("height", "width"), [(4, 4), (28, 28), (32, 32), (33, 47), (96, 64)])
def test_any_image_size(height: int, width: int) -> None:
    model = ResNet(8, in_channels=2, width=4).eval()
    last: list[torch.Tensor] = []
    model.stage3.register_forward_hook(lambda module, inputs, output: last.append(output))
    assert model(torch.zeros(3, 2, height, width)).shape == (3, 10)
    assert last[0].shape == (3, 16, math.ceil(math.ceil(height / 2) / 2), math.ceil(math.ceil(width / 2) / 2))


def test_a_block_with_zero_branch_is_its_shortcut() -> None:
    model = ResNet(8, width=4).eval()
    block = model.stage1[0]
    nn.init.zeros_(block.conv2.weight)
    inputs = torch.randn(2, 4, 8, 8).abs()
    torch.testing.assert_close(block(inputs), inputs)


def test_he_initialization() -> None:
    torch.manual_seed(0)
    model = trivet.models.resnet56()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight
            expected = math.sqrt(2 / (weight.shape[0] * weight.shape[2] * weight.shape[3]))
            error = expected / math.sqrt(2 * weight.numel())  # standard error of a standard deviation
            assert abs(float(weight.detach().std()) - expected) < 5 * error
            assert abs(float(weight.detach().mean())) < 5 * expected / math.sqrt(weight.numel())
            assert module.bias is None
        if isinstance(module, nn.BatchNorm2d):
            assert torch.equal(module.weight, torch.ones_like(module.weight))
            assert torch.equal(module.bias, torch.zeros_like(module.bias))


def test_every_parameter_gets_a_gradient_and_a_seed_decides_all() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(trivet.models.resnet8(width=4))
    for (name, a), (_, b) in zip(models[0].named_parameters(), models[1].named_parameters(), strict=True):
        assert torch.equal(a, b), name
    models[0](torch.randn(4, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in models[0].parameters())


@pytest.mark.parametrize("depth", [0, 2, 7, 9, 21, -4])
def test_wrong_depth(depth: int) -> None:
    with pytest.raises(ValueError, match=r"must be 6n \+ 2; take"):
        ResNet(depth)


def test_nearest_depths_are_named() -> None:
    with pytest.raises(ValueError, match="take 20 or 26"):
        ResNet(21)


@pytest.mark.parametrize("option", ["num_classes", "in_channels", "width"])
def test_wrong_counts(option: str) -> None:
    with pytest.raises(ValueError, match=f"`{option}=0` must be ≥ 1"):
        ResNet(8, **{option: 0})
