"""Labelled images in memory: what every image source gives and every image task takes.

Not covered: data that does not fit in memory, more than one label an image, images of different sizes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageData:
    """A train and a test set of images of one size.

    Raises:
        ValueError: An array has another shape or type, a split is empty, the splits differ in image size, or a label
            is not a class.

    Examples:
        >>> images, labels = np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 1, 0, 1])
        >>> data = ImageData(name="toy", source="made up", licence="none", classes=("a", "b"), train_images=images,
        ...                  train_labels=labels, test_images=images[:2], test_labels=labels[:2])
        >>> data.num_classes, data.image_shape, len(data.fingerprint)
        (2, (1, 8, 8), 64)
    """

    name: str
    """Name of the source, such as `fashion-mnist`."""
    source: str
    """Where the arrays came from, for a reader."""
    licence: str
    """Licence of the data, or that none is stated."""
    classes: tuple[str, ...]
    """Class names; the label i means `classes[i]`."""
    train_images: np.ndarray
    """uint8 [N, C, H, W]."""
    train_labels: np.ndarray
    """int64 [N]."""
    test_images: np.ndarray
    """uint8 [M, C, H, W]."""
    test_labels: np.ndarray
    """int64 [M]."""
    fingerprint: str = field(init=False)
    """SHA-256 of the class names and the four arrays (types, shapes, content), in hexadecimal."""

    def __post_init__(self) -> None:
        if not self.classes or len(set(self.classes)) != len(self.classes):
            raise ValueError(f"`classes={self.classes}` must be at least one name, each once")
        for split in ("train", "test"):
            _check_split(split, getattr(self, f"{split}_images"), getattr(self, f"{split}_labels"), len(self.classes))
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise ValueError(
                f"train images are {list(self.train_images.shape[1:])} and test images "
                f"{list(self.test_images.shape[1:])} [C, H, W]; they must be alike"
            )
        object.__setattr__(self, "fingerprint", _fingerprint(self))

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        _, channels, height, width = self.train_images.shape
        return channels, height, width


def _check_split(split: str, images: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        raise ValueError(
            f"`{split}_images` is {images.dtype} {list(images.shape)}; it must be uint8 [N, C, H, W] and not empty"
        )
    if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"`{split}_labels` is {labels.dtype} {list(labels.shape)}; it must be int64 [{images.shape[0]}], "
            f"one label for each image"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"`{split}_labels` run from {low} to {high}; with {num_classes} classes they must lie in "
            f"[0, {num_classes - 1}]"
        )


def _fingerprint(data: ImageData) -> str:
    digest = hashlib.sha256("\n".join(data.classes).encode())
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"\n{array.dtype.name} {array.shape}\n".encode())
        digest.update(little.data.cast("B"))
    return digest.hexdigest()
