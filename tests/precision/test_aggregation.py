"""The sum over neighbors at few bits."""

from __future__ import annotations

import torch
from torch import nn

from trivet.models.neighbors import neighbor_sum
from trivet.precision import PrecisionController, PrecisionSchedule, dequantize_, layer_macs, quantize_, training_bitops

RING = torch.stack((torch.arange(50).roll(1), torch.arange(50)))
"""Every node has one neighbor, so the sum over neighbors is what was rounded."""


class Ring(nn.Module):
    def __init__(self, weighted: bool = False) -> None:
        super().__init__()
        self.weighted = weighted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.weighted:
            return neighbor_sum(x, RING)
        return neighbor_sum(x.unsqueeze(1), RING, torch.linspace(0.1, 1, 50).unsqueeze(1)).squeeze(1)


def test_what_is_summed_is_rounded_and_so_is_its_gradient() -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 4, requires_grad=True)
    model = quantize_(Ring(), lambda module, name: True)
    ctl = PrecisionController(model, PrecisionSchedule.static(3, total_steps=2), grad_bits=2)
    y = model(x)
    assert len(y.unique()) <= 8
    assert (y - x.roll(1, 0)).abs().max() <= (x.max() - x.min()) / 7 * 0.5001
    y.backward(torch.randn(50, 4))
    assert x.grad is not None
    assert len(x.grad.unique()) <= 4
    row = ctl.report()[0]
    assert (row.name, row.quantised, row.calls) == (":neighbors", True, 1)
    with ctl.at(32):
        assert torch.equal(model(x), Ring()(x))
    assert torch.equal(dequantize_(model)(x), Ring()(x))


def test_weights_of_edges_are_rounded_as_well() -> None:
    torch.manual_seed(0)
    x = torch.ones(50, 4)
    model = quantize_(Ring(weighted=True), lambda module, name: True)
    PrecisionController(model, PrecisionSchedule.static(2, total_steps=2))
    assert len(model(x).unique()) <= 4
    exact = dequantize_(model)(x)
    assert len(exact.unique()) == 50


def test_counted_in_both_ways() -> None:
    """Edges × features; what is not quantized counts at 32 bits; counted before and during training alike."""
    x = torch.randn(1, 50, 4)

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ring, self.out = Ring(), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.ring(x[0]))

    for chosen in (True, False):
        model = quantize_(Graph(), lambda module, name, chosen=chosen: chosen or isinstance(module, nn.Linear))
        layers = layer_macs(model, x)
        assert {layer.name: (layer.macs, layer.quantised) for layer in layers} == {
            "ring:neighbors": (50 * 4, chosen),
            "out": (50 * 4 * 3, True),
        }
        ctl = PrecisionController(model, PrecisionSchedule.static(8, total_steps=2))
        for _ in range(2):
            model(x).sum().backward()
            ctl.step()
        assert ctl.cost == training_bitops(layers, ctl.schedule, grad_bits=8)
        model.eval()
        with torch.no_grad():
            assert model(x).isfinite().all()
