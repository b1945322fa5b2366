"""What trainings do around a model: recomputation, autocast, scaling, accumulation, averages, hooks, sharing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trivet.precision import PrecisionController, PrecisionSchedule, quantize_
from trivet.precision.inject import quantized_sites


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.inner = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return torch.relu(self.inner(x)) @ self.weight


class Net(nn.Module):
    def __init__(self, recompute: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.head = Block(), Block(), nn.Linear(8, 3)
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in (self.first, self.second):
            x = checkpoint(block, x, use_reentrant=self.recompute == "reentrant") if self.recompute else block(x)
        return self.head(x)


def schedule(steps: int = 4) -> PrecisionSchedule:
    return PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=steps)


def train(model: nn.Module, steps: int = 4, micro: int = 1, **options: Any) -> PrecisionController:
    ctl = PrecisionController(model, schedule(steps), grad_bits=5, seed=2, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(micro):
            x = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(10 * step + part), requires_grad=False)
            model(x.requires_grad_()).square().mean().backward()
        optimizer.step()
        ctl.step()
    return ctl


@pytest.mark.parametrize("how", ["", "reentrant"])
@pytest.mark.parametrize("micro", [1, 2])
def test_recomputation_changes_nothing(how: str, micro: int) -> None:
    """Same noise both times, ranges updated once, work counted once."""
    plain, other = quantize_(Net()), quantize_(Net(how or "saved"))
    a, b = train(plain, micro=micro), train(other, micro=micro)
    assert a.cost == b.cost
    assert a.report() == b.report()
    for site, twin in zip(quantized_sites(plain), quantized_sites(other), strict=True):
        assert all(torch.equal(x.bounds, y.bounds) for x, y in zip(site.ranges, twin.ranges, strict=True))
    for p, q in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def test_autocast_and_scaler() -> None:
    model = quantize_(Net())
    ctl = PrecisionController(model, schedule(), grad_bits=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    x = torch.randn(4, 5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
    assert y.dtype == torch.bfloat16
    scaler.scale(y.float().square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    ctl.step()
    assert scaler.get_scale() == 2.0**8
    assert all(r.bounds.dtype == torch.float32 for site in quantized_sites(model) for r in site.ranges)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.zero_grad()
    scaler.scale(model(x).square().mean() * 1e38).backward()  # overflows: the scaler must see it and skip the step
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**7
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert sum(row.non_finite_gradients for row in ctl.report()) > 0


def test_scaling_does_not_change_the_rounding() -> None:
    grads = []
    for factor in (1.0, 2.0**10):
        model = quantize_(Net())
        PrecisionController(model, schedule(), grad_bits=4)
        (model(torch.ones(2, 5, 8)).square().mean() * factor).backward()
        grads.append([p.grad / factor for p in model.parameters() if p.grad is not None])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_averaged_copies() -> None:
    model = quantize_(Net())
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    ctl = train(model)
    average.update_parameters(model)
    assert quantized_sites(average)[0].state is not quantized_sites(model)[0].state
    assert average.eval()(torch.randn(2, 5, 8)).isfinite().all()
    assert ctl.report()
    assert all(site.calls.value == 0 for site in quantized_sites(average))


def test_hooks_still_fire() -> None:
    model = Net()
    seen: list[str] = []
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda m, i, name=name: seen.append(f"before {name}"))
        module.register_full_backward_hook(lambda m, i, o, name=name: seen.append(f"backward {name}"))
    x = torch.randn(2, 5, 8, requires_grad=True)
    model(x).sum().backward()
    plain, seen[:] = list(seen), []
    quantize_(model)
    model(x).sum().backward()
    assert seen == plain


def test_shared_layer_and_tied_weight() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.inner, self.head = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 6, bias=False)
            self.again = self.inner
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embed(tokens)
            for _ in range(3):
                x = self.again(self.inner(x))
            return self.head(x)

    model = quantize_(Shared(), lambda module, name: True)
    ctl = PrecisionController(model, schedule())
    model(torch.tensor([0, 1, 5])).square().mean().backward()
    rows = {row.name: row.calls for row in ctl.report()}
    assert rows == {"embed": 1, "inner": 6, "head": 1}
    assert model.head.weight is model.embed.weight
    assert copy.deepcopy(model).head.weight.shape == (6, 4)


def test_exceptions_leave_no_trace() -> None:
    model = quantize_(Net())
    state = quantized_sites(model)[0].state
    with pytest.raises(AssertionError, match="embedding dimension"):
        model(torch.randn(2, 5, 7))
    assert state.scope is None
    assert not state.intercepting
    assert torch.overrides._len_torch_function_stack() == 0
    model(torch.randn(2, 5, 8)).sum().backward()
