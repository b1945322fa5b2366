"""Rules for functions that the graph does not know."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trivet.graph import Call, graph_of, register_rule
from trivet.graph.rules import BY_FUNCTION


@torch.library.custom_op("trivet_tests::mixed", mutates_args=())
def mixed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A linear map, unknown to torch."""
    return x @ weight.t() + bias


@mixed.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias, self.head = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(3)), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.ops.trivet_tests.mixed(x, self.weight, self.bias))


def test_unknown_operator_keeps_its_parameters_as_raw_nodes() -> None:
    graph = graph_of(Custom(), torch.zeros(2, 4))
    assert [node.op for node in graph.nodes] == ["input", "raw", "raw", "conv", "bias"]
    assert graph.edges == ((0, 1), (1, 2), (2, 3), (3, 4))
    assert not graph.unplaced


def test_rule_for_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in list(BY_FUNCTION):
        monkeypatch.setitem(BY_FUNCTION, function, BY_FUNCTION[function])

    def rule(call: Call) -> object:
        x, weight, bias = call.args
        result = call.weight("conv", call.value(weight), call.value(x), macs=x.numel() * len(weight))
        return call.weight("bias", call.value(bias), result)

    monkeypatch.setitem(BY_FUNCTION, torch.ops.trivet_tests.mixed, None)
    register_rule(torch.ops.trivet_tests.mixed)(rule)  # type: ignore[arg-type]
    graph = graph_of(Custom(), torch.zeros(2, 4))
    assert [node.op for node in graph.nodes] == ["input", "conv", "bias", "conv", "bias"]
    assert graph.macs == 2 * 4 * 3 + 2 * 3 * 2
    with pytest.raises(TypeError, match="must be something that is called"):
        register_rule("linear")
