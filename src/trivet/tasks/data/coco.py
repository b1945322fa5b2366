"""Annotations as COCO's json files hold them. Torch-free.

    FOLDER/annotations/instances_PART.json    or FOLDER/PART.json, or FOLDER/PART/_annotations.coco.json
    `images` (id, file_name), `annotations` (image_id, category_id, bbox [left, top, width, height], iscrowd),
    `categories` (id, name)

A `file_name` is looked for in FOLDER/PART, FOLDER/images/PART, FOLDER/images, FOLDER and beside the json file.

Not covered: masks, captions, key points.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from trivet.core.errors import MissingDataError
from trivet.tasks.data.detection_data import Annotated, is_file
from trivet.tasks.data.errors import UnusableDataError

PREFIX, BESIDE = "instances_", "_annotations.coco.json"
LISTS = ("images", "annotations", "categories")


def coco_parts(folder: Path) -> dict[str, Path]:
    """Parts by name, with their files."""
    found = {path.parent.name: path for path in sorted(folder.glob(f"*/{BESIDE}"))}
    found |= {path.stem: path for path in sorted(folder.glob("*.json"))}
    found |= {path.stem.removeprefix(PREFIX): path for path in sorted(folder.glob(f"annotations/{PREFIX}*.json"))}
    return found


def read_coco(folder: Path, part: str, file: Path) -> list[Annotated]:
    """The pictures of a part.

    Args:
        folder: The data set.
        part: Its name.
        file: The json file.

    Raises:
        MissingDataError: A picture is missing.
        UnusableDataError: The file is damaged, or names a picture or a category that it does not have.
    """
    content = _content(file)
    categories = {number: _category(row, file) for number, row in _by_id("categories", content, file).items()}
    images = _by_id("images", content, file)
    rows: dict[Any, list[dict[str, Any]]] = {number: [] for number in images}
    for row in content["annotations"]:
        image, category = _key(row, "image_id", file), _key(row, "category_id", file)
        if image not in images:
            raise UnusableDataError(f"{file}: {_mark(row)} of the image {image!r}, which `images` does not list")
        if category not in categories:
            allowed = ", ".join(f"{number} ({name})" for number, name in categories.items())
            raise UnusableDataError(
                f"{file}: {_mark(row)} of the category {category!r}, which `categories` does not list; allowed: "
                f"{allowed}"
            )
        rows[image].append(row)
    _refuse_doubles(images, file)
    places = [folder / part, folder / "images" / part, folder / "images", folder, file.parent]
    return [_annotated(images[number], rows[number], categories, places, file) for number in images]


def _content(file: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnusableDataError(f"{file}: not a readable json file ({error})") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(name), list) for name in LISTS):
        found = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise UnusableDataError(f"{file}: found {found}; allowed: an object with the lists {', '.join(LISTS)}")
    if not all(isinstance(row, dict) for name in LISTS for row in content[name]):
        raise UnusableDataError(f"{file}: {', '.join(LISTS)} must be lists of objects")
    return content


def _by_id(name: str, content: dict[str, list[dict[str, Any]]], file: Path) -> dict[Any, dict[str, Any]]:
    """Rows of a list by their number, which stands for one of them only."""
    found: dict[Any, dict[str, Any]] = {}
    for row in content[name]:
        number = _key(row, "id", file)
        if number in found:
            raise UnusableDataError(f"{file}: `{name}` has the id {number!r} more than once; give each its own")
        found[number] = row
    return found


def _key(row: dict[str, Any], key: str, file: Path) -> Any:
    value = row.get(key)
    if not isinstance(value, (int, str)):
        raise UnusableDataError(f"{file}: found {key}: {value!r} in {str(row)[:80]}; allowed: a number or a name")
    return value


def _refuse_doubles(images: dict[Any, dict[str, Any]], file: Path) -> None:
    """A picture that is listed twice would lack the boxes of its double."""
    seen: dict[str, Any] = {}
    for number, row in images.items():
        name = str(_key(row, "file_name", file))
        if name in seen:
            raise UnusableDataError(f"{file}: the images {seen[name]!r} and {number!r} are both {name!r}; join them")
        seen[name] = number


def _category(row: dict[str, Any], file: Path) -> str:
    name = str(_key(row, "name", file)).strip()
    if not name:
        raise UnusableDataError(f"{file}: the category {row['id']!r} has an empty name; give it one")
    return name


def _mark(row: dict[str, Any]) -> str:
    """What an annotation is called in messages."""
    return f"annotation {row['id']!r}" if isinstance(row.get("id"), (int, str)) else "an annotation without an id"


def _annotated(
    image: dict[str, Any], rows: list[dict[str, Any]], categories: dict[Any, str], places: list[Path], file: Path
) -> Annotated:
    name = str(_key(image, "file_name", file))
    path = next((place / name for place in places if is_file(place / name)), None)
    if path is None:
        looked = ", ".join(str(place) for place in places)
        raise MissingDataError(f"{file}: the picture {name!r} is not there; looked for in {looked}")
    height, width = (_side(image, key, file) for key in ("height", "width"))
    return Annotated(
        name=name,
        path=path,
        stated_size=(height, width) if height and width else None,
        boxes=np.array([_corners(row, name, file) for row in rows], np.float64).reshape(-1, 4),
        names=tuple(categories[row["category_id"]] for row in rows),
        ignored=np.array([_is_crowd(row, file) for row in rows], np.bool_),
        file=file,
        marks=tuple(_mark(row) for row in rows),
    )


def _side(image: dict[str, Any], key: str, file: Path) -> int:
    """Height or width as it is stated; 0 where it is not."""
    value = image.get(key) or 0
    if not isinstance(value, (int, float)) or value != value // 1 or value < 0:
        allowed = "a whole number of pixels, or nothing"
        raise UnusableDataError(f"{file}: image {image['id']!r} has the {key} {value!r}; allowed: {allowed}")
    return int(value)


def _is_crowd(row: dict[str, Any], file: Path) -> bool:
    value = row.get("iscrowd") or 0
    if value not in (0, 1):
        raise UnusableDataError(f"{file}: {_mark(row)} has iscrowd: {value!r}; allowed: 0 or 1")
    return bool(value)


def _corners(row: dict[str, Any], picture: str, file: Path) -> list[float]:
    box, place = row.get("bbox"), f"{file}: {_mark(row)} of the picture {picture!r}"
    if not isinstance(box, list) or len(box) != 4 or not all(type(value) in (int, float) for value in box):
        raise UnusableDataError(f"{place}: found bbox: {str(box)[:80]}; allowed: [left, top, width, height]")
    try:
        left, top, width, height = map(float, box)
    except OverflowError as error:
        raise UnusableDataError(f"{place}: a bbox with a number too large ({error}); mend or remove it") from error
    if not all(map(math.isfinite, (left, top, left + width, top + height))) or width < 0 or height < 0:
        allowed = "finite numbers, width and height ≥ 0"
        raise UnusableDataError(f"{place}: found bbox: {box}; allowed: {allowed}; mend or remove it")
    return [left, top, left + width, top + height]
