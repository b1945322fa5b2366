from __future__ import annotations

import pytest

from trivet.ghn.shapes import ShapeVocabulary


def test_vocabulary_of_cifar() -> None:
    sizes = ShapeVocabulary(num_classes=10, max_kernel=11)
    assert len(sizes.channels) == 391
    assert sizes.channels[:6].tolist() == [1, 3, 8, 10, 16, 24]
    assert sizes.kernels.tolist() == [1, 3, 5, 7, 9, 11, 14, 16]
    assert sizes.absent.tolist() == [391, 391, 8, 8]


def test_vocabulary_of_imagenet() -> None:
    sizes = ShapeVocabulary(num_classes=1000, max_kernel=16)
    assert sizes.kernels.tolist() == [1, 3, 5, 7, 9, 11, 13, 14, 15, 16]
    assert 1000 in sizes.channels.tolist()


@pytest.mark.parametrize("number", [*range(1, 70), 999, 1001, 4090, 4097, 8190, 8192, 9000, 10**7])
def test_channels_read_as_the_nearest(number: int) -> None:
    sizes = ShapeVocabulary(num_classes=1000, max_kernel=16)
    read = sizes.channels[sizes.index((number, number, 1, 1))[:2]].tolist()
    nearest = min(sizes.channels.tolist(), key=lambda known: (abs(known - number), known))
    assert read == [8 if 4 <= number <= 7 else nearest] * 2


@pytest.mark.parametrize("number", [*range(1, 20), 100])
def test_kernels_read_as_the_nearest(number: int) -> None:
    sizes = ShapeVocabulary(num_classes=10, max_kernel=11)
    read = sizes.kernels[sizes.index((1, 1, number, number))[2:]].tolist()
    nearest = min(sizes.kernels.tolist(), key=lambda known: (abs(known - number), known))
    assert read == [3 if number == 2 else nearest] * 2


def test_few_classes_still_read_as_eight() -> None:
    sizes = ShapeVocabulary(num_classes=5, max_kernel=11)
    assert sizes.channels[sizes.index((5, 8, 1, 1))[:2]].tolist() == [8, 8]
