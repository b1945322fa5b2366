"""Made-up pictures with boxes inside the package, so that detection runs without any file: shapes on a noisy ground.

1 to 6 squares, discs and triangles of 8 to 24 pixels, each in a color of its own, on a ground of one color plus noise.
A shape may cover an earlier one, by no more than a third of either box. The numbers come from numpy's `RandomState`,
whose stream is frozen, so the pictures are the same everywhere.

Not covered: realistic pictures; a set of your own is read from a folder, see `detection`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trivet.tasks.data.detection_data import DetectionData, Part

CLASSES = ("disc", "square", "triangle")
HEIGHT, WIDTH = 64, 80
TRAIN, TEST = 256, 64
SMALLEST, LARGEST, MOST = 8, 24, 6
OVERLAP = 1 / 3


@lru_cache(maxsize=2)
def shapes(*, train: int = TRAIN, test: int = TEST, seed: int = 0) -> DetectionData:
    """The set.

    Args:
        train: Pictures to learn from.
        test: Pictures for the test.
        seed: Another one gives other pictures of the same kind.

    Examples:
        >>> data = shapes(train=4, test=2)
        >>> data.train.images.shape, data.classes
        ((4, 3, 64, 80), ('disc', 'square', 'triangle'))
    """
    random = np.random.RandomState(seed)
    pictures = [_picture(random) for _ in range(train + test)]
    return DetectionData(
        source="shapes, generated", classes=CLASSES, train=_part(pictures[:train]), test=_part(pictures[train:])
    )


def _part(pictures: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Part:
    return Part(
        images=np.stack([picture for picture, _, _ in pictures]),
        boxes=tuple(boxes for _, boxes, _ in pictures),
        labels=tuple(labels for _, _, labels in pictures),
        ignored=tuple(np.zeros(len(boxes), np.bool_) for _, boxes, _ in pictures),
    )


def _picture(random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Picture uint8 [3, H, W], boxes float32 [M, 4] and labels int64 [M]."""
    pixels = np.empty((3, HEIGHT, WIDTH))
    pixels[:] = random.randint(40, 216, (3, 1, 1))
    boxes: list[tuple[int, int, int, int]] = []
    labels: list[int] = []
    for _ in range(random.randint(1, MOST + 1)):
        side = random.randint(SMALLEST, LARGEST + 1)
        left, top = random.randint(0, WIDTH - side + 1), random.randint(0, HEIGHT - side + 1)
        label, color = random.randint(len(CLASSES)), random.randint(0, 256, (3, 1))
        box = (left, top, left + side, top + side)
        if any(_overlap(box, other) > OVERLAP for other in boxes):
            continue
        inside = _mask(label, side)
        pixels[:, top : top + side, left : left + side][:, inside] = color
        boxes.append(box)
        labels.append(label)
    pixels += random.normal(0, 12, pixels.shape)
    return pixels.clip(0, 255).astype(np.uint8), np.array(boxes, np.float32), np.array(labels, np.int64)


def _mask(label: int, side: int) -> np.ndarray:
    """Which pixels of a square of that side belong to the shape."""
    middle = (np.arange(side) + 0.5) / side - 0.5
    if CLASSES[label] == "disc":
        return middle[:, None] ** 2 + middle[None] ** 2 <= 0.25
    if CLASSES[label] == "square":
        return np.ones((side, side), np.bool_)
    return np.abs(middle)[None] <= (middle[:, None] + 0.5) / 2


def _overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> float:
    """Largest share of either box that the other one covers."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return max(across, 0) * max(down, 0) / smaller
