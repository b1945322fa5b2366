"""Pictures with labelled boxes: what annotation files describe, and what a run holds in memory. Loads no torch.

Rules, the same for every file format:

- corners count in pixels as they stand in the file, x to the right and y downwards, the first corner above and to the
  left of the second; a box whose corners are the other way round is refused;
- a box is cut at the edges of its picture, and one of which less than 2 pixels are left in either direction is dropped,
  counted and said;
- a picture is turned as its orientation mark (EXIF) says, and its boxes and its stated size belong to the turned one;
  where the stated size fits the picture as it is stored alone, so do the boxes, and it is not turned;
- a picture without boxes stays: it is background;
- a box that is marked as difficult (VOC) or as a crowd (COCO) is not learned from, and finding it is neither right nor
  wrong in the test;
- the parts for training and test share no picture, neither by name nor by content.

Not covered: masks, key points, rotated boxes; data larger than memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trivet.core.errors import nearest
from trivet.tasks.data.errors import UnusableDataError

MIN_SIDE = 2.0
"""Pixels of the original picture below which a box is dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotated:
    """One picture as its annotations describe it."""

    name: str
    """By which the annotations call it."""
    path: Path
    """The picture's file."""
    stated_size: tuple[int, int] | None
    """Height and width as the annotations say; None where they do not."""
    boxes: np.ndarray
    """float64 [M, 4]: left, top, right, bottom."""
    names: tuple[str, ...]
    """Class of each box."""
    ignored: np.ndarray
    """bool [M]: difficult or crowd."""
    file: Path | None = None
    """Where the annotations stand."""
    marks: tuple[str, ...] = ()
    """What each box is called there, such as `annotation 17`."""

    def place(self, box: int) -> str:
        """File, picture and box, for a message.

        Examples:
            >>> item = Annotated(name="a", path=Path("a.png"), stated_size=None, boxes=np.ones((1, 4)), names=("dog",),
            ...                  ignored=np.zeros(1, bool), file=Path("train.json"), marks=("annotation 17",))
            >>> item.place(0)
            "train.json: annotation 17, a box (dog) of the picture 'a'"
        """
        start = f"{self.file}: " if self.file else ""
        mark = f"{self.marks[box]}, a box" if self.marks else f"box {box + 1}"
        return f"{start}{mark} ({self.names[box]}) of the picture {self.name!r}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Pictures of one size with their boxes, ready for a network."""

    images: np.ndarray
    """uint8 [N, 3, H, W]."""
    boxes: tuple[np.ndarray, ...]
    """One float32 [M, 4] a picture: left, top, right, bottom in pixels of `images`."""
    labels: tuple[np.ndarray, ...]
    """One int64 [M] a picture."""
    ignored: tuple[np.ndarray, ...]
    """One bool [M] a picture."""

    @property
    def num_boxes(self) -> int:
        """Boxes of all pictures."""
        return sum(map(len, self.boxes))


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectionData:
    """A data set for detection.

    Examples:
        >>> from trivet.tasks.data.shapes import shapes
        >>> shapes(train=2, test=1).describe()
        'shapes, generated: 2 pictures to learn from (5 boxes, 0 without any), 1 for the test (4 boxes), ...'
    """

    source: str
    """File, folder or name."""
    classes: tuple[str, ...]
    """Names, by label."""
    train: Part
    """Learned from."""
    test: Part
    """Tested on."""
    dropped: int = 0
    """Boxes that were too small or outside their picture."""

    def describe(self) -> str:
        """One line for a log."""
        empty = sum(not len(boxes) for boxes in self.train.boxes)
        ignored = sum(int(part.sum()) for part in (*self.train.ignored, *self.test.ignored))
        return (
            f"{self.source}: {len(self.train.images):,} pictures to learn from ({self.train.num_boxes:,} boxes, "
            f"{empty:,} without any), {len(self.test.images):,} for the test ({self.test.num_boxes:,} boxes), classes "
            f"{', '.join(self.classes)}; {self.dropped:,} boxes under {MIN_SIDE:g} pixels dropped, {ignored:,} "
            "difficult or crowds"
        )


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that the file system does not take is none.

    Examples:
        >>> is_file(Path("x" * 5000))
        False
    """
    try:
        return path.is_file()
    except OSError:
        return False


def checked_boxes(item: Annotated, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of a picture cut at its edges, and which of them are kept.

    Args:
        item: The picture.
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.

    Returns:
        float64 [M, 4], and bool [M].

    Raises:
        UnusableDataError: A number is not finite, or corners are the wrong way round.

    Examples:
        >>> boxes = np.array([[-3.0, 1.0, 5.0, 9.0], [4.0, 4.0, 4.0, 8.0]])
        >>> item = Annotated(name="a", path=Path("a.png"), stated_size=None, boxes=boxes, names=("x", "x"),
        ...                  ignored=np.zeros(2, bool))
        >>> cut, kept = checked_boxes(item, 10, 10)
        >>> cut[kept].tolist()
        [[0.0, 1.0, 5.0, 9.0]]
    """
    boxes = item.boxes
    if len(boxes) == 0:
        return boxes.reshape(0, 4), np.zeros(0, np.bool_)
    bad = ~np.isfinite(boxes).all(1)
    bad |= (boxes[:, 2] < boxes[:, 0]) | (boxes[:, 3] < boxes[:, 1])
    if bad.any():
        index = int(bad.argmax())
        raise UnusableDataError(
            f"{item.place(index)}: found {boxes[index].tolist()}; allowed: left ≤ right and top ≤ bottom, all finite; "
            "mend or remove it"
        )
    cut: np.ndarray = np.clip(boxes, 0, np.array([width, height, width, height], np.float64))
    kept = np.all(cut[:, 2:] - cut[:, :2] >= MIN_SIDE, axis=1)
    return cut, kept


def class_names(parts: Sequence[Sequence[Annotated]], wanted: Sequence[str], source: str) -> tuple[str, ...]:
    """Names of the classes in the order of their labels: those asked for, or all of the training part, sorted.

    Args:
        parts: Pictures of the training part, then of the test part.
        wanted: Names; empty for those that are found.
        source: Named in the errors.

    Raises:
        UnusableDataError: No box to learn from or to test on, or a box of a class that is none of them.

    Examples:
        >>> item = Annotated(name="a", path=Path("a.png"), stated_size=None, boxes=np.ones((2, 4)),
        ...                  names=("dog", "cat"), ignored=np.zeros(2, bool))
        >>> class_names([[item], [item]], [], "toy")
        ('cat', 'dog')
    """
    found = [{name for item in part for name in item.names} for part in parts]
    for kind, names in zip(("training", "test"), found, strict=True):
        if not names:
            raise UnusableDataError(f"{source}: no box in any picture of the {kind} part; nothing to learn or to find")
    classes = tuple(wanted) or tuple(sorted(found[0]))
    for part in parts:
        for item in part:
            for box, name in enumerate(item.names):
                if name in classes:
                    continue
                close = nearest(name, classes)
                hint = f"; did you mean {close!r}?" if close else ""
                raise UnusableDataError(
                    f"{item.place(box)}: found the class {name!r}; allowed: {', '.join(classes)} "
                    f"({'as `task.classes` says' if wanted else 'the classes of the training part'}){hint}"
                )
    return classes
