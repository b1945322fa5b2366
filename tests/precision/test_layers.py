"""Every kind of layer: exact at 32 bits, close at 16, counted in closed form, unchanged from outside, compiled once."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from trivet.precision import (
    LayerCost,
    PrecisionController,
    PrecisionSchedule,
    dequantize_,
    layer_macs,
    quantize_,
    training_bitops,
)
from trivet.precision.inject import default_filter, quantized_sites


class Functional(nn.Module):
    """A module that multiplies by calling functions."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.scaled_dot_product_attention(self.query(x), functional.linear(x, self.key.weight), x)
        y = torch.bmm(y, x.transpose(1, 2)) @ (x @ self.weight.t())
        return y + torch.einsum("bij,bkj,->bik", x, x, x.sum()).sum() + torch.einsum("bij,kj->bik", x, self.weight)


Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


def cases() -> dict[str, Case]:
    torch.manual_seed(0)
    x, image, tokens = torch.randn(5, 3, 8), torch.randn(5, 4, 6, 6), torch.randint(0, 7, (5, 3))
    inner = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))
    return {
        "conv1d": (nn.Conv1d(3, 4, 3, padding="same"), (x,)),
        "conv3d": (nn.Conv3d(2, 3, 2), (torch.randn(5, 2, 3, 3, 3),)),
        "transposed 1d": (nn.ConvTranspose1d(3, 4, 3), (x,)),
        "transposed 2d": (nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2, output_padding=1), (image,)),
        "transposed 3d": (nn.ConvTranspose3d(4, 2, 2), (image[:, :, None],)),
        "bilinear": (nn.Bilinear(8, 8, 3), (x, x.flip(0))),
        "lstm": (nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True), (x,)),
        "gru": (nn.GRU(8, 6, 2, bias=False, batch_first=True), (x,)),
        "rnn": (nn.RNN(8, 6, nonlinearity="relu", batch_first=True), (x,)),
        "lstm cell": (nn.LSTMCell(8, 6), (x[:, 0],)),
        "gru cell": (nn.GRUCell(8, 6), (x[:, 0],)),
        "rnn cell": (nn.RNNCell(8, 6), (x[:, 0],)),
        "attention": (nn.MultiheadAttention(8, 2, batch_first=True), (x, x, x)),
        "attention of others": (
            nn.MultiheadAttention(8, 2, kdim=4, vdim=4, batch_first=True, add_bias_kv=True),
            (x, torch.randn(5, 4, 4), torch.randn(5, 4, 4)),
        ),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (x,)),
        "functional": (Functional(), (x,)),
        "embedding": (nn.Embedding(7, 4), (tokens,)),
        "bag": (nn.EmbeddingBag(7, 4), (tokens,)),
        "parametrized": (inner, (x,)),
    }


KINDS = list(cases())


def first(y: Any) -> torch.Tensor:
    return y[0] if isinstance(y, tuple) else y


def everything(module: nn.Module, name: str) -> bool:
    return True


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    return cases()[request.param]


def run(model: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    y = first(model(*args))
    y.square().mean().backward()
    return y.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_exact_at_32_bits_and_close_at_16(case: Case) -> None:
    model, args = case
    expected, grads = run(model, args)
    quantize_(model, everything)
    PrecisionController(model, PrecisionSchedule.static(32, total_steps=9), grad_bits=32)
    y, got = run(model, args)
    assert torch.equal(y, expected)
    assert all(torch.equal(a, b) for a, b in zip(got, grads, strict=True))
    PrecisionController(model, PrecisionSchedule.static(16, total_steps=9), grad_bits=16)
    y, got = run(model, args)
    torch.testing.assert_close(y, expected, rtol=1e-2, atol=1e-3)
    largest = max(float(g.abs().max()) for g in grads)
    assert all(float((a - b).abs().max()) < 2e-3 * largest for a, b in zip(got, grads, strict=True))
    PrecisionController(model, PrecisionSchedule.static(3, total_steps=9), grad_bits=8)
    y, got = run(model, args)
    assert float((y - expected).norm() / expected.norm()) > 1e-3
    assert all(g.isfinite().all() for g in got)


def test_counted_as_the_closed_form_says(case: Case) -> None:
    model, args = case
    layers = layer_macs(model, args)
    names = [layer.name for layer in layers]
    quantize_(model, everything)
    assert [layer.macs for layer in layer_macs(model, args)] == [layer.macs for layer in layers]
    schedule = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=6)
    ctl = PrecisionController(model, schedule, grad_bits=7)
    for _ in range(6):
        run(model, args)
        ctl.step()
    quantised = [LayerCost(name=a.name, kind=a.kind, macs=a.macs, quantised=True) for a in layers]
    assert ctl.cost == training_bitops(quantised, schedule, grad_bits=7, batch_size=5)
    rows = {row.name: row for row in ctl.report()}
    assert set(names) <= set(rows)
    for row in rows.values():
        assert row.calls > 0
        assert row.weight_error is not None or row.activation_error is not None
        if names and not row.name.endswith(":hh"):  # embeddings round no activation; a cell's first state is zero
            assert 0 < (row.activation_error or 0) < 0.5
            assert 0 < (row.gradient_error or 0) < 0.5


