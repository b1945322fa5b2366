"""Rounding and quantizers against independent slow oracles, and on awkward tensors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trivet.precision.counters import Counter
from trivet.precision.noise import noise_like
from trivet.precision.plain import channel_grid, plain_grid, plain_range, published_grid, round_plain
from trivet.precision.quantizer import (
    AffineQuantizer,
    PublishedQuantizer,
    RunningRange,
    quantize_output_gradient,
)
from trivet.precision.rounding import finite_range, make_grid, published_round, round_to_grid

CPU = torch.device("cpu")


def levels(bits: int) -> torch.Tensor:
    return torch.tensor(2.0**bits - 1)


def counter() -> Counter:
    return Counter(CPU)


def published_oracle(values: np.ndarray, low: float, high: float, bits: int, noise: np.ndarray) -> np.ndarray:
    """The published formula, element by element, in double precision."""
    top = 2**bits - 1
    scale = max((high - low) / top, 1e-8)
    out = np.empty(values.size)
    for i, (value, n) in enumerate(zip(values.ravel(), noise.ravel(), strict=True)):
        code = min(max((float(value) - low) / scale + float(n), 0.0), top)
        out[i] = round(code) * scale + low
    return out.reshape(values.shape)


def affine_oracle(values: np.ndarray, bits: int) -> np.ndarray:
    """The default formula, element by element, in double precision."""
    top = 2**bits - 1
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = (high - low) / top
    if scale == 0:
        return np.zeros_like(values)
    zero = round(-low / scale)
    codes = [min(max(round(float(value) / scale) + zero, 0), top) for value in values.ravel()]
    return (np.array(codes) - zero).reshape(values.shape) * scale


def close_but_for_ties(got: torch.Tensor, expected: np.ndarray, step: float) -> None:
    """Equal, except that a value half-way between two levels may go either way in other arithmetic."""
    difference = np.abs(got.double().numpy() - expected)
    tolerance = 1e-6 * max(1.0, float(np.abs(expected).max()))
    assert difference.max() <= step * 1.001 + tolerance
    assert (difference > tolerance).mean() <= 0.001


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 12])
def test_published_activation_and_weight_equal_the_oracle(bits: int) -> None:
    torch.manual_seed(bits)
    quantizer = PublishedQuantizer()
    x = torch.randn(6, 4, 5, 5)
    got = quantizer.activation(x, levels(bits), RunningRange(CPU, from_zero=True), counter(), mode="update")
    low, high = float(x.min()), float(x.max())
    expected = published_oracle(x.numpy(), low, high, bits, np.zeros(x.shape))
    close_but_for_ties(got, expected, (high - low) / (2**bits - 1))
    weight = torch.randn(8, 4, 3, 3)
    rows = quantizer.rows(weight, levels(bits), tuple(range(1, weight.dim())))
    for got_row, row in zip(rows, weight, strict=True):
        low, high = float(row.min()), float(row.max())
        expected = published_oracle(row.numpy(), low, high, bits, np.zeros(row.shape))
        np.testing.assert_allclose(got_row.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(("shape", "by_position"), [((16, 10), False), ((4, 3, 5, 5), False), ((4, 6, 8), True)])
def test_published_gradient_equals_the_oracle(shape: tuple[int, ...], by_position: bool) -> None:
    torch.manual_seed(0)
    y = torch.zeros(shape, requires_grad=True)
    grad = torch.randn(shape)
    out = quantize_output_gradient(y.clone(), levels(8), 99, counter(), published=True, by_position=by_position)
    out.backward(grad)
    noise = noise_like(grad, 99).numpy()
    expected = np.empty(shape)
    places = range(shape[1]) if by_position else [slice(None)]
    for place in places:
        part = grad[:, place].numpy()
        low, high = float(part.min()), float(part.max())
        expected[:, place] = published_oracle(part, low, high, 8, noise[:, place])
    assert y.grad is not None
    close_but_for_ties(y.grad, expected, float(grad.max() - grad.min()) / 255)


def test_published_running_range() -> None:
    ranges = RunningRange(CPU, from_zero=True)
    quantizer = PublishedQuantizer()
    x = torch.tensor([-1.0, 3.0])
    # Evaluated before training, the published range is (0, 0), so everything collapses to about zero.
    assert quantizer.activation(x, levels(8), ranges, counter(), mode="running").abs().max() < 1e-5
    quantizer.activation(x, levels(8), ranges, counter(), mode="update")
    quantizer.activation(2 * x, levels(8), ranges, counter(), mode="update")
    np.testing.assert_allclose(ranges.bounds.numpy(), [0.9 * -0.1 + 0.1 * -2, 0.9 * 0.3 + 0.1 * 6], rtol=1e-6)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_default_equals_oracle_and_torch(bits: int) -> None:
    torch.manual_seed(bits)
    for x in (torch.randn(1000), torch.randn(1000).relu(), -torch.rand(1000), 1e-12 * torch.randn(1000)):
        grid = make_grid(*finite_range(x)[:2], levels(bits))
        got = round_to_grid(x, grid)
        close_but_for_ties(got / x.abs().max(), affine_oracle(x.numpy(), bits) / float(x.abs().max()), 2.0)
        if float(grid.scale) > 1e-6:
            zero = int(-grid.first)
            theirs = torch.fake_quantize_per_tensor_affine(x, float(grid.scale), zero, 0, 2**bits - 1)
            close_but_for_ties(got, theirs.double().numpy(), float(grid.scale))


def test_default_weights_equal_torch_per_channel() -> None:
    torch.manual_seed(0)
    weight = torch.randn(16, 8, 3, 3)
    low, high, _ = finite_range(weight, (1, 2, 3))
    grid = make_grid(low, high, levels(4))
    theirs = torch.fake_quantize_per_channel_affine(
        weight, grid.scale.flatten(), (-grid.first).flatten().int(), 0, 0, 15
    )
    got = AffineQuantizer().rows(weight, levels(4), tuple(range(1, weight.dim())))
    close_but_for_ties(got, theirs.double().numpy(), float(grid.scale.max()))
    laid_out = weight.to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        AffineQuantizer().rows(laid_out, levels(4), tuple(range(1, laid_out.dim()))), got, rtol=0, atol=0
    )


floats = hnp.arrays(
    np.float32, hnp.array_shapes(max_dims=4, max_side=6), elements=st.floats(-(2.0**90), 2.0**90, width=32)
)


@given(floats, st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_properties_of_the_default(values: np.ndarray, bits: int) -> None:
    x = torch.from_numpy(values)
    low, high, bad = finite_range(x)
    grid = make_grid(low, high, levels(bits))
    y = round_to_grid(x, grid)
    assert bad is None
    assert y.unique().numel() <= 2**bits
    assert torch.equal(y[x == 0], torch.zeros_like(y[x == 0]))  # zero is exact
    scale = float(grid.scale)
    assert float((x - y).abs().max()) <= scale * 1.01 + 1e-30  # half a step, plus the rounding of the zero-point
    torch.testing.assert_close(round_to_grid(y, grid), y)  # idempotent
    order = x.flatten().argsort()
    assert (y.flatten()[order].diff() >= 0).all()  # monotone


@given(floats, st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_properties_of_the_published(values: np.ndarray, bits: int) -> None:
    x = torch.from_numpy(values)
    span = x.max() - x.min()
    y = published_round(x, x.min(), span, levels(bits))
    assert y.unique().numel() <= 2**bits
    assert float((x - y).abs().max()) <= float(span) / (2**bits - 1) * 0.51 + float(x.abs().max()) * 1e-5 + 1e-8


@pytest.mark.parametrize("bits", [3, 8, 16])
def test_constant_and_zero_tensors(bits: int) -> None:
    for value in (0.0, 2.5, -7.0, 1e-20):
        x = torch.full((4, 4), value)
        got = AffineQuantizer().rows(x, levels(bits))
        torch.testing.assert_close(got, x, rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_elements_stay_alone(value: float) -> None:
    quantizer, ranges, bad = AffineQuantizer(), RunningRange(CPU), counter()
    clean = torch.randn(4, 8)
    clean[1, 2] = 0.0
    spoiled = clean.clone()
    spoiled[1, 2] = value
    expected = quantizer.activation(clean, levels(8), RunningRange(CPU), counter(), mode="update")
    got = quantizer.activation(spoiled, levels(8), ranges, bad, mode="update")
    others = torch.ones(4, 8, dtype=torch.bool)
    others[1, 2] = False
    torch.testing.assert_close(got[others], expected[others], rtol=0, atol=0)
    torch.testing.assert_close(got[1, 2], torch.tensor(value), equal_nan=True)
    assert bad.value == 1
    assert ranges.bounds.isfinite().all()


def test_all_nan_and_non_finite_gradients() -> None:
    x = torch.full((3,), float("nan"))
    bad = counter()
    got = AffineQuantizer().activation(x, levels(8), RunningRange(CPU), bad, mode="update")
    assert got.isnan().all()
    assert bad.value == 3
    y = torch.zeros(4, requires_grad=True)
    quantize_output_gradient(y.clone(), levels(8), 0, bad, published=False, by_position=False).backward(
        torch.tensor([1.0, float("inf"), -1.0, 0.5])
    )
    assert y.grad is not None
    assert y.grad.isinf().tolist() == [False, True, False, False]  # a gradient scaler still sees the overflow
    assert bad.value == 4


def test_running_range_starts_with_the_first_batch() -> None:
    quantizer, ranges = AffineQuantizer(), RunningRange(CPU)
    x = torch.tensor([-1.0, 2.0])
    before = quantizer.activation(x, levels(2), ranges, counter(), mode="running")
    torch.testing.assert_close(before, quantizer.rows(x, levels(2)))  # nothing seen: the batch's own range
    quantizer.activation(x, levels(2), ranges, counter(), mode="update")
    assert ranges.bounds.tolist() == [-1.0, 2.0]
    quantizer.activation(2 * x, levels(2), ranges, counter(), mode="update")
    np.testing.assert_allclose(ranges.bounds.numpy(), [-1.1, 2.2], rtol=1e-6)


def test_gradients_are_straight_through() -> None:
    for quantizer in (AffineQuantizer(), PublishedQuantizer()):
        x = torch.randn(5, 6, requires_grad=True)
        quantizer.rows(x, levels(2), tuple(range(1, x.dim()))).backward(torch.full((5, 6), 2.0))
        assert x.grad is not None
        assert (x.grad == 2).all()


def test_gradient_rounding_is_unbiased_and_keyed() -> None:
    grad = torch.rand(64, 1000) * torch.tensor([1e-9]) + 3e-10
    results = []
    for offset in (5, 5, 6):
        y = torch.zeros_like(grad, requires_grad=True)
        quantize_output_gradient(y.clone(), levels(3), offset, counter(), published=False, by_position=False).backward(
            grad
        )
        assert y.grad is not None
        results.append(y.grad)
    first, again, other = results
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float(first.double().mean() / grad.double().mean()) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_ranges_are_wide_and_the_dtype_stays(dtype: torch.dtype) -> None:
    x = torch.randn(64, dtype=torch.float32).to(dtype)
    got = AffineQuantizer().rows(x, levels(8))
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), AffineQuantizer().rows(x.float(), levels(8)).double(), rtol=8e-3, atol=0)


def test_noise_is_the_only_difference_between_layouts() -> None:
    grad = torch.randn(2, 3, 4, 5)
    for layout, offset in itertools.product((torch.contiguous_format, torch.channels_last), (0, 9)):
        y = torch.zeros_like(grad, requires_grad=True)
        quantize_output_gradient(y.clone(), levels(8), offset, counter(), published=False, by_position=False).backward(
            grad.to(memory_format=layout)
        )
        assert y.grad is not None
        assert float((y.grad - grad).abs().max()) <= float(grad.max() - grad.min()) / 255 * 1.51


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_short_way_equals_the_general_one(bits: int, stochastic: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(bits)
    for i in range(20):
        x = (torch.randn(3, 4, 5, 6) + i % 5 - 2).to(dtype).contiguous(memory_format=torch.channels_last)
        noise = noise_like(x, 100 * i) if stochastic else None
        found = plain_range(x)
        assert found is not None
        grid = make_grid(*finite_range(x)[:2], levels(bits), stochastic=stochastic)
        short = plain_grid(*found, 2.0**bits - 1, double=dtype == torch.float64, stochastic=stochastic)
        assert (short.scale, short.first, short.last) == tuple(part.item() for part in grid)
        torch.testing.assert_close(round_plain(x, short, noise), round_to_grid(x, grid, noise), rtol=1e-6, atol=0)
        codes = round_plain(x, short._replace(clamp=False), noise) / short.scale
        assert short.clamp or codes.round().unique().numel() <= 2**bits


@pytest.mark.parametrize("bits", [1, 3, 8, 16])
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (3, 100_000)])
def test_the_short_published_way_equals_the_general_one(
    bits: int, stochastic: bool, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(bits)
    for x in (torch.randn(shape).to(dtype) + 0.7, torch.full(shape, 2.5, dtype=dtype), torch.zeros(shape, dtype=dtype)):
        noise = noise_like(x, 17) if stochastic else None
        expected = published_round(x, x.min(), x.max() - x.min(), levels(bits), noise)
        grid = published_grid(x.min().item(), x.max().item(), 2.0**bits - 1, double=dtype == torch.float64)
        assert torch.equal(round_plain(x, grid, noise), expected)
        own = x.clone()
        assert round_plain(own, grid, noise, out=own) is own
        assert torch.equal(own, expected)


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_short_way_for_channels_equals_the_general_one(bits: int, dtype: torch.dtype) -> None:
    torch.manual_seed(bits)
    for i in range(20):
        x = (torch.randn(6, 4, 3, 3) + i % 5 - 2).to(dtype)
        x[0], x[1] = 0.0, -3.0
        for dims in ((1, 2, 3), (0, 2, 3)):
            low, high, _ = finite_range(x, dims)
            grid = make_grid(low, high, levels(bits))
            short = channel_grid(x, dims, 2.0**bits - 1)
            assert short is not None
            assert all(torch.equal(a, b) for a, b in zip((short.scale, short.first, short.last), grid, strict=True))
            assert torch.equal(round_plain(x, short), round_to_grid(x, grid))
            assert torch.equal(AffineQuantizer().rows(x, levels(bits), dims), round_to_grid(x, grid))
    x[2, 1] = float("nan")
    assert channel_grid(x, (1, 2, 3), 7.0) is None


def test_stochastic_rounding_does_not_cut_the_ends() -> None:
    x = torch.full((200_000,), 0.3)
    x[0] = -0.81
    grid = plain_grid(*plain_range(x) or (0.0, 0.0), 7.0, stochastic=True)
    rounded = round_plain(x, grid, noise_like(x, 0))
    assert float(rounded[1:].double().mean()) == pytest.approx(0.3, rel=1e-3)


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16, 24])
@pytest.mark.parametrize("values", [[3e38, -3e38], [0.0, -3.4028234e38], [3.4028234e38, 1.0, -1.0], [3e38, 3e38]])
@pytest.mark.parametrize("mode", ["update", "current"])
def test_ranges_near_the_largest_float_stay_finite(bits: int, values: list[float], mode: str) -> None:
    x = torch.tensor(values, requires_grad=True)
    ranges = RunningRange(CPU)
    found = [
        AffineQuantizer().activation(x, levels(bits), ranges, counter(), mode=mode),
        AffineQuantizer().activation(x, levels(bits), ranges, counter(), mode="running"),
        AffineQuantizer().rows(torch.stack([x, -x]), levels(bits), (1,)),
        quantize_with_noise(x.detach(), bits),
    ]
    for y in found:
        assert torch.isfinite(y).all()
        assert (y.abs() <= 3.4028234e38).all()
    assert torch.equal(torch.sign(found[0]) * torch.sign(x), torch.sign(found[0]).abs())


def quantize_with_noise(x: torch.Tensor, bits: int) -> torch.Tensor:
    low, high, _ = finite_range(x)
    noise = noise_like(x, 1)
    return round_to_grid(x, make_grid(low, high, levels(bits), stochastic=True), noise)
