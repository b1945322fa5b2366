"""What nodes the graph makes of layers, gates, attention, normalizations and shared weights."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from trivet.graph import Graph, graph_of


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def all_placed(module: nn.Module, graph: Graph) -> bool:
    return sorted(graph.parameters) == sorted(name for name, _ in module.named_parameters()) and not graph.unplaced


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for _ in range(3):
            x = self.body(x)
        return self.head(x)


def test_tied_parameters_are_one_node_and_the_graph_stays_acyclic() -> None:
    graph = graph_of(Tied(), torch.zeros(2, 5, dtype=torch.long))
    assert ops(graph) == ["input", "embedding", "conv", "bias"]
    assert [node.calls for node in graph.nodes] == [1, 2, 3, 3]
    assert graph.edges == ((0, 1), (1, 2), (2, 3))
    assert graph.outputs == (3,)
    assert graph.macs == 10 * (3 * 16 + 40)


def test_shared_layer_on_two_branches_meets_both() -> None:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.head = nn.Linear(4, 4, bias=False), nn.Linear(8, 1, bias=False)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.head(torch.cat([self.shared(a), self.shared(b)], 1))

    graph = graph_of(Siamese(), (torch.zeros(1, 4), torch.zeros(1, 4)))
    assert ops(graph) == ["input", "input", "conv", "conv"]
    assert graph.edges == ((0, 2), (1, 2), (2, 3))


class Kinds(nn.Module):
    """Layers that published graph extraction drops or cannot read."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)
        self.line = nn.Conv1d(4, 6, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose1d(6, 4, 2, stride=2)
        self.wide = nn.Conv1d(4, 4, 3, padding=2, dilation=2, groups=4, bias=False)
        self.slope = nn.PReLU()
        self.gamma = nn.Parameter(torch.ones(4, 1))
        self.place = nn.Parameter(torch.zeros(4, 16))
        self.token = nn.Parameter(torch.zeros(1, 4, 1))
        self.rnn = nn.GRU(4, 5, bidirectional=True)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.up(self.line(self.norm(x)))
        y = self.slope(self.wide(y)) * self.gamma + self.place
        y = torch.cat([self.token.expand(len(y), -1, -1), y], 2)
        return {"sequence": self.rnn(y.permute(2, 0, 1))[0], "early": y}


def test_kinds_of_layers() -> None:
    module = Kinds()
    graph = graph_of(module, torch.zeros(2, 4, 8))
    place = {node.name: node.op for node in graph.nodes if node.parameters}
    assert place == {
        "norm.weight": "group_norm",
        "line.weight": "sep_conv",
        "line.bias": "bias",
        "up.weight": "conv_transpose",
        "up.bias": "bias",
        "wide.weight": "dil_conv",
        "slope.weight": "scale",
        "gamma": "scale",
        "place": "pos_enc",
        "token": "raw",
        "rnn.weight_ih_l0": "recurrent",
        "rnn.weight_ih_l0_reverse": "recurrent",
    }
    assert dict(graph.unplaced) == dict.fromkeys(["unused.weight", "unused.bias"], "the forward pass does not use it")
    assert {graph.nodes[index].op for index in graph.outputs} == {"recurrent", "concat"}
    assert [node.op for node in graph.nodes if not node.parameters] == ["input", "sum", "concat"]
    with pytest.raises(ValueError, match="2 parameters have no place"):
        graph_of(module, torch.zeros(2, 4, 8), strict=True)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_networks(kind: Any, both: bool) -> None:
    module = kind(3, 4, num_layers=2, bidirectional=both)
    graph = graph_of(module, torch.zeros(7, 2, 3))
    assert graph.count("recurrent") == (4 if both else 2)
    assert all_placed(module, graph)
    matrices = sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)
    assert graph.macs == 14 * matrices
    packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(7, 2, 3), torch.tensor([7, 3]))
    unpacked = graph_of(module, (packed,))
    assert unpacked.count("recurrent") == graph.count("recurrent")


