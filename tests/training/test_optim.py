from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trivet.training.config import LRScheduleConfig, OptimizerConfig
from trivet.training.optim import build_optimizer, lr_factor, set_lr

STEPS = 40


def _rates(scheduler_of, steps: int = STEPS) -> list[float]:
    """Rates that a torch scheduler gives, starting from 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = scheduler_of(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def _ours(config: LRScheduleConfig, steps: int = STEPS) -> list[float]:
    return [lr_factor(config, step, steps) for step in range(steps)]


def test_cosine_is_torch_cosine() -> None:
    torch_rates = _rates(lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS, eta_min=0.1))
    assert _ours(LRScheduleConfig(name="cosine", final=0.1)) == pytest.approx(torch_rates, rel=1e-9)


def test_step_is_torch_multistep() -> None:
    torch_rates = _rates(lambda opt: torch.optim.lr_scheduler.MultiStepLR(opt, [20, 30], gamma=0.1))
    assert _ours(LRScheduleConfig(name="step")) == pytest.approx(torch_rates, rel=1e-9)


def test_linear_is_torch_linear() -> None:
    torch_rates = _rates(lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS))
    assert _ours(LRScheduleConfig(name="linear", final=0.1)) == pytest.approx(torch_rates, rel=1e-9)


def test_warmup_then_cosine_is_torch_sequence() -> None:
    def sequence(optimizer):
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / 8, total_iters=7)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS - 8)
        return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[8])

    assert _ours(LRScheduleConfig(name="cosine", warmup_steps=8)) == pytest.approx(_rates(sequence), rel=1e-9)


@given(
    name=st.sampled_from(["constant", "cosine", "linear", "step"]),
    steps=st.integers(1, 300),
    warmup=st.integers(0, 299),
    final=st.floats(0, 1),
)
def test_factor_stays_in_range(name, steps: int, warmup: int, final: float) -> None:
    config = LRScheduleConfig(name=name, warmup_steps=min(warmup, steps - 1), final=final)
    assert all(0 <= factor <= 1 + 1e-12 for factor in _ours(config, steps))


@pytest.mark.parametrize("step", [-1, 10])
def test_step_outside_the_run(step: int) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        lr_factor(LRScheduleConfig(), step, 10)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (OptimizerConfig(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4), torch.optim.SGD),
        (OptimizerConfig(name="adam", lr=1e-3, betas=(0.8, 0.99), weight_decay=0.1), torch.optim.Adam),
        (OptimizerConfig(name="adamw", lr=1e-3, eps=1e-6), torch.optim.AdamW),
    ],
)
def test_optimizer_constants(config: OptimizerConfig, kind: type) -> None:
    layer = torch.nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    optimizer = build_optimizer(layer.parameters(), config)
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert group["params"] == [layer.weight]
    assert (group["lr"], group["weight_decay"]) == (config.lr, config.weight_decay)
    assert group.get("betas", config.betas) == config.betas
    assert group.get("momentum", config.momentum) == config.momentum
    set_lr(optimizer, 0.5)
    assert group["lr"] == 0.5


def test_nothing_to_train() -> None:
    with pytest.raises(ValueError, match="unfreeze"):
        build_optimizer([], OptimizerConfig())
