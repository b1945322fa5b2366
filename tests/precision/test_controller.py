"""The controller: bits, cost, declared evaluation precision, exact resume."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
import torch
from torch import nn

from trivet.core.errors import TrivetError
from trivet.precision import (
    PrecisionController,
    PrecisionSchedule,
    dequantize_,
    layer_macs,
    quantize_,
    training_bitops,
)
from trivet.precision.inject import quantized_sites

STEPS = 24


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.Flatten(),
        nn.Linear(36, 5),
    )


def schedule(name: str = "RTH") -> PrecisionSchedule:
    return PrecisionSchedule.named(name, q_min=3, q_max=8, num_cycles=4, total_steps=STEPS)


class Run:
    """A small training that can be stopped, saved and gone on with."""

    def __init__(self, quantizer: str = "default", **options: Any) -> None:
        self.model = quantize_(net(), quantizer=quantizer)
        self.ctl = PrecisionController(self.model, schedule(), grad_bits=4, seed=3, **options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def go(self, first: int, last: int, micro: int = 1) -> None:
        for step in range(first, last):
            self.optimizer.zero_grad()
            for part in range(micro):
                generator = torch.Generator().manual_seed(100 * step + part)
                self.model(torch.randn(6, 3, 8, 8, generator=generator)).square().mean().backward()
            self.optimizer.step()
            self.ctl.step()

    def save(self) -> io.BytesIO:
        buffer = io.BytesIO()
        parts = {"model": self.model, "optimizer": self.optimizer, "precision": self.ctl}
        torch.save({name: part.state_dict() for name, part in parts.items()}, buffer)
        buffer.seek(0)
        return buffer

    def load(self, buffer: io.BytesIO) -> None:
        state = torch.load(buffer, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.ctl.load_state_dict(state["precision"])


@pytest.mark.parametrize("quantizer", ["default", "published"])
@pytest.mark.parametrize("stop", [1, 7, STEPS - 1])
def test_resume_is_bit_exact(stop: int, quantizer: str) -> None:
    whole, first, second = Run(quantizer), Run(quantizer), Run(quantizer)
    whole.go(0, STEPS)
    first.go(0, stop)
    torch.randn(17)  # the global generator plays no part
    second.load(first.save())
    second.go(stop, STEPS)
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[key]), key
    assert second.ctl.cost == whole.ctl.cost
    assert second.ctl.report() == whole.ctl.report()
    x = torch.randn(4, 3, 8, 8)
    assert torch.equal(whole.model.eval()(x), second.model.eval()(x))


def test_seed_and_rank_change_the_rounding() -> None:
    runs = [Run(), Run(rank=1), Run()]
    for run in runs:
        run.go(0, 3)
    first, other, again = (run.model[0].weight for run in runs)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_bits_follow_the_schedule_and_hold_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    run = Run()
    seen = []
    for _ in range(STEPS):
        seen.append(run.ctl.bits)
        run.ctl.step()
    assert seen == schedule().bits_array().tolist()
    assert run.ctl.bits == seen[-1]
    with caplog.at_level(logging.WARNING):
        run.ctl.step()
        run.ctl.step()
    assert run.ctl.bits == seen[-1]
    assert sum("goes on after the 24 steps" in record.message for record in caplog.records) == 1


def test_levels_are_changed_in_place() -> None:
    run = Run()
    levels = quantized_sites(run.model)[0].dials.weight.levels(torch.device("cpu"))
    for _ in range(STEPS - 1):
        run.ctl.step()
        assert levels.item() == 2**run.ctl.bits - 1


@pytest.mark.parametrize("micro", [1, 3])
def test_cost_equals_the_closed_form(micro: int) -> None:
    run = Run()
    layers = layer_macs(net(), torch.zeros(1, 3, 8, 8))
    run.go(0, 10, micro)
    assert run.ctl.cost == training_bitops(layers, schedule(), grad_bits=4, batch_size=6 * micro, steps=10)
    run.go(10, STEPS, micro)
    assert run.ctl.cost == training_bitops(layers, schedule(), grad_bits=4, batch_size=6 * micro)
    assert sum(row.bitops for row in run.ctl.report()) == run.ctl.cost


def test_evaluation_is_neither_counted_nor_at_the_bits_of_the_schedule() -> None:
    run = Run()
    run.go(0, 8)
    assert run.ctl.bits < 8
    x = torch.randn(4, 3, 8, 8)
    cost, ranges = run.ctl.cost, [site.ranges[0].bounds.clone() for site in quantized_sites(run.model)]
    run.model.eval()
    at_q_max = run.model(x)
    with run.ctl.at(8):
        assert torch.equal(run.model(x), at_q_max)
    with run.ctl.at():
        assert torch.equal(run.model(x), at_q_max)
    with run.ctl.at(2):
        assert not torch.equal(run.model(x), at_q_max)
        with run.ctl.at(8):
            assert torch.equal(run.model(x), at_q_max)
    assert torch.equal(run.model(x), at_q_max)
    run.model.train()
    with run.ctl.at(8):
        run.model(x).sum().backward()
    with torch.no_grad():
        run.model(x)
    assert run.ctl.cost == cost
    assert all(torch.equal(a, s.ranges[0].bounds) for a, s in zip(ranges, quantized_sites(run.model), strict=True))


def test_at_restores_after_an_error() -> None:
    run = Run()
    with pytest.raises(RuntimeError), run.ctl.at(2):
        raise RuntimeError
    assert run.ctl.evaluate_bits == 8
    with pytest.raises(ValueError, match="`bits=40`"), run.ctl.at(40):
        pass


def test_declared_evaluation_bits() -> None:
    assert Run().ctl.evaluate_bits == 8
    run = Run(evaluate_bits=32)
    assert run.ctl.evaluate_bits == 32


def test_report_proves_quantization() -> None:
    run = Run()
    with pytest.raises(TrivetError, match="never quantized, though chosen: 0, 3"):
        run.ctl.report()
    run.go(0, 5)
    rows = {row.name: row for row in run.ctl.report()}
    assert [rows[name].quantised for name in ("0", "3", "5")] == [True, True, False]
    assert [rows[name].bits for name in ("0", "3", "5")] == [run.ctl.bits, run.ctl.bits, 32]
    assert all(row.calls == 5 for row in rows.values())
    assert rows["0"].weight_error > 0
    assert rows["5"].weight_error == 0
    assert rows["0"].activation_range[0] < 0 < rows["0"].activation_range[1]


class Skips(nn.Module):
    """Has a layer that its forward never reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.used(x))


