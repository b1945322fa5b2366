"""Published attention against an oracle: rows of q, k, p and v rounded one by one, gradients by position."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trivet.precision import PrecisionController, PrecisionSchedule, quantize_
from trivet.precision.inject import quantized_sites
from trivet.precision.noise import hashed_noise, stream_offset

BATCH, HEADS, LENGTH, WIDTH = 3, 2, 5, 8


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v)


def rounded(x: np.ndarray, axes: tuple[int, ...], bits: int, noise: np.ndarray | float = 0.0) -> np.ndarray:
    """The published formula in double precision, with one range over `axes`."""
    low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
    scale = np.maximum((high - low) / (2**bits - 1), 1e-8)
    return np.rint(np.clip((x - low) / scale + noise, 0, 2**bits - 1)) * scale + low


def assert_close_but_for_ties(got: torch.Tensor, expected: np.ndarray, step: float) -> None:
    """Equal to 1e-6, but for the rare element that other arithmetic rounds to the neighboring level."""
    difference = np.abs(got.detach().double().numpy() - expected)
    assert difference.max() <= step
    assert (difference > 2e-6 * max(1.0, float(np.abs(expected).max()))).mean() <= 0.02


def test_published_attention_forward_and_backward() -> None:
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    model = quantize_(Attention(), quantizer="published")
    ctl = PrecisionController(model, PrecisionSchedule.static(6, total_steps=4), grad_bits=8, seed=3)
    y = model(*leaves)
    y.backward(grad)

    q_hat, k_hat, v_hat = (rounded(x.double().numpy(), (-1,), 6) for x in (q, k, v))
    scores = q_hat @ k_hat.swapaxes(-1, -2) / WIDTH**0.5
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    p_hat = rounded(p, (-1,), 6)
    assert_close_but_for_ties(y, p_hat @ v_hat, 0.1)

    sites = {site.label: site for site in quantized_sites(model)}

    def noise(label: str, shape: tuple[int, ...]) -> np.ndarray:
        site = sites[label]
        start = stream_offset(site.state.key_value, site.salt, 0)
        return hashed_noise(start + torch.arange(int(np.prod(shape)))).double().numpy().reshape(shape)

    g = rounded(grad.double().numpy(), (0, -1), 8, noise("pv", tuple(grad.shape)))
    dp = g @ v_hat.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / WIDTH**0.5
    s = rounded(ds, (0, -1), 8, noise("qk", ds.shape))
    step = 2 * float(np.abs(ds).max()) / 255 * float(np.abs(k_hat).max())
    for leaf, expected in zip(leaves, (s @ k_hat, s.swapaxes(-1, -2) @ q_hat, p_hat.swapaxes(-1, -2) @ g), strict=True):
        assert leaf.grad is not None
        assert_close_but_for_ties(leaf.grad, expected, 4 * step)
    assert {label: site.bits for label, site in sites.items()} == {"qk": (6, 6, 8), "pv": (6, 6, 8)}
    assert [row.calls for row in ctl.report()] == [1, 1]


def test_published_multi_head_attention_rounds_every_product() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(3, 5, 8)
    expected = layer(x, x, x)[0].detach()
    quantize_(layer, quantizer="published")
    ctl = PrecisionController(layer, PrecisionSchedule.static(8, total_steps=4), grad_bits=8)
    y = layer(x, x, x)[0]
    y.square().mean().backward()
    error = float((y.detach() - expected).norm() / expected.norm())
    assert 1e-4 < error < 0.05
    assert {row.name.rpartition(":")[2]: row.calls for row in ctl.report()} == {
        "in_proj": 1,
        "qk": 1,
        "pv": 1,
        "out_proj": 1,
    }
