from __future__ import annotations

import pytest
import torch
from torch import nn

from trivet.audit.trace import StepLog, WeightTrace, weight_checksum


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.last(torch.relu_(self.norm(self.first(x)))) * scale


def logged(change: float = 0.0, where: str = "") -> list[dict[str, object]]:
    """One SGD step of a network in which one parameter is moved by a few units in the last place before."""
    net, x = Net(), torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    if where:
        with torch.no_grad():
            net.get_parameter(where).add_(change)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    log = StepLog(net)
    log.begin()
    net(x, scale=2.0).square().mean().backward()
    optimizer.step()
    log.end()
    net(x)
    return log.rows


def test_rows_come_in_the_order_of_the_computation() -> None:
    seen = [(row["kind"], row["name"]) for row in logged()]
    assert seen[:5] == [
        ("input", "argument 0"),
        ("forward", "first"),
        ("forward", "norm"),
        ("forward", "last"),
        ("forward", "the model"),
    ]
    assert seen[5:9] == [("backward", "the model"), ("backward", "last"), ("backward", "norm"), ("backward", "first")]
    names = ["first.weight", "first.bias", "norm.weight", "norm.bias", "last.weight", "last.bias"]
    assert seen[9:] == [("gradient", name) for name in names] + [("weight", name) for name in names]
    assert logged() == logged()


@pytest.mark.parametrize(("where", "first"), [("first.bias", "first"), ("norm.bias", "norm"), ("last.weight", "last")])
def test_a_planted_change_is_found_where_it_is(where: str, first: str) -> None:
    pairs = list(zip(logged(), logged(1e-4, where), strict=True))
    place = next(place for place, (a, b) in enumerate(pairs) if a["checksum"] != b["checksum"])
    assert (pairs[place][0]["kind"], pairs[place][0]["name"]) == ("forward", first)


def test_a_change_of_a_gradient_alone_is_found_in_the_backward_pass() -> None:
    net, x = Net(), torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    net.norm.register_forward_hook(
        lambda module, inputs, output: output.register_hook(lambda grad: grad * 1.5) and None
    )
    log = StepLog(net)
    log.begin()
    net(x, scale=2.0).square().mean().backward()
    log.end()
    plain = [row for row in logged() if row["kind"] != "weight"]
    pairs = list(zip(plain, log.rows, strict=False))
    place = next(place for place, (a, b) in enumerate(pairs) if a["checksum"] != b["checksum"])
    assert pairs[place][0]["kind"] == "backward"
    assert pairs[place][0]["name"] in ("norm", "first")


def test_weights_are_followed_step_by_step_buffers_included() -> None:
    net = Net()
    trace = WeightTrace(net, keep=[1, 3])
    net.train()
    for _ in range(3):
        net(torch.ones(2, 3) * torch.tensor([[1.0], [2.0]]))  # running statistics alone change
        trace.step()
    assert len({trace.start, *trace.checksums}) == 4
    assert sorted(trace.weights) == [1, 3]
    assert torch.equal(trace.weights[1], trace.weights[3])
    assert trace.weights[1].numel() == sum(parameter.numel() for parameter in net.parameters())


def test_the_order_of_parameters_matters() -> None:
    one, other = nn.ParameterList([torch.ones(2), torch.zeros(2)]), nn.ParameterList([torch.zeros(2), torch.ones(2)])
    assert weight_checksum(one) != weight_checksum(other)
