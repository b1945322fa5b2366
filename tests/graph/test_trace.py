"""graph_of leaves no trace on the module, sees what modules do in all their ways, and says what is wrong."""

from __future__ import annotations

import copy
import functools
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trivet.graph import Graph, graph_of
from trivet.precision import layer_macs, quantize_


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def all_placed(module: nn.Module, graph: Graph) -> bool:
    return sorted(graph.parameters) == sorted(name for name, _ in module.named_parameters()) and not graph.unplaced


class Restless(nn.Module):
    """Changes itself whenever it runs, and draws random numbers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(1))
        self.count = 0
        self.log: list[int] = []
        self.memory = {"last": None}
        self.values = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.log.append(self.count)
        self.seen += 1
        self.memory["last"] = x
        random.random()
        np.random.rand()
        x = self.drop(self.norm(self.conv(x))) + torch.rand(1)
        if self.values and float(x.sum()) == 0.123:
            raise RuntimeError
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_module_and_generators_stay_as_they_were(values: bool, training: bool) -> None:
    module = Restless()
    module.values = values
    module.train(training)
    module.norm.train()
    module.head.weight.grad = torch.ones(2, 4)
    called: list[int] = []
    module.register_forward_hook(lambda *_: called.append(1))
    module.conv.register_forward_pre_hook(lambda *_: called.append(2))
    state = {key: value.clone() for key, value in module.state_dict().items()}
    tensors = {key: (id(value), value.data_ptr(), value._version) for key, value in module.named_parameters()}
    flags = [part.training for part in module.modules()]
    attributes = [set(vars(part)) for part in module.modules()]
    torch.manual_seed(5)
    x = torch.randn(2, 3, 8, 8)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    graph = graph_of(module, x)
    assert graph.method == ("real" if values else "meta")
    assert ops(graph) == ["input", "conv", "bias", "bn", "glob_avg", "conv", "bias"]
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])
    assert all(torch.equal(value, state[key]) for key, value in module.state_dict().items())
    assert {k: (id(v), v.data_ptr(), v._version) for k, v in module.named_parameters()} == tensors
    assert [part.training for part in module.modules()] == flags
    assert [set(vars(part)) for part in module.modules()] == attributes
    assert (module.count, module.log, module.memory, called) == (0, [], {"last": None}, [])
    assert torch.equal(module.head.weight.grad, torch.ones(2, 4))
    assert not hasattr(x, "_trivet_value")
    assert not hasattr(module.conv.weight, "_trivet_value")


def test_closures_over_the_original_reach_the_copy() -> None:
    norm = nn.BatchNorm1d(4)

    class Indirect(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.line = norm, nn.Linear(4, 4)
            self.steps = [functools.partial(lambda layer, x: layer(x), self.line), lambda x: norm(x)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for step in self.steps:
                x = step(x)
            return x

    module = Indirect()
    graph = graph_of(module, torch.randn(3, 4))
    assert ops(graph) == ["input", "conv", "bias", "bn"]
    assert norm.num_batches_tracked == 0
    assert torch.equal(norm.running_mean, torch.zeros(4))


def test_example_is_not_changed() -> None:
    class Spoils(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if float(x.mean()) != 1.0:  # needs numbers
                return super().forward(x)
            return super().forward(x.mul_(2))

    x = torch.ones(1, 2)
    assert graph_of(Spoils(2, 2), x).method == "real"
    assert torch.equal(x, torch.ones(1, 2))


def test_custom_function_and_scripted_part() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(Double.apply(self.a(x)))

    graph = graph_of(Custom(), torch.zeros(2, 4))
    assert ops(graph) == ["input", "conv", "bias", "conv", "bias"]
    assert graph.edges == ((0, 1), (1, 2), (2, 3), (3, 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_parts_show_their_operators() -> None:
    inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    module = nn.Sequential(torch.jit.script(inner), nn.Flatten(), nn.Linear(4 * 36, 2))
    graph = graph_of(module, torch.zeros(2, 3, 8, 8))
    assert ops(graph) == ["input", "conv", "bias", "bn", "conv", "bias"]
    assert graph.edges == tuple((i, i + 1) for i in range(5))
    assert all_placed(module, graph)
    assert inner[1].num_batches_tracked == 0


def test_module_that_looks_at_constants_runs_with_fake_tensors() -> None:
    class Steps(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(int(torch.tensor(2))):
                x = super().forward(x)
            return x

    graph = graph_of(Steps(3, 3), torch.zeros(1, 3))
    assert graph.method == "fake"
    assert [node.calls for node in graph.nodes] == [1, 2, 2]


def test_heads_that_only_the_other_mode_uses() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.main, self.extra = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)
            self.norm, self.only_eval = nn.BatchNorm1d(4), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            x = self.norm(self.body(x))
            return (self.main(x), self.extra(x)) if self.training else self.only_eval(self.main(x))

    for training in (True, False):
        module = Heads().train(training)
        graph = graph_of(module, torch.zeros(1, 4))
        assert all_placed(module, graph)
        at = graph.parameters
        assert (at["norm.weight"], at["extra.weight"]) in graph.edges
        assert (at["main.bias"], at["only_eval.weight"]) in graph.edges
        assert graph.count("input") == 1


class OptimizedModule(nn.Module):
    """As `torch.compile` makes it, which takes seconds to load."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("compiled code ran")


