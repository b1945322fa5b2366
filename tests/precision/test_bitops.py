"""BitOPs by layer and product: they add up, also where roles have schedules of their own."""

from __future__ import annotations

import numpy as np

from trivet.precision import LayerCost, PrecisionSchedule, RoleSchedules, clip, layer_bitops, training_bitops

LAYERS = [
    LayerCost(name="a", kind="Conv2d", macs=1000, quantised=True),
    LayerCost(name="b", kind="Linear", macs=10, quantised=False),
]
RR = PrecisionSchedule.named("RR", q_min=3, q_max=8, num_cycles=2, total_steps=50)


def test_the_breakdown_by_layer_adds_up_to_the_total() -> None:
    for steps in (0, 17, 50):
        parts = layer_bitops(LAYERS, RR, 8, 4, steps)
        assert sum(part.total for part in parts) == training_bitops(LAYERS, RR, 8, 4, steps)
        bits = RR.bits_array()[:steps]
        assert parts[0].forward == 4000 * int((bits**2).sum())
        assert parts[0].backward_input == parts[0].backward_weight == 4000 * int((bits * 8).sum())
        assert parts[1].forward == parts[1].backward_weight == 40 * steps * 32**2


def test_roles_are_multiplied_with_each_other() -> None:
    roles = RoleSchedules(weight=RR, activation=clip(RR, 5), gradient=PrecisionSchedule.static(6, total_steps=50))
    weight, activation = RR.bits_array(), np.maximum(RR.bits_array(), 5)
    part = layer_bitops(LAYERS[:1], roles, steps=50)[0]
    assert part.forward == 1000 * int((weight * activation).sum())
    assert part.backward_input == 1000 * int((weight * 6).sum())
    assert part.backward_weight == 1000 * int((activation * 6).sum())
    full = training_bitops(LAYERS[:1], None, steps=50)
    assert abs(part.total / full - roles.relative_cost()) < 1e-12
    same = RoleSchedules.of(RR, grad_bits=8)
    assert training_bitops(LAYERS, same) == training_bitops(LAYERS, RR, 8)


def test_the_meter_of_a_training_with_roles_equals_the_closed_form() -> None:
    import torch
    from torch import nn

    from trivet.precision import PrecisionController, layer_macs, quantize_

    model = quantize_(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    short = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=12)
    roles = RoleSchedules(weight=short, activation=clip(short, 5), gradient=PrecisionSchedule.static(6, total_steps=12))
    controller = PrecisionController(model, roles)
    for _ in range(12):
        model(torch.ones(4, 6)).sum().backward()
        controller.step()
    layers = layer_macs(model, torch.ones(4, 6))
    assert controller.cost == training_bitops(layers, roles, batch_size=4)
