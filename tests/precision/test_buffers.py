"""Memory of rounded tensors: used again or rounded in place only where nobody else refers to it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from trivet.precision import PrecisionController, PrecisionSchedule, quantize_
from trivet.precision.buffers import SMALLEST, Buffers, unshared_counts
from trivet.precision.counters import Counter
from trivet.precision.quantizer import AffineQuantizer, quantize_output_gradient

LARGE = SMALLEST // 4


def mark(y: torch.Tensor) -> torch.Tensor:
    counter = Counter(torch.device("cpu"))
    return quantize_output_gradient(y, torch.tensor(7.0), 5, counter, published=False, by_position=False)


class Hand(torch.autograd.Function):
    """Hands a given tensor on as the gradient of its input."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, give: Callable[[], torch.Tensor]) -> torch.Tensor:
        ctx.give = give
        return x.clone()

    @staticmethod
    def backward(ctx, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.give(), None


def rounded_at(give: Callable[[], torch.Tensor]) -> tuple[int, torch.Tensor]:
    """Where the rounded gradient lies, for a gradient that arrives as `give` gives it."""
    x = torch.zeros(8, requires_grad=True)
    places: list[tuple[int, torch.Tensor]] = []
    y = x * 1.0
    y.register_hook(lambda grad: places.append((grad.data_ptr(), grad.clone())))  # of y before it is marked
    Hand.apply(mark(y), give).sum().backward()
    return places[0]


def test_a_gradient_of_nobody_else_is_rounded_in_place() -> None:
    if unshared_counts() is None:
        pytest.skip("this torch does not tell how many owners a tensor has")
    places: list[int] = []

    def give() -> torch.Tensor:
        fresh = torch.randn(8)
        places.append(fresh.data_ptr())
        return fresh

    place, rounded = rounded_at(give)
    assert place == places[0]
    assert rounded.unique().numel() <= 8


KEPT = torch.linspace(-1, 1, 8)
LARGER = torch.linspace(-1, 1, 16)
NUMBERS = np.linspace(-1, 1, 8, dtype=np.float32)
VIEWED = torch.linspace(-1, 1, 8)


@pytest.mark.parametrize(
    ("give", "owner"),
    [
        (lambda: KEPT, KEPT),
        (lambda: KEPT.detach(), KEPT),
        (lambda: LARGER[4:12], LARGER),
        (lambda: VIEWED.view(2, 4).view(8), VIEWED),
        (lambda: torch.from_numpy(NUMBERS), torch.from_numpy(NUMBERS)),
        (lambda: torch.tensor(0.3).expand(8), torch.tensor(0.3)),
    ],
    ids=["kept", "detached", "part", "view", "numpy", "expanded"],
)
def test_a_gradient_with_another_owner_is_left_alone(give: Callable[[], torch.Tensor], owner: torch.Tensor) -> None:
    before = owner.clone()
    place, rounded = rounded_at(give)
    assert torch.equal(owner, before)
    storage = owner.untyped_storage()
    assert not storage.data_ptr() <= place < storage.data_ptr() + storage.nbytes()
    assert not torch.equal(rounded, give()) or owner.dim() == 0


def test_gradients_that_hooks_and_captures_keep_are_not_changed() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 6, requires_grad=True)
    kept: list[torch.Tensor] = []
    y = mark(x * 1.0)
    y.register_hook(kept.append)
    z = y.exp()
    (exact,) = torch.autograd.grad(z.sum(), [y], retain_graph=True)
    expected = exact.clone()
    captured, rounded = torch.autograd.grad(z.sum(), [y, x], retain_graph=True)
    assert torch.equal(captured, expected)
    assert torch.equal(exact, expected)
    assert all(torch.equal(grad, expected) for grad in kept)
    assert not torch.equal(rounded, expected)
    again = torch.autograd.grad(z.sum(), x)[0]  # the retained graph gives the same
    assert torch.equal(again, rounded)


def test_two_readers_of_one_gradient() -> None:
    """The sum hands the same tensor to both sides; each must see it unrounded."""
    torch.manual_seed(0)
    x, plain = torch.randn(64, requires_grad=True), torch.randn(64, requires_grad=True)
    w = torch.randn(64)
    y = mark(x * 1.0) + plain * 1.0 + mark(x * 2.0)
    ((y * w).exp() * 0.1).sum().backward()
    with torch.no_grad():
        expected = (y * w).exp() * 0.1 * w
    assert plain.grad is not None
    torch.testing.assert_close(plain.grad, expected)


def test_memory_is_used_again_only_when_free() -> None:
    buffers, x = Buffers(), torch.zeros(4, 8, 64, 64).to(memory_format=torch.channels_last)
    y = buffers.like(x)
    assert y.stride() == x.stride()
    place = y.data_ptr()
    part = y[1:]
    del y
    assert buffers.like(x).data_ptr() != place  # a view still needs it
    del part
    kept = [buffers.like(x), buffers.like(x)]
    assert place in {kept[0].data_ptr(), kept[1].data_ptr()}
    assert kept[0].data_ptr() != kept[1].data_ptr()
    smaller = buffers.like(x[:2])
    assert smaller.data_ptr() not in {tensor.data_ptr() for tensor in kept}


def test_growing_shapes_do_not_pile_up() -> None:
    buffers = Buffers()
    for n in range(LARGE, 2 * LARGE, LARGE // 8):
        buffers.like(torch.zeros(n))
    assert len(buffers._kept) == 1
    assert not Buffers.like(buffers, torch.zeros(3)).untyped_storage().nbytes() > 12
    assert copy.deepcopy(buffers)._kept == pickle.loads(pickle.dumps(buffers))._kept == []


@pytest.mark.parametrize("quantizer", ["default", "published"])
def test_training_is_the_same_without_reuse(quantizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared layers, two forward passes before a backward pass, a kept graph: nothing is overwritten too early."""

    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        shared = nn.Sequential(model, model[2], model[2], nn.Flatten(), nn.Linear(8 * 32 * 32, 2))
        quantize_(shared, quantizer=quantizer)
        ctl = PrecisionController(shared, PrecisionSchedule.static(6, total_steps=9), grad_bits=6)
        optimizer = torch.optim.SGD(shared.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            losses = [shared(torch.randn(16, 3, 32, 32)).square().mean() for _ in range(2)]
            losses[0].backward(retain_graph=True)
            losses[1].backward()
            losses[0].backward()
            optimizer.step()
            ctl.step()
        return [p.detach() for p in shared.parameters()]

    expected = train()
    monkeypatch.setattr(Buffers, "like", lambda self, x: torch.empty_like(x))
    monkeypatch.setattr("trivet.precision.quantizer.is_unshared", lambda grad, references: False)
    assert all(torch.equal(a, b) for a, b in zip(train(), expected, strict=True))


class Labelled(torch.Tensor):
    """A tensor that is more than memory with a shape."""


def test_subclasses_go_the_general_way() -> None:
    torch.manual_seed(0)
    plain = torch.randn(4, LARGE)
    x = plain.as_subclass(Labelled)
    buffers = Buffers()
    buffers.like(x)
    assert buffers._kept == []
    quantizer, seven = AffineQuantizer(), torch.tensor(7.0)
    got = quantizer.rows(x, seven, (1,))
    assert isinstance(got, Labelled)
    assert torch.equal(got.as_subclass(torch.Tensor), quantizer.rows(plain, seven, (1,)))