def test_dictionaries_and_wrappers() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(3, 2)

        def forward(self, *, left: torch.Tensor, right: torch.Tensor | None = None) -> torch.Tensor:
            return self.a(left) if right is None else self.a(left) + self.b(right)

    given = {"left": torch.zeros(1, 2), "right": torch.zeros(1, 3)}
    graph = graph_of(Named(), given)
    assert [node.name for node in graph.nodes if node.op == "input"] == ["left", "right"]
    assert graph == graph_of(Named(), (), kwargs=given)
    wrapped = graph_of(nn.DataParallel(nn.Linear(2, 2)), torch.zeros(1, 2))
    assert [node.name for node in wrapped.nodes] == ["input", "module.weight", "module.bias"]
    compiled = graph_of(OptimizedModule(nn.Linear(2, 2)), torch.zeros(1, 2))
    assert [node.name for node in compiled.nodes] == ["input", "_orig_mod.weight", "_orig_mod.bias"]


def test_multiply_accumulates_agree_with_the_cost_of_training() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4), nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(2), nn.Linear(64, 16), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.LSTM(16, 4),
    )  # fmt: skip
    x = torch.zeros(1, 3, 13, 13)
    assert graph_of(module, x).macs == sum(layer.macs for layer in layer_macs(module, x))


def test_quantized_module_has_the_same_graph() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))
    x = torch.zeros(2, 3, 8, 8)
    plain = graph_of(module, x)
    assert graph_of(quantize_(module), x) == plain


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(TypeError, match=r"`module` must be a torch\.nn\.Module, not str"):
        graph_of("resnet", torch.zeros(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no parameters"):
        graph_of(nn.ReLU(), torch.zeros(1))
    with pytest.raises(ValueError, match=r"parameter `weight` has no shape yet; run the module once"):
        graph_of(nn.LazyLinear(3), torch.zeros(1, 2))
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    state = copy.deepcopy(module.state_dict())
    with pytest.raises(
        ValueError, match=r"cannot run on `example_input` \(tensors \(1, 3\) float32 on cpu\)"
    ) as caught:
        graph_of(module, torch.zeros(1, 3))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert all(torch.equal(value, state[key]) for key, value in module.state_dict().items())

    class Raises(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("mine")

    with pytest.raises(ValueError, match="KeyError: 'mine'"):
        graph_of(Raises(2, 2), torch.zeros(1, 2))


class Threaded(nn.Module):
    """Runs its layers where nobody looks."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.layers, self.joined = nn.ModuleList(nn.Linear(3, 2) for _ in range(2)), joined

    def forward(self, x: torch.Tensor) -> Any:
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda layer: layer(x), self.layers))
        return torch.cat(parts, 1) if self.joined else parts


@pytest.mark.parametrize("joined", [True, False])
def test_what_runs_in_other_threads_is_refused_rather_than_left_out(joined: bool) -> None:
    with pytest.raises(ValueError, match=r"graph of `module` \(Threaded\) cannot be made.*other threads"):
        graph_of(Threaded(joined), torch.zeros(1, 3))