def test_nothing_changes_from_outside(case: Case) -> None:
    model, args = case
    types, keys, text = [type(m) for m in model.modules()], list(model.state_dict()), repr(model)
    before = [dict(vars(m)) for m in model.modules()]
    seen: list[str] = []
    handle = model.register_forward_hook(lambda m, i, o: seen.append("after"))
    quantize_(model, everything)
    assert ([type(m) for m in model.modules()], list(model.state_dict()), repr(model)) == (types, keys, text)
    run(model, args)
    assert seen == ["after"]
    handle.remove()
    twins = [copy.deepcopy(model)]
    if "Parametrized" not in type(model).__name__:  # which torch refuses to pickle
        twins.append(pickle.loads(pickle.dumps(model)))
    model.eval()
    for twin in twins:
        twin.eval()
        with torch.no_grad():
            assert torch.equal(first(model(*args)), first(twin(*args)))
        assert quantized_sites(twin)[0].state is not quantized_sites(model)[0].state
    dequantize_(model.train())
    for m, old in zip(model.modules(), before, strict=True):
        assert vars(m).keys() == old.keys()


def test_compiled_once_and_equal(case: Case) -> None:
    model, args = case
    if isinstance(model, nn.RNNBase):
        pytest.skip("torch.compile leaves nn.LSTM, nn.GRU and nn.RNN to eager code")
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(1)
        return graph.forward

    torch._dynamo.reset()
    quantize_(model, everything)
    ctl = PrecisionController(
        model, PrecisionSchedule.named("LR", q_min=2, q_max=12, num_cycles=1, total_steps=12), grad_bits=8
    )
    expected = run(model, args)[0]
    fast = torch.compile(model, backend=backend, fullgraph=True)
    assert torch.equal(first(fast(*args)), expected)
    for _ in range(11):
        first(fast(*args)).sum().backward()
        ctl.step()
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_weight_norm_of_old() -> None:
    torch.manual_seed(0)
    layer = torch.nn.utils.weight_norm(nn.Conv1d(3, 4, 3))
    x = torch.randn(2, 3, 8)
    expected = layer(x)
    quantize_(layer)
    assert not torch.equal(layer(x), expected)
    layer(x).sum().backward()
    assert layer.weight_g.grad is not None


def test_embeddings_are_left_alone_by_default() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    usual = default_filter(model)
    quantize_(model, lambda module, name: usual(module, name) or isinstance(module, nn.Embedding))
    tokens = torch.tensor([1, 2])
    row = model[0](tokens)
    assert not torch.equal(row, model[0].weight[tokens])
    assert float((row - model[0].weight[tokens]).detach().abs().max()) < 0.02
    row.sum().backward()
    assert model[0].weight.grad is not None
    assert model[0].weight.grad.sum() == 8


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("both", [False, True])
def test_packed_sequences(kind: str, both: bool) -> None:
    torch.manual_seed(0)
    layer = getattr(nn, kind)(4, 5, 2, bidirectional=both)
    packed = nn.utils.rnn.pack_sequence([torch.randn(n, 4) for n in (6, 4, 4, 1)])
    expected, state = layer(packed)
    quantize_(layer)
    PrecisionController(layer, PrecisionSchedule.static(20, total_steps=3), grad_bits=20)
    got, ended = layer(packed)
    torch.testing.assert_close(got.data, expected.data, rtol=1e-3, atol=1e-4)
    for a, b in zip(ended if kind == "LSTM" else (ended,), state if kind == "LSTM" else (state,), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_lstm_with_projection_dropout_and_no_batch() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(4, 6, 2, proj_size=3)
    x = torch.randn(5, 4)
    expected, _ = layer(x)
    quantize_(layer)
    PrecisionController(layer, PrecisionSchedule.static(20, total_steps=3), grad_bits=20)
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-3, atol=1e-4)
    wild = quantize_(nn.LSTM(4, 6, 2, dropout=0.5))
    assert not torch.equal(wild(x)[0], wild(x)[0])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_attention_masks(mask: str, training: bool) -> None:
    torch.manual_seed(0)

    class Masked(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            m = {"bool": torch.rand(4, 6) > 0.4, "float": torch.randn(4, 6)}.get(mask)
            return functional.scaled_dot_product_attention(
                q, k, k, attn_mask=m, is_causal=mask == "causal", scale=0.3, enable_gqa=True
            )

    q, k = torch.randn(2, 4, 4, 8, requires_grad=True), torch.randn(2, 2, 6, 8)
    model = Masked().train(training)
    torch.manual_seed(1)
    expected = model(q, k)
    quantize_(model)
    PrecisionController(model, PrecisionSchedule.static(20, total_steps=3), grad_bits=20)
    torch.manual_seed(1)
    torch.testing.assert_close(model(q, k), expected, rtol=1e-3, atol=1e-4)


def test_encoder_is_quantized_in_evaluation() -> None:
    """torch would hand the layer to one fused kernel, past everything inside it."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    x = torch.randn(5, 3, 8)
    padding = torch.tensor([[False, False, True]] * 5)
    with torch.no_grad():
        expected = model(x)
        quantize_(model)
        ctl = PrecisionController(model, PrecisionSchedule.static(8, total_steps=3))
        with ctl.at(2):
            assert float((model(x) - expected).abs().max()) > 0.05
        with ctl.at(32):
            torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
        assert model(x, src_key_padding_mask=padding).isfinite().all()


def test_constants_computed_without_gradients_stay_exact() -> None:
    class Angles(nn.Module):
        """Rotary positions: a product under no_grad, of numbers that rounding would spoil."""

        @torch.no_grad()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.arange(400.0)[:, None] @ torch.tensor([[1.0, 0.01]])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.angles, self.inner = Angles(), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) @ self.angles(x).T

    model = quantize_(Model(), everything)
    x = torch.randn(3, 2)
    model(x).sum().backward()
    exact = torch.arange(400.0)[:, None] @ torch.tensor([[1.0, 0.01]])
    assert torch.equal(model.angles(x), exact)
    with torch.no_grad():
        assert torch.equal(model.eval().angles(x), exact)
