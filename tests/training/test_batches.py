from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.training.batches import BatchOrder, augment, keyed_generator


@settings(max_examples=50)
@given(examples=st.integers(1, 40), batch=st.integers(1, 90), seed=st.integers(0, 2**40))
def test_every_example_once_an_epoch(examples: int, batch: int, seed: int) -> None:
    order = BatchOrder(num_examples=examples, batch_size=batch, seed=seed)
    stream = torch.cat([order.indices(step) for step in range(2 * examples // batch + 2)])
    assert all(len(order.indices(step)) == batch for step in range(3))
    for epoch in range(len(stream) // examples):
        assert sorted(stream[epoch * examples : (epoch + 1) * examples].tolist()) == list(range(examples))


def test_order_is_a_pure_function_of_seed_and_step() -> None:
    forward, backward = (BatchOrder(num_examples=50, batch_size=8, seed=3) for _ in range(2))
    there = [forward.indices(step) for step in range(20)]
    back = [backward.indices(step) for step in reversed(range(20))]
    assert all(torch.equal(a, b) for a, b in zip(there, reversed(back), strict=True))
    other = BatchOrder(num_examples=50, batch_size=8, seed=4)
    assert not torch.equal(other.indices(0), there[0])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    forward.indices(99)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0)])
def test_sizes_must_be_positive(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be ≥ 1"):
        BatchOrder(num_examples=sizes[0], batch_size=sizes[1], seed=0)


def test_negative_step() -> None:
    with pytest.raises(ValueError, match="step=-1"):
        BatchOrder(num_examples=3, batch_size=1, seed=0).indices(-1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_augment_against_plain_slicing(dtype: torch.dtype) -> None:
    images = torch.randint(1, 255, (64, 3, 6, 5)).to(dtype)
    moved = augment(images, shift=2, flip=True, seed=9, step=4)
    generator = keyed_generator(9, "augment", 4)
    offsets = torch.randint(5, (2, 64), generator=generator)
    mirrored = torch.rand(64, generator=generator) < 0.5
    for index in range(64):
        canvas = torch.zeros(3, 10, 9, dtype=dtype)
        canvas[:, 2:8, 2:7] = images[index]
        top, left = offsets[0, index], offsets[1, index]
        expected = canvas[:, top : top + 6, left : left + 5]
        assert torch.equal(moved[index], expected.flip(2) if mirrored[index] else expected)
    assert moved.dtype == dtype


def test_augment_uses_every_offset_and_depends_on_the_step() -> None:
    images = torch.ones(4000, 1, 3, 3)
    moved = augment(images, shift=1, flip=False, seed=0, step=0)
    assert len({tuple(image.flatten().tolist()) for image in moved}) == 9
    assert moved.mean().item() == pytest.approx((7 / 9) ** 2, abs=0.01)  # every offset of -1, 0, 1 alike
    assert not torch.equal(moved, augment(images, shift=1, flip=False, seed=0, step=1))
    assert torch.equal(moved, augment(images, shift=1, flip=False, seed=0, step=0))


def test_augment_off_gives_the_images_back() -> None:
    images = torch.ones(2, 1, 3, 3)
    assert augment(images, shift=0, flip=False, seed=0, step=0) is images
    with pytest.raises(ValueError, match="shift=-1"):
        augment(images, shift=-1, flip=False, seed=0, step=0)


def test_a_part_of_a_batch_changes_as_inside_it() -> None:
    images = torch.arange(6 * 1 * 5 * 4.0).view(6, 1, 5, 4)
    whole = augment(images, shift=2, flip=True, seed=3, step=7)
    part = augment(images[2:5], shift=2, flip=True, seed=3, step=7, part=(2, 6))
    assert torch.equal(part, whole[2:5])
