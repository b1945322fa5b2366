"""The keyed noise: exact distribution, independence, reproducibility."""

from __future__ import annotations

import pytest
import torch

from trivet.precision.noise import PERIOD, hashed_noise, layer_salt, noise_like, stream_key, stream_offset


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
