"""A user's own images: `image-folder:PATH`, one sub-folder a class.

    PATH/train/<class>/*.png|jpg|jpeg
    PATH/test/<class>/…          (or PATH/val/<class>/…)

The size is part of the name: `image-folder:PATH@64` cuts the largest square from the middle and resizes it to 64 × 64
pixels (bilinear, with anti-aliasing); 32 × 32 without it. `image-folder:PATH@28:gray` gives one channel instead of
three. Orientation marks of cameras are followed; transparency is dropped. Reading needs Pillow (extra `vision`).

`load` decodes everything into memory; `files` lists the pictures, for reading one when it is needed.

Not covered: other file types, splits made by chance.
"""

from __future__ import annotations

import importlib.util
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trivet.core.errors import MissingDataError, MissingExtraError
from trivet.core.places import find_place
from trivet.tasks.data.base import Located, SourceInfo, Splits, checked
from trivet.tasks.data.crops import CropDraws
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.image_data import ImageData
from trivet.tasks.data.picture_files import check_pictures, eight_bits, opened, pictures_in, upright, upright_size

if TYPE_CHECKING:
    from PIL import Image

PREFIX = "image-folder:"
SUFFIXES = (".png", ".jpg", ".jpeg")
DEFAULT_SIZE = 32
MAX_SIZE = 1024
MOST_IN_MEMORY = 4 * 2**30
"""Bytes of decoded pictures above which they are streamed, where nothing is said."""
LAYOUT = "PATH/train/<class>/*.png|jpg and PATH/test/<class>/*.png|jpg (or val instead of test)"

