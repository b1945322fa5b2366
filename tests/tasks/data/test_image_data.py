"""ImageData: what it refuses, and what its fingerprint sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trivet.tasks.data import ImageData


def make(**changes: Any) -> ImageData:
    images = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    fields: dict[str, Any] = {
        "name": "toy", "source": "here", "licence": "none", "classes": ("a", "b"),
        "train_images": images, "train_labels": np.array([0, 1]),
        "test_images": images[:1] + 1, "test_labels": np.array([1]),
    }  # fmt: skip
    return ImageData(**(fields | changes))


def test_shape_and_classes() -> None:
    data = make()
    assert data.image_shape == (3, 4, 4)
    assert data.num_classes == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ()}, "at least one"),
        ({"classes": ("a", "a")}, "each once"),
        ({"train_images": np.zeros((2, 3, 4, 4), np.float32)}, r"train_images. is float32.*uint8 \[N, C, H, W\]"),
        ({"train_images": np.zeros((2, 4, 4), np.uint8)}, r"\[2, 4, 4\]"),
        ({"test_images": np.zeros((0, 3, 4, 4), np.uint8), "test_labels": np.zeros(0, np.int64)}, "not empty"),
        ({"test_images": np.zeros((1, 3, 5, 4), np.uint8)}, "must be alike"),
        ({"train_labels": np.array([0, 1, 1])}, r"\[3\].*int64 \[2\]"),
        ({"train_labels": np.array([0, 1], np.int32)}, "int32"),
        ({"train_labels": np.array([0, 2])}, r"from 0 to 2; with 2 classes they must lie in \[0, 1\]"),
        ({"test_labels": np.array([-1])}, "from -1"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_fingerprint_sees_every_array_and_the_classes_and_nothing_else() -> None:
    base = make()
    assert base.fingerprint == make(name="other", source="there").fingerprint
    flipped = base.train_images.copy()
    flipped[1, 2, 3, 3] ^= 1
    others = [
        make(train_images=flipped),
        make(train_labels=np.array([1, 0])),
        make(test_images=base.test_images + 1),
        make(test_labels=np.array([0])),
        make(classes=("a", "c")),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_fingerprint_does_not_depend_on_memory_layout() -> None:
    base = make()
    strided = np.asfortranarray(base.train_images)
    assert make(train_images=strided).fingerprint == base.fingerprint