@pytest.mark.parametrize("wrap", ["parametrization", "hook", "spectral", "prune"])
def test_weights_that_are_computed(wrap: str) -> None:
    layer = nn.Conv2d(2, 3, 3)
    if wrap == "parametrization":
        layer = nn.utils.parametrizations.weight_norm(layer)
    elif wrap == "hook":
        with pytest.warns(FutureWarning):
            layer = nn.utils.weight_norm(layer)
    elif wrap == "spectral":
        layer = nn.utils.spectral_norm(layer)
    else:
        import torch.nn.utils.prune as prune

        layer = prune.l1_unstructured(layer, "weight", amount=1)
    graph = graph_of(layer, torch.zeros(1, 2, 8, 8))
    assert ops(graph) == ["input", "conv", "bias"]
    assert all_placed(layer, graph)
    assert graph.nodes[1].shape == (3, 2, 3, 3)


class Gate(nn.Module):
    def __init__(self, squeeze: str) -> None:
        super().__init__()
        self.stem, self.down, self.up = nn.Conv2d(3, 8, 1), nn.Linear(8, 2), nn.Linear(2, 8)
        self.squeeze = squeeze

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        if self.squeeze == "adaptive":
            s = F.adaptive_avg_pool2d(x, 1).flatten(1)
        elif self.squeeze == "flat":
            s = x.reshape(len(x), 8, -1).mean(2)
        elif self.squeeze == "window":
            s = F.avg_pool2d(x, x.shape[-1]).flatten(1)
        elif self.squeeze == "twice":
            s = x.mean(3).mean(2)
        elif self.squeeze == "local":
            s = x[:, :, 0, 0]
        else:
            s = x.mean((2, 3))
        s = self.up(self.down(s).relu())
        s = s if self.squeeze == "open" else torch.sigmoid(s)
        return x * s[..., None, None]


@pytest.mark.parametrize("squeeze", ["mean", "adaptive", "flat", "window", "twice"])
def test_squeeze_and_excitation_is_known_by_its_structure(squeeze: str) -> None:
    graph = graph_of(Gate(squeeze), torch.zeros(1, 3, 8, 8))
    assert ops(graph) == ["input", "conv", "bias", "conv", "bias", "conv", "bias", "cse"]
    assert graph.edges == ((0, 1), (1, 2), (2, 3), (2, 7), (3, 4), (4, 5), (5, 6), (6, 7))


@pytest.mark.parametrize("squeeze", ["open", "local"])
def test_other_products_are_no_squeeze_and_excitation(squeeze: str) -> None:
    graph = graph_of(Gate(squeeze), torch.zeros(1, 3, 8, 8))
    assert graph.count("cse") == 0
    assert graph.count("mul") == 1
    assert graph.count("glob_avg") == (squeeze == "open")


class Attention(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mix = nn.Linear(2, 2) if how == "talking" else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.how == "fused":
            y = F.scaled_dot_product_attention(q, k, v)
        elif self.how == "einsum":
            y = torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v)
        elif self.how == "linear":
            y = q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v)
        else:
            scores = q @ k.transpose(-2, -1) / 2
            if self.mix is not None:
                scores = self.mix(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            y = F.dropout(scores.softmax(-1), 0.1) @ v
        return x + self.out(y.transpose(1, 2).reshape(n, t, 8))


@pytest.mark.parametrize("how", ["fused", "einsum", "written", "talking", "linear"])
def test_attention_in_all_forms(how: str) -> None:
    module = Attention(how)
    graph = graph_of(module, torch.zeros(2, 5, 8))
    assert all_placed(module, graph)
    if how == "linear":
        assert (graph.count("msa"), graph.count("matmul"), graph.count("sum")) == (0, 2, 1)
        return
    assert (graph.count("msa"), graph.count("matmul"), graph.count("sum")) == (1, 0, 1)
    attention = next(node for node in graph.nodes if node.op == "msa")
    assert attention.macs == 2 * 2 * (5 * 5 * 4) * 2
    assert ops(graph)[-3:] == ["conv", "bias", "sum"]


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_multi_head_attention_module(weights: bool, training: bool) -> None:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=6)
            self.own = nn.MultiheadAttention(8, 2, add_bias_kv=True)

        def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
            x = self.attention(x, memory, memory, need_weights=weights)[0]
            return self.own(x, x, x, need_weights=weights)[0]

    module = Cross().train(training)
    graph = graph_of(module, (torch.zeros(2, 3, 8), torch.zeros(2, 5, 6)))
    assert all_placed(module, graph)
    assert graph.count("msa") == 2
    assert len(graph.inputs) == 2
    assert ops(graph)[-1] == "bias"


