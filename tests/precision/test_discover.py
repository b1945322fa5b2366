"""Which modules are taken to multiply in their own code."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from trivet.precision import dequantize_, quantize_
from trivet.precision.discover import candidates, might_multiply
from trivet.precision.inject import covers, quantized_sites


def helper(x: torch.Tensor) -> torch.Tensor:
    return deeper(x)


def deeper(x: torch.Tensor) -> torch.Tensor:
    return x.bmm(x)


def by_name_of_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, x)


CHOICES = {"default": by_name_of_torch}


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


class Operator(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Called(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(x)


class Method(nn.Module):
    @wrapped
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(x)

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x)


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.product = torch.matmul

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x, x)


class Nested(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.mm(part, part) for part in x])


class Chosen(nn.Module):
    """As the attention of transformers: a function of the file is handed over, and called by a local name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        function = CHOICES.get("other", by_name_of_torch)
        return function(x)


class Quiet(nn.Module):
    """Names of layers and of arguments that look like products are not products."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.embedding = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.embedding(self.linear(x))) + x.sum()


@pytest.mark.parametrize("kind", [Operator, Called, Method, Kept, Nested, Chosen])
def test_products_are_found(kind: type[nn.Module]) -> None:
    module = kind()
    assert might_multiply(module)
    quantize_(module)
    x = torch.randn(4, 4, 4, requires_grad=True)
    module(x).sum().backward()
    assert sum(site.calls.value for site in quantized_sites(module)) >= 1


def test_layers_alone_are_no_reason_to_watch() -> None:
    assert not might_multiply(Quiet())
    assert list(candidates(nn.Sequential(Quiet(), nn.Conv2d(1, 1, 1)))) == ["0.linear", "1"]


def test_modules_inside_one_that_multiplies_keep_their_own_calls() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.other = Quiet(), Operator()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.other(self.inner(x)) @ x

    model = quantize_(Outer(), lambda module, name: not isinstance(module, Operator))
    assert list(covers(model)) == ["", "inner", "inner.linear", "other"]
    model(torch.randn(4, 4)).sum().backward()
    assert {site.name for site in quantized_sites(model) if site.calls.value} == {":matmul", "inner.linear"}
    counted = covers(model)["other"].sites["matmul"]
    assert counted.quantizer is None
    assert counted.calls.value == 1


@pytest.mark.parametrize("kind", [Operator, Called, Method])
def test_the_signature_of_forward_stays(kind: type[nn.Module]) -> None:
    module = kind()
    before = inspect.signature(module.forward)
    assert inspect.signature(quantize_(module).forward) == before


def test_a_forward_that_accelerate_has_covered_runs_inside() -> None:
    module = Operator()
    original = module.forward
    module._original_forward = original

    def outer(x: torch.Tensor) -> torch.Tensor:
        return original(x) + 1

    module.forward = outer  # type: ignore[method-assign]
    x = torch.randn(4, 4, 4, requires_grad=True)
    quantize_(module)
    assert (module(x) - x @ x).mean().item() == pytest.approx(1.0, abs=0.1)
    module(x).sum().backward()
    assert quantized_sites(module)[0].calls.value == 2
    assert dequantize_(module).forward is outer


def test_compiled_before_it_ever_ran() -> None:
    torch._dynamo.reset()
    model = quantize_(Operator())
    fast = torch.compile(model, backend="eager")
    x = torch.randn(4, 4, requires_grad=True)
    for _ in range(3):
        fast(x).sum().backward()
    (site,) = quantized_sites(model)
    assert site.calls.value == 3
    torch._dynamo.reset()
    assert torch.compile(model, backend="eager", fullgraph=True)(x).shape == (4, 4)
