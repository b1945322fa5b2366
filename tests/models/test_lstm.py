from __future__ import annotations

import math

import pytest
import torch

from trivet.models import LSTMLanguageModel


def test_against_the_equations_written_out() -> None:
    """One layer, word by word, in float64."""
    torch.manual_seed(0)
    model = LSTMLanguageModel(7, hidden=3, embedding=2, dropout=0.5).double().eval()
    words = torch.tensor([[1, 4, 6, 0]])
    logits, (last_h, last_c) = model(words)
    h = c = torch.zeros(3, dtype=torch.float64)
    for place, word in enumerate(words[0]):
        x = model.embedding.weight[word]
        lstm = model.lstm
        gates = lstm.weight_ih_l0 @ x + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ h + lstm.bias_hh_l0
        i, f, g, o = gates.view(4, 3)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        torch.testing.assert_close(logits[0, place], model.output.weight @ h + model.output.bias)
    torch.testing.assert_close(last_h[0, 0], h)
    torch.testing.assert_close(last_c[0, 0], c)


def test_two_calls_with_the_state_are_one() -> None:
    model = LSTMLanguageModel(9, hidden=4, layers=2).eval()
    words = torch.randint(9, (3, 8))
    whole, _ = model(words)
    first, state = model(words[:, :5])
    second, _ = model(words[:, 5:], state)
    torch.testing.assert_close(torch.cat((first, second), 1), whole)


def test_initial_parameters_and_sizes() -> None:
    model = LSTMLanguageModel(1_000)
    count = sum(p.numel() for p in model.parameters())
    assert count == 2 * 800 * 1_000 + 1_000 + 4 * 800 * (800 + 800 + 2)
    for weight in (model.embedding.weight, model.output.weight):
        assert weight.abs().max() <= 0.1
        assert weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.01)
    assert not model.output.bias.any()


def test_tied_weights_are_one_parameter() -> None:
    model = LSTMLanguageModel(10, hidden=4, tied=True)
    assert model.output.weight is model.embedding.weight
    assert [name for name, _ in model.named_parameters() if "weight" in name and "lstm" not in name] == [
        "embedding.weight"
    ]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden": 0}, "`hidden=0` must be ≥ 1"),
        ({"layers": 0}, "`layers=0`"),
        ({"dropout": 1.0}, "`dropout=1.0`"),
        ({"hidden": 4, "embedding": 3, "tied": True}, "`embedding=3` equal to `hidden=4`"),
    ],
)
def test_refused_sizes(sizes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LSTMLanguageModel(10, **sizes)


def test_under_autocast_on_a_cpu() -> None:
    """torch alone raises here on CPUs without a bfloat16 kernel for LSTMs."""
    model = LSTMLanguageModel(9, hidden=4)
    with torch.autocast("cpu", torch.bfloat16):
        logits, state = model(torch.zeros(2, 3, dtype=torch.int64))
        logits, _ = model(torch.zeros(2, 3, dtype=torch.int64), state)
    assert (logits.dtype, state[0].dtype) == (torch.bfloat16, torch.float32)
    logits.float().sum().backward()
