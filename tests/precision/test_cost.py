"""Multiply-accumulates against hand counts, without a trace on the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trivet.precision import LayerCost, PrecisionSchedule, layer_macs, quantize_, training_bitops


class Mixed(nn.Module):
    """Every counted kind of layer, one of them used twice, one never, and a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.group = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.line = nn.Conv1d(2, 3, 5)
        self.drop = nn.Dropout(0.5)
        self.twice = nn.Linear(6, 6)
        self.never = nn.Linear(5, 5)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(self.group(self.norm(self.conv(x))))
        x = self.line(x.flatten(2)[..., :6])
        x = self.drop(x.flatten(1))
        return self.head(self.twice(self.twice(x)))


EXPECTED = {
    "conv": 4 * 64 * 2 * 9,
    "group": 4 * 64 * 9,
    "up": 4 * 64 * 2 * 4,
    "line": 3 * 2 * 2 * 5,
    "twice": 2 * 36,
    "head": 18,
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("quantized", [False, True])
def test_hand_count(batch: int, quantized: bool) -> None:
    model = quantize_(Mixed()) if quantized else Mixed()
    layers = layer_macs(model, torch.zeros(batch, 2, 8, 8))
    assert {layer.name: layer.macs for layer in layers} == EXPECTED
    assert {layer.name for layer in layers if layer.quantised} == {"conv", "group", "up", "line", "twice"}
    assert {layer.name: layer.kind for layer in layers}["up"] == "ConvTranspose2d"


def test_model_and_generator_are_untouched() -> None:
    model = quantize_(Mixed())
    model.norm.eval()
    model.head.weight.grad = torch.ones(3, 6)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    attributes = [dict(vars(module)) for module in model.modules()]
    generator = torch.get_rng_state()
    layer_macs(model, torch.zeros(2, 2, 8, 8))
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert [dict(vars(module)) for module in model.modules()] == attributes
    assert [module.training for module in model.modules()].count(False) == 1


class Branches(nn.Module):
    """Looks at values, so it cannot run without storage."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) if float(x.sum()) > 0 else self.b(torch.nn.functional.dropout(x))


def test_model_that_needs_values() -> None:
    model = Branches()
    generator = torch.get_rng_state()
    assert [layer.name for layer in layer_macs(model, torch.ones(1, 2))] == ["a"]
    assert [layer.name for layer in layer_macs(model, -torch.ones(1, 2))] == ["b"]
    assert torch.equal(generator, torch.get_rng_state())


def test_ways_to_give_the_example() -> None:
    model = nn.Bilinear(2, 2, 2)
    assert layer_macs(model, (torch.zeros(1, 2), torch.zeros(1, 2)))[0].macs == 2 * 2 * (2 + 1)
    assert layer_macs(nn.Linear(2, 3), {"input": torch.zeros(5, 2)})[0].macs == 6
    for bad in ("text", torch.tensor(1.0), torch.zeros(0, 2)):
        with pytest.raises(ValueError, match="`example_input`"):
            layer_macs(nn.Linear(2, 3), bad)


def test_closed_form() -> None:
    layers = [
        LayerCost(name="a", kind="Conv2d", macs=100, quantised=True),
        LayerCost(name="b", kind="Linear", macs=10, quantised=False),
    ]
    schedule = PrecisionSchedule.named("LT", q_min=3, q_max=8, num_cycles=2, total_steps=50)
    expected = sum(7 * (100 * (b * b + 2 * b * 6) + 10 * 3072) for b in schedule.bits_array().tolist())
    assert training_bitops(layers, schedule, grad_bits=6, batch_size=7) == expected
    first = sum(7 * (100 * (b * b + 2 * b * 6) + 10 * 3072) for b in schedule.bits_array().tolist()[:20])
    assert training_bitops(layers, schedule, grad_bits=6, batch_size=7, steps=20) == first
    assert training_bitops(layers, None, batch_size=7, steps=20) == 20 * 7 * 110 * 3072
    with pytest.raises(ValueError, match="`steps=51` must lie in \\[0, 50\\]"):
        training_bitops(layers, schedule, steps=51)
    assert training_bitops(layers, schedule, steps=0) == 0
    with pytest.raises(ValueError, match="`steps=-1`"):
        training_bitops(layers, None, steps=-1)
    with pytest.raises(ValueError, match="`steps` must be given"):
        training_bitops(layers, None)
    with pytest.raises(ValueError, match="`batch_size=0`"):
        training_bitops(layers, schedule, batch_size=0)
