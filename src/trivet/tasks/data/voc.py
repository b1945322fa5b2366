"""Annotations as the Pascal VOC challenge lays them out. Torch-free.

    FOLDER/ImageSets/Main/PART.txt       names of the pictures of a part, one a line
    FOLDER/Annotations/NAME.xml          size, and objects with `name`, `bndbox` and `difficult`
    FOLDER/JPEGImages/NAME.jpg|jpeg|png

Not covered: the parts of the segmentation and the layout tasks, `truncated` and `pose` (not looked at).
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from trivet.core.errors import MissingDataError
from trivet.tasks.data.detection_data import Annotated, is_file
from trivet.tasks.data.errors import UnusableDataError

SETS, ANNOTATIONS, PICTURES = Path("ImageSets", "Main"), "Annotations", "JPEGImages"
CORNERS = ("xmin", "ymin", "xmax", "ymax")


def is_voc(folder: Path) -> bool:
    """Whether a folder is laid out like that."""
    return (folder / SETS).is_dir() or (folder / ANNOTATIONS).is_dir()


def voc_parts(folder: Path) -> dict[str, Path]:
    """Parts by name, with their files.

    The lists of single classes (`cat_train.txt`), which VOC has beside them, are left out.
    """
    found = {path.stem: path for path in sorted((folder / SETS).glob("*.txt"))}
    return {name: path for name, path in found.items() if name.rpartition("_")[2] not in found or "_" not in name}


def read_voc(folder: Path, part: Path) -> list[Annotated]:
    """The pictures of a part.

    Args:
        folder: The data set.
        part: The file that lists them.

    Raises:
        MissingDataError: A picture or its annotations are missing.
        UnusableDataError: A file is damaged, or a name is listed twice.
    """
    names = [words[0] for line in _text(part).splitlines() if (words := line.split())]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise UnusableDataError(f"{part}: lists {', '.join(twice[:3])} more than once; remove the others")
    return [_read(folder, name, part) for name in names]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableDataError(f"{path}: not a readable text file ({error})") from error


def _read(folder: Path, name: str, part: Path) -> Annotated:
    path = folder / ANNOTATIONS / f"{name}.xml"
    pictures = [folder / PICTURES / f"{name}{ending}" for ending in (".jpg", ".jpeg", ".png", ".JPG")]
    picture = next((place for place in pictures if is_file(place)), None)
    for kind, place, verb in (("annotations", path, "are"), ("picture", picture or pictures[0], "is")):
        if not is_file(place):
            raise MissingDataError(f"{part}: lists {name!r}, whose {kind} {place} {verb} not there; add or strike it")
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError, ValueError, LookupError) as error:
        raise UnusableDataError(f"{path}: not a readable XML file ({error})") from error
    objects = list(root.iter("object"))
    return Annotated(
        name=name,
        path=picture or pictures[0],
        stated_size=_size(root),
        boxes=np.array([_corners(*item, path) for item in enumerate(objects, 1)], np.float64).reshape(-1, 4),
        names=tuple(_name(*item, path) for item in enumerate(objects, 1)),
        ignored=np.array([(item.findtext("difficult") or "0").strip() == "1" for item in objects], np.bool_),
        file=path,
        marks=tuple(f"object {number}" for number in range(1, len(objects) + 1)),
    )


def _size(root: ElementTree.Element) -> tuple[int, int] | None:
    """Height and width; None where they are not given, or 0, as some tools write."""
    try:
        height, width = (int(float(root.findtext(f"size/{side}") or 0)) for side in ("height", "width"))
    except (ValueError, OverflowError):
        return None
    return (height, width) if height > 0 and width > 0 else None


def _name(number: int, item: ElementTree.Element, path: Path) -> str:
    name = (item.findtext("name") or "").strip()
    if not name:
        raise UnusableDataError(f"{path}: object {number} has no `name`; give it one, or remove it")
    return name


def _corners(number: int, item: ElementTree.Element, path: Path) -> list[float]:
    texts = [item.findtext(f"bndbox/{corner}") for corner in CORNERS]
    try:
        return [float(text or "") for text in texts]
    except ValueError as error:
        found = dict(zip(CORNERS, texts, strict=True))
        raise UnusableDataError(f"{path}: object {number} has the corners {found}; allowed: four numbers") from error