def test_normalizations_that_are_written_out() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(4, 1, 1)), nn.Parameter(torch.zeros(4, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            u = x.mean(1, keepdim=True)
            return self.weight * ((x - u) / ((x - u).pow(2).mean(1, keepdim=True) + 1e-6).sqrt()) + self.bias

    assert ops(graph_of(nn.Sequential(nn.Linear(4, 4), Root()), torch.zeros(1, 3, 4)))[-1] == "rms_norm"
    graph = graph_of(nn.Sequential(nn.Conv2d(3, 4, 1), Layer()), torch.zeros(1, 3, 4, 4))
    assert ops(graph) == ["input", "conv", "bias", "ln"]
    assert graph.nodes[3].parameters == ("1.weight", "1.bias")


def test_views_and_changes_in_place_carry_on() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(4, 4, bias=False) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.zeros(len(x), 12)
            out[:, :4] = self.a(x)
            out[:, 4:8].copy_(self.b(x))
            out.narrow(1, 8, 4).copy_(self.c(x))
            return out

    graph = graph_of(Writes(), torch.zeros(2, 4))
    assert [graph.nodes[index].name for index in graph.outputs] == ["a.weight", "b.weight", "c.weight"]


def test_equal_twice_and_for_a_copy_without_weights() -> None:
    module = Kinds()
    first, second = graph_of(module, torch.zeros(2, 4, 8)), graph_of(module, torch.zeros(2, 4, 8))
    bare = graph_of(copy.deepcopy(module).to("meta"), torch.zeros(2, 4, 8))
    assert first == second == bare
    assert first.key == second.key == bare.key


@pytest.mark.parametrize("compiled", ["script", "trace"])
def test_torchscript_is_run_for_real_and_seen_whole(compiled: str) -> None:
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.zeros(1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.script(plain) if compiled == "script" else torch.jit.trace(plain, x)
    graph = graph_of(module, x)
    assert graph.method == "real"
    assert not graph.unplaced
    assert [node.op for node in graph.nodes] == [node.op for node in graph_of(plain, x).nodes]
    assert [node.calls for node in graph.nodes] == [1] * len(graph.nodes)
    assert graph.macs == graph_of(plain, x).macs


def test_a_dataclass_with_slots_is_an_output_like_any_other() -> None:
    @dataclass(slots=True)
    class Out:
        scores: torch.Tensor
        hidden: torch.Tensor

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> Out:
            hidden = self.a(x)
            return Out(self.b(hidden), hidden)

    assert not graph_of(Net(), torch.zeros(1, 3)).unplaced


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: self.b(self.a(row).relu()))(x)


def test_layers_inside_vmap_are_those_outside() -> None:
    graph = graph_of(Mapped(), torch.zeros(5, 3))
    plain = graph_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.zeros(5, 3))
    assert ops(graph) == ops(plain)
    assert graph.edges == plain.edges
    assert graph.macs == plain.macs == 5 * (12 + 8)
    assert all_placed(Mapped(), graph)