INFO = SourceInfo(
    name="image-folder:PATH",
    title="your own images, one folder a class; image-folder:PATH@64 for 64 × 64, @28:gray for one channel",
    num_train=0,
    num_test=0,
    shape=f"3 × {DEFAULT_SIZE} × {DEFAULT_SIZE}",
    num_classes=0,
    licence="yours",
    how_to_get=f"lay the files out as {LAYOUT}",
)


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """One folder of images, at one size.

    Examples:
        >>> source = parse("image-folder:flowers@64:gray")
        >>> source.path.name, source.size, source.gray
        ('flowers', 64, True)
    """

    path: Path
    """The folder that holds `train` and `test`."""
    size: int = DEFAULT_SIZE
    """Height and width of every image, in pixels."""
    gray: bool = False
    """One channel instead of three."""

    @property
    def info(self) -> SourceInfo:
        """What it is."""
        return INFO

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        return 1 if self.gray else 3, self.size, self.size

    def locate(self, data_root: Path | None) -> Located:
        """Check that both splits are there; a relative path is looked up in the data root when one is given."""
        path = self.path.expanduser()
        if data_root is not None and not path.is_absolute():
            path = data_root.expanduser() / path
        path = find_place(
            str(path), [], missing=f"image folder {path}: no such folder", allowed=LAYOUT, only_folders=True
        )
        train = _split_folder(path, ("train",))
        test = _split_folder(path, ("test", "val"))
        if importlib.util.find_spec("PIL") is None:
            raise MissingExtraError("pillow", "vision")
        return Located(str(path), lambda: self._read(train, test), check=lambda: self._check(train, test))

    def files(self) -> PictureFiles:
        """The pictures of both splits, none of them opened; raises as `locate` and reading do."""
        located = self.locate(None)
        folder = Path(located.place)
        train, test = _split_folder(folder, ("train",)), _split_folder(folder, ("test", "val"))
        classes = _shared_classes(train, test)
        return PictureFiles(classes, *_labelled(self._files(train, classes)), *_labelled(self._files(test, classes)))

    def _check(self, train: Path, test: Path) -> int:
        """Compare the classes and look at the pictures as `check_pictures` does; returns how many are in `train`."""
        files = [self._files(folder, _shared_classes(train, test)) for folder in (train, test)]
        check_pictures(path for part in files for paths in part for path in paths)
        return sum(map(len, files[0]))

    def _read(self, train: Path, test: Path) -> ImageData:
        classes = _shared_classes(train, test)
        splits = Splits(*self._read_split(train, classes), *self._read_split(test, classes))
        return checked(splits, info=INFO, classes=classes, place=str(train.parent))

    def _files(self, folder: Path, classes: tuple[str, ...]) -> list[list[Path]]:
        """Pictures of each class."""
        files = [image_files(folder / name) for name in classes]
        for name, found in zip(classes, files, strict=True):
            if not found and folder.name == "train":
                raise UnusableDataError(f"{folder / name}: no image ({', '.join(SUFFIXES)}) in this class folder")
        if not any(files):
            raise UnusableDataError(f"{folder}: no image ({', '.join(SUFFIXES)}) in any class folder")
        return files

    def _read_split(self, folder: Path, classes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        files = self._files(folder, classes)
        images = [read_image(path, size=self.size, gray=self.gray) for paths in files for path in paths]
        labels = [label for label, paths in enumerate(files) for _ in paths]
        return np.stack(images), np.array(labels, np.int64)


@dataclass(frozen=True, slots=True)
class PictureFiles:
    """Where the pictures of a folder lie, with their labels."""

    classes: tuple[str, ...]
    train: list[Path]
    train_labels: np.ndarray
    """int64 [N]."""
    test: list[Path]
    test_labels: np.ndarray
    """int64 [M]."""


def streamed(name: str, wanted: bool | None) -> tuple[ImageFolder, PictureFiles] | None:
    """The folder whose pictures are decoded when they are needed; None where all are held in memory.

    Args:
        name: Of the data, which may be no folder.
        wanted: Whether that is asked for; None leaves it to `MOST_IN_MEMORY`.

    Examples:
        >>> streamed("fashion-mnist", None) is None
        True
    """
    if not name.startswith(PREFIX) or wanted is False:
        return None
    folder = parse(name)
    files = folder.files()
    size = (len(files.train) + len(files.test)) * math.prod(folder.shape)
    return (folder, files) if wanted or size > MOST_IN_MEMORY else None


def _labelled(files: list[list[Path]]) -> tuple[list[Path], np.ndarray]:
    labels = np.repeat(np.arange(len(files), dtype=np.int64), [len(paths) for paths in files])
    return [path for paths in files for path in paths], labels


def parse(name: str) -> ImageFolder:
    """The folder a name such as `image-folder:PATH@64:gray` means.

    Raises:
        ValueError: No path, or a size outside [8, 1024].
    """
    match = re.fullmatch(r"(?P<path>.*?)(?:@(?P<size>\d+)(?P<gray>:gray)?)?", name.removeprefix(PREFIX), re.DOTALL)
    if match is None or not match["path"].strip():
        raise ValueError(f"data source {name!r} names no folder; write image-folder:PATH or image-folder:PATH@64")
    size = int(match["size"] or DEFAULT_SIZE)
    if not 8 <= size <= MAX_SIZE:
        raise ValueError(
            f"data source {name!r}: the size {size} must lie in [8, {MAX_SIZE}]; change the number after @"
        )
    return ImageFolder(Path(match["path"]), size, bool(match["gray"]))


def _split_folder(path: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        if (path / name).is_dir():
            return path / name
    raise MissingDataError(f"{path}: no folder {' or '.join(names)} in it; it must be laid out as {LAYOUT}")


def _classes(folder: Path) -> tuple[str, ...]:
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise UnusableDataError(f"{folder}: cannot be read ({error.strerror})") from error
    if not names:
        raise UnusableDataError(f"{folder}: no class folder in it; images lie in {folder}/<class>/")
    return tuple(names)


def _shared_classes(train: Path, test: Path) -> tuple[str, ...]:
    classes, in_test = _classes(train), _classes(test)
    if classes != in_test:
        only_train, only_test = sorted(set(classes) - set(in_test)), sorted(set(in_test) - set(classes))
        raise UnusableDataError(
            f"{train.parent}: the class folders differ: only in {train.name}: {only_train or 'none'}; only in "
            f"{test.name}: {only_test or 'none'}; both must have the same (a class may be empty in {test.name})"
        )
    return classes


def image_files(folder: Path) -> list[Path]:
    """Image files in a folder and below, hidden ones left out, sorted by path; see `pictures_in` for the errors."""
    return sorted(pictures_in(folder, SUFFIXES))


def read_image(path: Path, *, size: int, gray: bool = False, draws: CropDraws | None = None) -> np.ndarray:
    """One image, resized and cut: uint8 [3, size, size], or [1, size, size] in gray.

    Args:
        path: The file.
        size: Height and width, in pixels.
        gray: One channel instead of three.
        draws: Random numbers of a crop, see `trivet.tasks.data.crops`; without them the largest centred square.

    Raises:
        UnusableDataError: The file cannot be decoded.
        MissingExtraError: Pillow is not installed.
    """
    with opened(path) as stored:
        part = draws.box(*reversed(upright_size(stored))) if draws else None
        if part:  # a JPEG is decoded at half, a quarter or an eighth of its size where that is enough
            stored.draft(None, tuple(math.ceil(size / min(part[2] - part[0], part[3] - part[1])) for _ in range(2)))
        image = eight_bits(upright(stored)).convert("L" if gray else "RGB")
        pixels = np.asarray(_fit(image, size) if part is None else _cut(image, size, part))
    return pixels[None] if gray else pixels.transpose(2, 0, 1)


def _cut(image: Image.Image, size: int, part: tuple[float, float, float, float]) -> Image.Image:
    """Resize so that the part, in shares of width and height, becomes size × size."""
    from PIL import Image

    width, height = image.size
    left, top, right, bottom = part
    box = (left * width, top * height, right * width, bottom * height)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def _fit(image: Image.Image, size: int) -> Image.Image:
    """Resize so that the largest centred square becomes size × size."""
    from PIL import Image

    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
