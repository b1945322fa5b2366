"""The keyed noise: exact distribution, independence, reproducibility."""

from __future__ import annotations

import pytest
import torch

from trivet.precision.noise import _ROUNDS, PERIOD, hashed_noise, layer_salt, noise_like, stream_key, stream_offset


def test_every_value_once_a_period() -> None:
    noise = hashed_noise(torch.arange(PERIOD)).double()
    assert noise.unique().numel() == PERIOD
    assert noise.mean() == 0
    assert noise.abs().max() < 0.5
    assert noise.var() == pytest.approx(1 / 12, rel=1e-6)


def test_neighbors_are_uncorrelated_and_the_spectrum_is_flat() -> None:
    noise = hashed_noise(torch.arange(PERIOD)).double() * 12**0.5
    for lag in (1, 2, 3, 4, 8, 16, 32, 64, 256, 1024, 4096):
        assert abs(float((noise * noise.roll(lag)).mean())) < 5 / PERIOD**0.5, lag
    assert float(torch.fft.rfft(noise).abs()[1:].max()) / PERIOD**0.5 < 4.5


def test_neighbors_fill_the_plane_evenly() -> None:
    """Pairs at distances that tensors have (a row, a channel, an image) fall into 64 × 64 cells as independent ones."""
    cells = ((hashed_noise(torch.arange(PERIOD)).double() + 0.5) * 64).long()
    expected = PERIOD / 4096
    for lag in (1, 2, 16, 32, 1024, 16384):
        counts = torch.bincount(cells * 64 + cells.roll(lag), minlength=4096).double()
        deviation = float(((counts - expected) ** 2 / expected).sum())
        assert abs(deviation - 4095) < 5 * (2 * 4095) ** 0.5, lag


def test_every_input_bit_moves_the_output() -> None:
    noise = hashed_noise(torch.arange(PERIOD)).double()
    for bit in range(21):
        moved = (noise[torch.arange(PERIOD) ^ (1 << bit)] - noise).abs()
        assert float(moved.mean()) == pytest.approx(1 / 3, abs=0.01), bit  # as of two independent numbers


def test_32_bit_arithmetic_does_not_overflow() -> None:
    start = 2**21 - 5
    short = hashed_noise(torch.arange(start, start + 10, dtype=torch.int32))
    assert torch.equal(short, hashed_noise(torch.arange(start, start + 10)))
    assert max(factor for factor, _ in _ROUNDS) * (PERIOD - 1) + 40503 < 2**31


def test_keys_decide_the_offset() -> None:
    salt = layer_salt("conv1")
    offsets = {
        stream_offset(stream_key(seed, step, rank), salt, call)
        for seed in range(3)
        for step in range(50)
        for rank in range(3)
        for call in range(3)
    }
    assert len(offsets) > 1345
    assert all(0 <= offset < PERIOD for offset in offsets)
    assert layer_salt("conv1") != layer_salt("conv2")


@pytest.mark.parametrize("offset", [0, 1, PERIOD - 3])
def test_table_and_hash_agree(offset: int) -> None:
    for shape in ((7,), (3, 5), (2, 3, 4, 5)):
        x = torch.zeros(shape)
        torch.testing.assert_close(noise_like(x, offset), noise_like(x, torch.tensor(offset)), rtol=0, atol=0)


def test_same_noise_in_the_order_of_memory() -> None:
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    noise = noise_like(x, 17)
    assert noise.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(noise.permute(0, 2, 3, 1).flatten(), noise_like(torch.zeros(120), 17), rtol=0, atol=0)


def test_global_generator_is_not_touched() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    noise_like(torch.zeros(100), 3)
    assert torch.equal(before, torch.get_rng_state())


def test_rounding_is_unbiased() -> None:
    value = torch.full((200_000,), 0.3)
    mean = float((value + noise_like(value, 4242)).round().mean())
    assert mean == pytest.approx(0.3, abs=5 * (0.21 / 200_000) ** 0.5)
