"""The weight gradient of a convolution by shifted products, against the same sum in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.grad import conv2d_weight

from trivet.precision import shifted
from trivet.precision.codes import Operand
from trivet.precision.convproducts import ConvProducts
from trivet.precision.shifted import shifted_product, shifted_weight, shifts

LAST = torch.channels_last


def codes(shape: tuple[int, ...], zero: int, *, unsigned: bool, seed: int) -> Operand:
    low, dtype = (0, torch.uint8) if unsigned else (-128, torch.int8)
    drawn = torch.randint(low, low + 256, shape, generator=torch.Generator().manual_seed(seed))
    return Operand(drawn.to(dtype).contiguous(memory_format=LAST), 0.25, zero + 128 * unsigned)


def exact(g: Operand, x: Operand, kernel: tuple[int, int], padding: tuple[int, int]) -> torch.Tensor:
    """The gradient from whole numbers in float64: what lies outside an image is exactly zero."""
    size = (g.data.shape[1], x.data.shape[1], *kernel)
    numbers = [part.numbers(torch.float64) for part in (x, g)]
    return conv2d_weight(numbers[0], size, numbers[1], padding=padding)


@settings(max_examples=60, deadline=None)
@given(
    images=st.integers(1, 5),
    channels=st.tuples(st.sampled_from([1, 3, 4, 8, 16]), st.sampled_from([1, 2, 8])),
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    zeros=st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
    unsigned=st.booleans(),
    part=st.sampled_from([1, 200, 2**20]),
    thin=st.sampled_from([0, 1000]),
    longest=st.sampled_from([50, 2**17 - 1]),
)
def test_equals_the_sum_in_float64(
    images, channels, size, kernel, padding, zeros, unsigned, part, thin, longest
) -> None:
    padding = tuple(min(pad, length - 1) for pad, length in zip(padding, kernel, strict=True))
    inputs, outputs = channels
    result = [size[i] + 2 * padding[i] - kernel[i] + 1 for i in (0, 1)]
    x = codes((images, inputs, *size), zeros[0], unsigned=unsigned, seed=1)
    g = codes((images, outputs, *result), zeros[1], unsigned=not unsigned, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_PART_BYTES", part), ("_THIN", thin), ("LONGEST_SUM", longest)):
            patch.setattr(shifted, name, value)
        found = shifted_weight(g, x, kernel, padding)
    expected = exact(g, x, kernel, padding) * 0.0625
    # float32 holds the sums before the zeros are taken off, of at most this many codes of size 128.
    limit = 2**-23 * images * result[0] * result[1] * 128 * 255 * 0.0625
    assert found.shape == expected.shape
    assert float((found.double() - expected).abs().max()) <= limit


def test_whole_numbers_are_exact_over_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shifted, "_PART_BYTES", 5000)
    x = codes((7, 16, 12, 10), 0, unsigned=False, seed=3)
    g = codes((7, 8, 12, 10), 0, unsigned=False, seed=4)
    total, g_sums, x_sums = shifted_product(g.data, x.data, (3, 3), (1, 1), 0)
    expected = exact(g, x, (3, 3), (1, 1)).permute(2, 0, 3, 1).reshape(3, 8, 48)
    assert total.dtype == torch.int32
    assert torch.equal(total.double(), expected)
    assert torch.equal(g_sums.double(), g.data.double().sum((0, 2, 3)))
    ones = g._replace(data=torch.ones_like(g.data))
    assert torch.equal(x_sums.double(), exact(ones, x, (3, 3), (1, 1)).permute(2, 0, 3, 1).reshape(3, 8, 48)[:, 0])


def test_where_it_is_taken() -> None:
    """Where channels fill a matrix, padding is a small part, and the stride is 1."""
    formats, threads = ("int8", "bf16", "fp32"), torch.get_num_threads()

    def kernels(channels: int, size: int, stride: tuple[int, int] = (1, 1), on: int = 1) -> list[str]:
        torch.set_num_threads(on)
        shape, weight = torch.Size((8, channels, size, size)), torch.Size((channels, channels, 3, 3))
        return ConvProducts(stride, (1, 1)).kernels("weight", formats, shape, weight, torch.device("cpu"))

    try:
        assert kernels(64, 32) == kernels(64, 32, on=2) == ["int8-shifted", "int8-matmul", "bf16", "fp32"]
        assert kernels(32, 32) == ["int8-shifted", "int8-matmul", "bf16", "fp32"]
        assert kernels(32, 32, on=2) == ["bf16", "int8-shifted", "int8-matmul", "fp32"]
        assert kernels(16, 32) == ["bf16", "int8-shifted", "int8-matmul", "fp32"]
        assert kernels(64, 4) == kernels(64, 32, stride=(2, 2)) == ["int8-matmul", "bf16", "fp32"]
    finally:
        torch.set_num_threads(threads)
    assert not shifts((3, 3), (1, 1), (3, 1))