def test_report_raises_for_a_layer_that_never_ran() -> None:
    model = quantize_(Skips())
    ctl = PrecisionController(model, schedule())
    model(torch.randn(2, 3)).sum().backward()
    with pytest.raises(TrivetError, match="though chosen: unused"):
        ctl.report()


def test_non_finite_values_are_counted() -> None:
    model = quantize_(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)))
    ctl = PrecisionController(model, schedule())
    x = torch.randn(4, 3)
    x[0, 0], x[1, 1] = float("nan"), float("inf")
    model(x).sum().backward()
    assert ctl.report()[0].non_finite_inputs == 2


def test_a_controller_notices_that_it_lost_the_model() -> None:
    run = Run()
    run.go(0, 2)
    second = PrecisionController(run.model, schedule())
    assert second.cost == 0
    for use in (run.ctl.step, run.ctl.at().__enter__, lambda: run.ctl.load_state_dict(second.state_dict())):
        with pytest.raises(TrivetError, match="no longer moves the model"):
            use()
    second.step()
    dequantize_(run.model)
    with pytest.raises(TrivetError, match="no longer moves the model"):
        second.step()


def test_wrapped_models_are_found() -> None:
    model = quantize_(net())
    wrapped = nn.Sequential(model)
    assert PrecisionController(wrapped, schedule()).bits == 8


def test_execution_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="allowed: simulated, native, auto; did you mean 'native'"):
        PrecisionController(quantize_(net()), schedule(), execution="nativ")


def test_refusals() -> None:
    with pytest.raises(TrivetError, match="call quantize_"):
        PrecisionController(net(), schedule())
    with pytest.raises(ValueError, match="`grad_bits=0`"):
        PrecisionController(quantize_(net()), schedule(), grad_bits=0)
    with pytest.raises(ValueError, match="`seed=-1`"):
        PrecisionController(quantize_(net()), schedule(), seed=-1)
    run = Run()
    state = run.ctl.state_dict()
    with pytest.raises(ValueError, match="`format=9`"):
        run.ctl.load_state_dict({**state, "format": 9})
    with pytest.raises(ValueError, match="another precision schedule"):
        run.ctl.load_state_dict({**state, "schedule": schedule("CR").to_dict()})
    with pytest.raises(ValueError, match="other layers"):
        run.ctl.load_state_dict({**state, "layers": {}})
