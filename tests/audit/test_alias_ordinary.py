"""Ordinary training loops give no false alarm."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from trivet import audit
from trivet.precision import PrecisionController, PrecisionSchedule, quantize_

_spec = importlib.util.spec_from_file_location("audit_variants", Path(__file__).with_name("variants.py"))
assert _spec is not None
assert _spec.loader is not None
variants = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = variants
_spec.loader.exec_module(variants)


def images(batch: int = 6) -> Tensor:
    return torch.rand(batch, 1, 8, 8)


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(36, 8), nn.GELU(), nn.Linear(8, 3),
    )  # fmt: skip


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 3) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        F.cross_entropy(model(images()), torch.randint(3, (6,))).backward()
        optimizer.step()


def plain() -> None:
    model = net()
    for optimizer in (torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.optim.AdamW(model.parameters())):
        steps(model, optimizer)


def accumulation() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(4):
        F.cross_entropy(model(images()), torch.randint(3, (6,))).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()


def window_of_batch_norms() -> None:
    """Running statistics change between the frames of a window, and backward does not read them."""
    model = net()
    loss = sum(F.cross_entropy(model(images()), torch.randint(3, (6,))) for _ in range(4))
    assert isinstance(loss, Tensor)
    loss.backward()
    model.eval()
    F.cross_entropy(model(images()), torch.randint(3, (6,))).backward()


def checkpointed() -> None:
    model = net()
    for reentrant in (False, True):
        x = images().requires_grad_()
        hidden = checkpoint(model[:5], x, use_reentrant=reentrant)
        F.cross_entropy(model[5:](hidden), torch.randint(3, (6,))).backward()


def autocast() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = sum(F.cross_entropy(model(images()), torch.randint(3, (6,))) for _ in range(2))
        assert isinstance(loss, Tensor)
        loss.backward()
        optimizer.step()


def tied() -> None:
    embedding, out = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
    out.weight = embedding.weight
    optimizer = torch.optim.Adam([embedding.weight])
    for _ in range(3):
        ids = torch.randint(7, (4,))
        F.cross_entropy(out(embedding(ids)), ids).backward()
        optimizer.step()
        optimizer.zero_grad()


def step_inside_backward() -> None:
    model = net()
    optimizers = {parameter: torch.optim.SGD([parameter], 0.1) for parameter in model.parameters()}
    for parameter, optimizer in optimizers.items():
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    for _ in range(2):
        F.cross_entropy(model(images()), torch.randint(3, (6,))).backward()


def double_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (model(x).square().mean() + (slope.norm(dim=1) - 1).square().mean()).backward()


def retained() -> None:
    model = net()
    loss = F.cross_entropy(model(images()), torch.randint(3, (6,)))
    for _ in range(3):
        loss.backward(retain_graph=True)


def adversarial() -> None:
    generator, critic = (
        nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.1, inplace=True), nn.Linear(8, 3)),
        nn.Linear(3, 1),
    )
    first, second = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for _ in range(3):
        fake = generator(torch.randn(4, 2))
        first.zero_grad()
        (critic(fake.detach()).mean() - critic(torch.randn(4, 3)).mean()).backward()
        first.step()
        for parameter in critic.parameters():
            parameter.data.clamp_(-0.1, 0.1)
        second.zero_grad()
        (-critic(fake).mean()).backward()
        second.step()


def recurrent() -> None:
    cell, out, state = nn.LSTM(3, 4, num_layers=2, dropout=0.2), nn.Linear(4, 3), None
    optimizer = torch.optim.SGD([*cell.parameters(), *out.parameters()], 0.1)
    for _ in range(3):
        hidden, state = cell(torch.randn(5, 2, 3), state)
        out(hidden).square().mean().backward()
        state = tuple(part.detach() for part in state)
        optimizer.step()


def transformer() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x = torch.randn(2, 5, 8)
        F.mse_loss(model(x), x).backward()
        optimizer.step()


def moving_average_and_own_function() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * grads[0]

    model, average = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        x = torch.randn(4, 3)
        with torch.no_grad():
            target = average(x)
        F.mse_loss(Square.apply(model(x)), target).backward()
        optimizer.step()
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            mine.data.lerp_(theirs.data, 0.1)


def fresh_arrays() -> None:
    """A buffer that is reused only after backward, and arrays that share no memory with what comes later."""
    model, buffer = nn.Linear(3, 1), np.zeros((2, 3), np.float32)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        buffer[:] = step
        model(torch.from_numpy(buffer)).sum().backward()
        optimizer.step()
    loss = sum(model(torch.from_numpy(np.full((2, 3), step, np.float32))).square().sum() for step in range(3))
    assert isinstance(loss, Tensor)
    loss.backward()


def views_and_in_place() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    x = weight * 2
    x[0] = 0
    x[1:].add_(1)
    y = x.transpose(0, 1) + 1
    y.mul_(3)
    z = torch.view_as_complex(torch.randn(4, 2, requires_grad=True)).conj() * torch.ones(4, dtype=torch.complex64)
    (y.expand(3, 4, 4).sum() + z.abs().sum()).backward()


def norms_and_noise() -> None:
    """Operations that keep state of their own, several times before one backward."""
    model = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 3, 1)), nn.InstanceNorm2d(3, track_running_stats=True),
        nn.RReLU(inplace=True), nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 1)), nn.GroupNorm(2, 4),
        nn.BatchNorm2d(4, momentum=None), nn.Hardswish(inplace=True), nn.PReLU(), nn.Upsample(scale_factor=2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        loss = sum(model(images()).square().mean() for _ in range(3))
        assert isinstance(loss, Tensor)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def few_bits() -> None:
    """A precision schedule, several forward passes a step."""
    model = quantize_(net())
    schedule = PrecisionSchedule.named("RR", q_min=3, q_max=8, num_cycles=2, total_steps=4)
    controller, optimizer = PrecisionController(model, schedule), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        loss = sum(F.cross_entropy(model(images()), torch.randint(3, (6,))) for _ in range(2))
        assert isinstance(loss, Tensor)
        loss.backward()
        optimizer.step()
        controller.step()


def other_operations() -> None:
    x = torch.randn(6, 2, 5, requires_grad=True)
    F.ctc_loss(x.log_softmax(2), torch.randint(1, 5, (2, 3)), torch.tensor([6, 6]), torch.tensor([3, 3])).backward()
    q = torch.rand(1, 2, 4, 8, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, dropout_p=0.1).sum().backward()
    packed = nn.utils.rnn.pack_padded_sequence(torch.rand(5, 2, 3), [5, 3])
    nn.GRU(3, 4, bidirectional=True)(packed)[0].data.sum().backward()
    bag = nn.EmbeddingBag(10, 4)
    F.mse_loss(bag(torch.randint(10, (6,)), torch.tensor([0, 3])), torch.rand(2, 4)).backward()
    linear = nn.Linear(3, 1)
    optimizer, inputs = torch.optim.LBFGS(linear.parameters(), max_iter=3), torch.rand(5, 3)

    def closure() -> float:
        optimizer.zero_grad()
        loss = linear(inputs).square().mean()
        loss.backward()
        return loss.item()

    optimizer.step(closure)


ORDINARY = [
    plain, accumulation, window_of_batch_norms, checkpointed, autocast, tied, step_inside_backward, double_backward,
    retained, adversarial, recurrent, transformer, moving_average_and_own_function, fresh_arrays, views_and_in_place,
    norms_and_noise, few_bits, other_operations,
]  # fmt: skip


@pytest.mark.parametrize("loop", ORDINARY, ids=lambda loop: loop.__name__)
def test_no_false_alarm(loop: Callable[[], None]) -> None:
    torch.manual_seed(0)
    with audit.alias() as a:
        loop()
    assert not a.findings, str(a)
    assert a.checked > 0


def test_batch_norm_in_evaluation_reads_its_statistics() -> None:
    norm = nn.BatchNorm1d(3).eval()
    with audit.alias() as a:
        loss = norm(torch.ones(2, 3)).sum()
        assert isinstance(norm.running_var, Tensor)
        norm.running_var.numpy()[:] = 4
        loss.backward()
    assert [found.role for found in a.findings] == ["running_var"]


def test_same_gradients_to_the_bit() -> None:
    """Also second derivatives, which go through what the hooks return."""

    def gradients(audited: bool) -> list[Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1))
        x = torch.randn(5, 3, requires_grad=True)
        with audit.alias(model) if audited else contextlib.nullcontext():
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            slope.square().sum().backward()
        return [x.grad if x.grad is not None else x, *(p.grad for p in model.parameters() if p.grad is not None)]

    assert all(torch.equal(a, b) for a, b in zip(gradients(False), gradients(True), strict=True))
