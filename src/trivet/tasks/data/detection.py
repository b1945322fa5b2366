"""Pictures with labelled boxes, by name or path: generated, a Pascal VOC folder, or a folder with COCO's json files.

    shapes      made-up pictures inside the package, see `shapes`
    FOLDER      as Pascal VOC lays it out, see `voc`, or with COCO's annotations, see `coco`

Pictures are scaled to fit into the wanted size, keeping their proportions (bilinear, with anti-aliasing), and the rest
of the picture is black, to the right or below; the boxes move with them. Rules for boxes and parts: `detection_data`.

Reading needs Pillow (extra `vision`). Nothing is downloaded; torch is not loaded.

Not covered: data that does not fit in memory as uint8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trivet.core.errors import MissingDataError, nearest
from trivet.core.places import find_place
from trivet.tasks.data.base import ROOT_HINT, roots
from trivet.tasks.data.coco import coco_parts, read_coco
from trivet.tasks.data.detection_data import Annotated, DetectionData, Part, checked_boxes, class_names
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.picture_files import check_pictures, eight_bits, opened, pillow, upright, upright_size
from trivet.tasks.data.shapes import CLASSES, HEIGHT, WIDTH, shapes
from trivet.tasks.data.voc import is_voc, read_voc, voc_parts

BUILT_IN = "shapes"
ALLOWED = f"{BUILT_IN} (built in), a folder as Pascal VOC lays it out, or one with COCO's json files"
Marks = tuple[tuple[str, int, int, bytes], ...]


def find_detection(name: str) -> Path:
    """The folder that a name means: a path, looked up here and in the data roots when it is relative.

    Raises:
        MissingDataError: Nothing is there; says where it was looked for.
    """
    missing = f"data {name!r} are not on this machine"
    return find_place(
        name, roots(None), missing=missing, allowed=ALLOWED, hint=ROOT_HINT, names=(BUILT_IN,), only_folders=True
    )


def check_detection(name: str, *, train_part: str = "", test_part: str = "", classes: Sequence[str] = ()) -> int:
    """Read all annotations, and the sizes of all pictures, without decoding one.

    Returns:
        Pictures to learn from.

    Raises:
        MissingDataError: Nothing is there, or a part, a picture or its annotations are missing.
        UnusableDataError: It is there and cannot be used; says why.
        MissingExtraError: Pillow is needed.

    Examples:
        >>> check_detection("shapes")
        256
    """
    if name == BUILT_IN:
        _check_built_in(train_part, test_part, classes)
        return len(shapes().train.images)
    folder = find_detection(name)
    index = _index(str(folder), train_part, test_part, tuple(classes))
    _check_sizes(index, _marks(index), str(folder))
    return len(index[0])


def check_pixels(name: str, *, train_part: str = "", test_part: str = "", classes: Sequence[str] = ()) -> None:
    """Decode the pictures of both parts, as many as `picture_files` says; see `check_detection` for the errors.

    Examples:
        >>> check_pixels("shapes")
    """
    if name != BUILT_IN:
        index = _index(str(find_detection(name)), train_part, test_part, tuple(classes))
        check_pictures(item.path for part in index[:2] for item in part)


def load_detection(
    name: str, *, height: int, width: int, train_part: str = "", test_part: str = "", classes: Sequence[str] = ()
) -> DetectionData:
    """Read a data set.

    Args:
        name: See the module.
        height: Of the pictures returned.
        width: Of the pictures returned.
        train_part: Name of the part to learn from; empty for the only one whose name begins with `train`.
        test_part: The same for the test; empty for `test…`, or else `val…`.
        classes: Names in the order of their labels; empty for all in the training part, sorted.

    Raises:
        MissingDataError: Nothing is there, or a part, a picture or its annotations are missing.
        UnusableDataError: It is there and cannot be used; says why.
        MissingExtraError: Pillow is needed.

    Examples:
        >>> load_detection("shapes", height=64, width=80).test.images.shape
        (64, 3, 64, 80)
    """
    if name == BUILT_IN:
        _check_built_in(train_part, test_part, classes)
        return _scaled_shapes(height, width)
    folder = find_detection(name)
    index = _index(str(folder), train_part, test_part, tuple(classes))
    return _load(str(folder), train_part, test_part, tuple(classes), _marks(index), height, width)


def _check_built_in(train_part: str, test_part: str, classes: Sequence[str]) -> None:
    if train_part not in ("", "train") or test_part not in ("", "test") or tuple(classes) not in ((), CLASSES):
        raise UnusableDataError(
            f"{BUILT_IN}: found train_part {train_part!r}, test_part {test_part!r}, classes {list(classes)}; allowed: "
            f"train, test, {list(CLASSES)}"
        )


def _scaled_shapes(height: int, width: int) -> DetectionData:
    if (height, width) == (HEIGHT, WIDTH):
        return shapes()
    Image = pillow()
    parts = []
    for part in (shapes().train, shapes().test):
        images = [_fitted(Image.fromarray(image.transpose(1, 2, 0)), height, width, Image) for image in part.images]
        scale = np.float32(min(height / HEIGHT, width / WIDTH))
        boxes = tuple(boxes * scale for boxes in part.boxes)
        parts.append(Part(images=np.stack(images), boxes=boxes, labels=part.labels, ignored=part.ignored))
    return DetectionData(source=f"{BUILT_IN}, generated", classes=CLASSES, train=parts[0], test=parts[1])


Index = tuple[tuple[Annotated, ...], tuple[Annotated, ...], tuple[str, ...]]


def _index(source: str, train_part: str, test_part: str, classes: tuple[str, ...]) -> Index:
    """Annotations of both parts, and the names of the classes."""
    folder = Path(source)
    parts = voc_parts(folder) if is_voc(folder) else coco_parts(folder)
    if not parts:
        raise MissingDataError(f"{folder}: found no parts; allowed: {ALLOWED}")
    chosen = [_pick(parts, train_part, ("train",), folder), _pick(parts, test_part, ("test", "val"), folder)]
    if chosen[0] == chosen[1]:
        raise UnusableDataError(f"{folder}: {chosen[0]!r} is both the training and the test part; name another")
    files = tuple((name, *_mark(parts[name])) for name in chosen)
    return _read_index(source, files, classes, is_voc(folder), _newest(folder))


def _newest(folder: Path) -> int:
    """When the folder of annotations was changed, so that a changed set is read anew."""
    place = folder / "Annotations"
    return max((path.stat().st_mtime_ns for path in place.iterdir()), default=0) if place.is_dir() else 0


def _mark(path: Path) -> tuple[str, int, int]:
    stat = path.stat()
    return str(path), stat.st_size, stat.st_mtime_ns


def _pick(parts: dict[str, Path], wanted: str, usual: tuple[str, ...], folder: Path) -> str:
    """The part that is asked for, or the usual one."""
    if wanted:
        if wanted not in parts:
            close = nearest(wanted, parts)
            hint = f"; did you mean {close!r}?" if close else ""
            raise MissingDataError(f"{folder}: found no part {wanted!r}; allowed: {', '.join(parts)}{hint}")
        return wanted
    for name in usual:
        if name in parts:
            return name
        found = [part for part in parts if part.startswith(name)]
        if len(found) == 1:
            return found[0]
    keys = "train_part" if "train" in usual else "test_part"
    raise MissingDataError(
        f"{folder}: found the parts {', '.join(parts)}, no single one that begins with {' or '.join(usual)}; name one "
        f"in `task.{keys}`"
    )


@lru_cache(maxsize=4)
def _read_index(
    source: str, files: tuple[tuple[str, str, int, int], ...], classes: tuple[str, ...], voc: bool, newest: int
) -> Index:
    """Kept, because a plan asks once an arm."""
    folder = Path(source)
    found = [read_voc(folder, Path(file)) if voc else read_coco(folder, part, Path(file)) for part, file, _, _ in files]
    for (part, file, _, _), items in zip(files, found, strict=True):
        if not items:
            raise UnusableDataError(f"{file}: the part {part!r} lists no picture")
    shared = sorted({item.name for item in found[0]} & {item.name for item in found[1]})
    shared = shared if voc else sorted({str(item.path) for item in found[0]} & {str(item.path) for item in found[1]})
    if shared:
        raise UnusableDataError(_overlap(source, [files[0][0], files[1][0]], shared))
    return tuple(found[0]), tuple(found[1]), class_names(found, classes, source)


def _overlap(source: str, parts: Sequence[str], shared: Sequence[str]) -> str:
    return (
        f"{source}: {len(shared)} pictures are in both parts, {parts[0]} and {parts[1]}: {', '.join(shared[:3])}"
        f"{' …' if len(shared) > 3 else ''}; a test on what was learned tells nothing; strike them from one"
    )


def _marks(index: Index) -> Marks:
    """Size and time of every picture, and what its annotations say; notices a change of either."""
    return tuple((*_mark(item.path), _annotations(item)) for part in index[:2] for item in part)


def _annotations(item: Annotated) -> bytes:
    said = (item.stated_size, item.names, item.boxes.tobytes(), item.ignored.tobytes())
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).digest()


_sizes_seen: dict[Marks, None] = {}


def _check_sizes(index: Index, marks: Marks, source: str) -> None:
    """Open every picture, read its size, compare it with what the annotations say, check the boxes; once."""
    if marks in _sizes_seen:
        return
    for kind, part in zip(("training", "test"), index[:2], strict=True):
        usable = 0
        for item in part:
            with opened(item.path) as image:
                _, height, width = _frame(item, image)
            usable += int((checked_boxes(item, height, width)[1] & ~item.ignored).sum())
        if not usable:
            raise UnusableDataError(_unusable(source, kind))
    _sizes_seen[marks] = None


def _unusable(source: str, kind: str) -> str:
    return (
        f"{source}: no usable box in any picture of the {kind} part; those that are difficult, crowds, outside their "
        "pictures or under 2 pixels do not count"
    )


def _frame(item: Annotated, image: Any) -> tuple[bool, int, int]:
    """Whether a picture is turned as its mark says before its boxes fit; its height and width then."""
    stored, turned = (image.height, image.width), upright_size(image)
    if item.stated_size in (None, turned):
        return True, *turned
    if item.stated_size == stored:
        return False, *stored
    stated, beside = item.stated_size or (0, 0), f", {item.file}," if item.file else ""
    raise UnusableDataError(
        f"{item.path}: {turned[1]} × {turned[0]} pixels, and its annotations{beside} say {stated[1]} × {stated[0]}; "
        "the boxes belong to another picture, or it was resized: mend one of the two"
    )


@lru_cache(maxsize=2)
def _load(
    source: str, train_part: str, test_part: str, classes: tuple[str, ...], marks: Marks, height: int, width: int
) -> DetectionData:
    """Kept, because several jobs of one process may want it."""
    train, test, names = _index(source, train_part, test_part, classes)
    learned, first, few = _part(train, names, height, width)
    tested, second, more = _part(test, names, height, width)
    shared = sorted(f"{first[key]} = {second[key]}" for key in first.keys() & second.keys())
    if shared:
        raise UnusableDataError(_overlap(source, [train_part or "train", test_part or "test"], shared))
    for kind, part in (("training", learned), ("test", tested)):
        if not any((~ignored).any() for ignored in part.ignored):
            raise UnusableDataError(_unusable(source, kind))
    return DetectionData(source=source, classes=names, train=learned, test=tested, dropped=few + more)


def _part(items: Iterable[Annotated], classes: Sequence[str], height: int, width: int) -> tuple[Part, dict, int]:  # type: ignore[type-arg]
    """Pictures and boxes of a part, the names of the pictures by their SHA-256, and how many boxes were dropped."""
    Image = pillow()
    images: list[np.ndarray] = []
    boxes: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    ignored: list[np.ndarray] = []
    seen: dict[bytes, str] = {}
    dropped = 0
    for item in items:
        content = _bytes(item.path)
        seen[hashlib.sha256(content).digest()] = item.name
        with opened(item.path, content=content) as image:
            is_turned, own_height, own_width = _frame(item, image)
            images.append(_fitted(upright(image) if is_turned else image, height, width, Image))
        cut, kept = checked_boxes(item, own_height, own_width)
        scale = min(height / own_height, width / own_width)
        boxes.append((cut[kept] * scale).astype(np.float32))
        wanted = [classes.index(name) for name, keep in zip(item.names, kept, strict=True) if keep]
        labels.append(np.array(wanted, np.int64))
        ignored.append(item.ignored[kept])
        dropped += int((~kept).sum())
    part = Part(images=np.stack(images), boxes=tuple(boxes), labels=tuple(labels), ignored=tuple(ignored))
    return part, seen, dropped


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableDataError(f"{path}: cannot be read ({error.strerror})") from error


def _fitted(image: Any, height: int, width: int, Image: Any) -> np.ndarray:
    """A picture as uint8 [3, height, width], scaled to fit, black to the right and below."""
    scale = min(height / image.height, width / image.width)
    size = (min(max(round(image.width * scale), 1), width), min(max(round(image.height * scale), 1), height))
    pixels = np.asarray(eight_bits(image).convert("RGB").resize(size, Image.Resampling.BILINEAR), np.uint8)
    found = np.zeros((3, height, width), np.uint8)
    found[:, : size[1], : size[0]] = pixels.transpose(2, 0, 1)
    return found
