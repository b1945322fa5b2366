"""PredNet against its equations, written again in numpy, loop by loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from trivet.models import PredNet
from trivet.models.prednet import Gates

Array = NDArray[np.float64]


def conv(x: Array, weight: Array, bias: Array) -> Array:
    """3 × 3, padding 1, of one image [C, H, W]."""
    _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    out = np.empty((len(weight), height, width))
    for row in range(height):
        for column in range(width):
            out[:, row, column] = np.tensordot(weight, padded[:, row : row + 3, column : column + 3], 3) + bias
    return out


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def sigmoid(x: Array, gates: str) -> Array:
    return np.clip(0.2 * x + 0.5, 0, 1) if gates == "hard" else 1 / (1 + np.exp(-x))


def reference(net: PredNet, video: Array, gates: str) -> tuple[list[Array], list[list[Array]]]:
    """Predictions and errors of each frame of one video [T, C, H, W], from the equations."""
    weights = {name: value.detach().double().numpy() for name, value in net.named_parameters()}
    count = len(net.channels)
    _, _, height, width = video.shape
    shapes = [(own, height >> layer, width >> layer) for layer, own in enumerate(net.channels)]
    r, c = [np.zeros(shape) for shape in shapes], [np.zeros(shape) for shape in shapes]
    e = [np.zeros((2 * shape[0], *shape[1:])) for shape in shapes]
    predictions, errors = [], []
    for frame in video:
        new_r, new_c = list(r), list(c)
        for layer in range(count - 1, -1, -1):
            seen = [r[layer], e[layer]]
            if layer < count - 1:
                seen.append(new_r[layer + 1].repeat(2, axis=1).repeat(2, axis=2))
            parts = conv(
                np.concatenate(seen), weights[f"cells.{layer}.conv.weight"], weights[f"cells.{layer}.conv.bias"]
            )
            i, f, o, g = np.split(parts, 4)
            if f"cells.{layer}.peephole" in weights:
                p = weights[f"cells.{layer}.peephole"]
                i, f, o = i + p[0] * c[layer], f + p[1] * c[layer], o + p[2] * c[layer]
            new_c[layer] = sigmoid(f, gates) * c[layer] + sigmoid(i, gates) * np.tanh(g)
            new_r[layer] = sigmoid(o, gates) * np.tanh(new_c[layer])
        r, c, e, target = new_r, new_c, [], frame
        for layer in range(count):
            ahat = relu(conv(r[layer], weights[f"predict.{layer}.weight"], weights[f"predict.{layer}.bias"]))
            if layer == 0:
                ahat = np.minimum(ahat, 1)
                predictions.append(ahat)
            e.append(np.concatenate([relu(ahat - target), relu(target - ahat)]))
            if layer < count - 1:
                a = relu(conv(e[layer], weights[f"target.{layer}.weight"], weights[f"target.{layer}.bias"]))
                target = a.reshape(a.shape[0], a.shape[1] // 2, 2, a.shape[2] // 2, 2).max((2, 4))
        errors.append(e)
    return predictions, errors


@pytest.mark.parametrize(("gates", "peephole"), [("hard", None), ("plain", None), ("plain", (8, 4))])
def test_every_term_is_that_of_the_equations(gates: Gates, peephole: tuple[int, int] | None) -> None:
    torch.manual_seed(0)
    net = PredNet((2, 3, 4), gates=gates, peephole=peephole).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0, 0.3)
    video = torch.rand(2, 4, 2, 8, 4, dtype=torch.float64)
    out = net(video)
    for n in range(2):
        predictions, errors = reference(net, video[n].numpy(), gates)
        np.testing.assert_allclose(out.predictions[n].detach().numpy(), np.stack(predictions), atol=1e-12)
        means = [[layer.mean() for layer in frame] for frame in errors]
        np.testing.assert_allclose(out.errors[n].detach().numpy(), means, atol=1e-12)
    assert (out.predictions > 0).any()


def test_published_numbers_of_parameters() -> None:
    with torch.device("meta"):
        counts = [
            sum(parameter.numel() for parameter in net.parameters())
            for net in (
                PredNet(),
                PredNet(gates="plain", peephole=(40, 48)),
                PredNet(gates="plain", peephole=(120, 160)),
                PredNet((3, 16, 32, 64), gates="plain", peephole=(24, 32)),
            )
        ]
    assert counts == [6_915_948, 7_054_188, 8_298_348, 794_604]


def test_a_state_that_is_carried_goes_on_where_it_stopped() -> None:
    torch.manual_seed(0)
    net, video = PredNet((1, 4, 8)), torch.rand(2, 6, 1, 8, 8)
    whole = net(video)
    first = net(video[:, :2])
    rest = net(video[:, 2:], first.state)
    torch.testing.assert_close(torch.cat((first.predictions, rest.predictions), 1), whole.predictions)
    assert not rest.state.detached().cells[0].requires_grad


def test_loss_is_half_the_absolute_error_of_all_frames_but_the_first() -> None:
    torch.manual_seed(0)
    net, video = PredNet((1, 4)), torch.rand(2, 5, 1, 8, 8)
    out = net(video)
    expected = (out.predictions[:, 1:] - video[:, 1:]).abs().mean() / 2
    torch.testing.assert_close(out.loss(), expected)
    both = out.loss((1.0, 0.1))
    torch.testing.assert_close(both, expected + 0.1 * out.errors[:, 1:, 1].mean())
    both.backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_what_cannot_be_is_refused() -> None:
    net = PredNet((1, 4, 8))
    with pytest.raises(ValueError, match=r"must be \[N, T, 1, H, W\]"):
        net(torch.rand(2, 5, 3, 8, 8))
    with pytest.raises(ValueError, match="multiples of 4"):
        net(torch.rand(1, 2, 1, 10, 8))
    with pytest.raises(ValueError, match="the first frame cannot be predicted"):
        net(torch.rand(1, 1, 1, 8, 8)).loss()
    with pytest.raises(ValueError, match="3 numbers, one a layer"):
        net(torch.rand(1, 2, 1, 8, 8)).loss((1.0,))
    with pytest.raises(ValueError, match="one positive number a layer"):
        PredNet(())
    with pytest.raises(ValueError, match="multiples of 4"):
        PredNet((1, 4, 8), peephole=(9, 8))
