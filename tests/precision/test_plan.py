"""Bits per role and per layer."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
import torch
from torch import nn

from trivet.precision import PrecisionController, PrecisionSchedule, RoleSchedules, layer_macs, quantize_
from trivet.precision.inject import quantized_sites
from trivet.precision.roles import role_bitops_per_mac

STEPS = 6


def named(name: str, low: int, high: int) -> PrecisionSchedule:
    return PrecisionSchedule.named(name, q_min=low, q_max=high, num_cycles=2, total_steps=STEPS)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))


def train(model: nn.Module, ctl: PrecisionController, steps: int = STEPS) -> list[list[tuple[int, int, int]]]:
    seen = []
    for _ in range(steps):
        seen.append([site.bits for site in quantized_sites(model)])
        model(torch.ones(3, 4)).square().mean().backward()
        ctl.step()
    return seen


def test_roles_follow_their_own_schedules_and_cost_says_so() -> None:
    weight, activation, gradient = named("LR", 3, 8), named("CT", 4, 6), named("RR", 5, 9)
    whole = RoleSchedules(weight=weight, activation=activation, gradient=gradient)
    layers = layer_macs(net(), torch.ones(1, 4))
    costs = []
    for build in (
        lambda m: PrecisionController(m, whole),
        lambda m: PrecisionController(m, weight, roles={"activation": activation, "gradient": gradient}),
    ):
        model = quantize_(net())
        ctl = build(model)
        assert train(model, ctl) == [[whole.bits(step)] * 3 for step in range(STEPS)]
        costs.append(ctl.cost)
    quantised = sum(layer.macs for layer in layers if layer.quantised)
    full = sum(layer.macs for layer in layers if not layer.quantised)
    expected = sum(3 * (quantised * role_bitops_per_mac(*whole.bits(step)) + full * 3072) for step in range(STEPS))
    assert costs == [expected, expected]


def test_layers_differ() -> None:
    model = quantize_(net())
    ctl = PrecisionController(
        model, named("LR", 3, 8), grad_bits=8, overrides={"[24]": named("CR", 4, 5), "2": {"weight": 2, "gradient": 6}}
    )
    seen = train(model, ctl)
    s, other = named("LR", 3, 8), named("CR", 4, 5)
    assert seen == [
        [(s.bits(i), s.bits(i), 8), (2, s.bits(i), 6), (other.bits(i), other.bits(i), 8)] for i in range(STEPS)
    ]
    rows = {row.name: row for row in ctl.report()}
    assert (rows["2"].bits, rows["2"].activation_bits, rows["2"].grad_bits) == (2, s.bits(STEPS - 1), 6)
    # Evaluation: the most bits of each role of each layer; inside at(bits), those.
    assert [site.dials.evaluation_bits() for site in quantized_sites(model)] == [(8, 8), (2, 8), (5, 5)]
    with ctl.at(4):
        assert [site.dials.evaluation_bits() for site in quantized_sites(model)] == [(4, 4)] * 3
    assert [site.dials.evaluation_bits() for site in quantized_sites(model)] == [(8, 8), (2, 8), (5, 5)]


def test_products_of_one_layer_differ() -> None:
    model = quantize_(nn.LSTM(4, 4))
    ctl = PrecisionController(model, named("LR", 3, 8), overrides={"*:hh_l0": 8})
    model(torch.ones(3, 4))[0].sum().backward()
    assert {row.name: row.bits for row in ctl.report()} == {":ih_l0": 3, ":hh_l0": 8}


def test_resume_with_roles_and_overrides() -> None:
    options: dict[str, Any] = {"roles": {"gradient": named("RR", 5, 9)}, "overrides": {"0": {"activation": 32}}}
    whole, first, second = (quantize_(net()) for _ in range(3))
    a = PrecisionController(whole, named("LR", 3, 8), **options)
    b = PrecisionController(first, named("LR", 3, 8), **options)
    c = PrecisionController(second, named("LR", 3, 8), **options)
    train(whole, a)
    train(first, b, 4)
    buffer = io.BytesIO()
    torch.save(b.state_dict(), buffer)
    buffer.seek(0)
    c.load_state_dict(torch.load(buffer, weights_only=True))
    train(second, c, 2)
    assert c.report() == a.report()
    with pytest.raises(ValueError, match="other `grad_bits`, `roles` or `overrides`"):
        PrecisionController(second, named("LR", 3, 8)).load_state_dict(b.state_dict())


def test_refusals() -> None:
    model, s = quantize_(net()), named("LR", 3, 8)
    for options, message in (
        ({"roles": {"weigth": 8}}, "did you mean 'weight'"),
        ({"roles": {"weight": 40}}, "must lie in [1, 32]"),
        ({"overrides": {"layer9.*": 8}}, "unknown pattern of quantized layers"),
        ({"overrides": {"5": 8}}, "unknown pattern of quantized layers"),
        ({"overrides": {"0": {"bits": 8}}}, "overrides['0']: unknown role"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            PrecisionController(model, s, **options)  # type: ignore[arg-type]
