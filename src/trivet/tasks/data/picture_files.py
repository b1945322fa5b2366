"""Picture files: decoded, the right way up, eight bits a channel, and checked before work starts. Loads no torch.

Rules, the same wherever pictures lie in a folder or an archive:

- a picture is turned and mirrored as its orientation mark (EXIF) says, as viewers and tools for annotating show it;
- 16 bits a channel are scaled to 8; transparency is dropped;
- `check_pictures` opens every file, of more than `MAX_FILES` so many, evenly spread. It decodes as many of them, evenly
  spread, as make up `MAX_PIXELS`, and besides every one whose file does not end as its format does. The others are
  decoded when a run reads them, before its first step, or, of a streamed folder, when a step needs them; what cannot
  be decoded is refused with the file's name each time.

Not covered: other formats than PNG and JPEG, color profiles, pictures of several frames.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from trivet.core.errors import MissingExtraError
from trivet.core.places import files_below
from trivet.tasks.data.errors import UnusableDataError

FORMATS = ("PNG", "JPEG")
MAX_PIXELS = 2**28
"""Pixels that a check before work decodes: 870 pictures of 640 × 480, some seconds of one core."""

MAX_FILES = 100_000
"""Files that a check before work opens: half a minute where the disk has them at hand."""

ENDS = {"PNG": b"IEND", "JPEG": b"\xff\xd9"}
TAIL = 64
"""Bytes at the end of a file in which its format's last mark is looked for."""

ORIENTATION = 0x0112
"""Number of the EXIF tag."""


def pillow(extra: str = "vision") -> Any:
    """Pillow's module `Image`; raises `MissingExtraError` that names the extra."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", extra) from error
    return Image


@contextmanager
def opened(path: Path, *, content: bytes | None = None, where: str = "", extra: str = "vision") -> Generator[Any]:
    """A picture, opened; whatever cannot be decoded inside the block is refused with its name.

    Args:
        path: The file.
        content: Its bytes, where they are at hand.
        where: What is named in errors in place of the path.
        extra: The extra that Pillow belongs to.

    Raises:
        UnusableDataError: The file cannot be decoded as PNG or JPEG.
        MissingExtraError: Pillow is not installed.
    """
    Image = pillow(extra)
    from PIL import UnidentifiedImageError

    try:
        with Image.open(path if content is None else io.BytesIO(content), formats=FORMATS) as image:
            yield image
    except (OSError, ValueError, SyntaxError, struct.error, Image.DecompressionBombError) as error:
        is_other = isinstance(error, UnidentifiedImageError)
        reason = "it is none of them, or cut short" if is_other else str(error) or type(error).__name__
        raise UnusableDataError(
            f"{where or path}: cannot be decoded as PNG or JPEG ({reason}); mend or remove it"
        ) from error


def turns(image: Any) -> int:
    """Orientation mark of a picture, 1 to 8; 1 (as it is) where it has none or one that cannot be read."""
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # Pillow would decode all of the picture to look for one behind the pixels
    try:
        mark = image.getexif().get(ORIENTATION, 1)
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, struct.error):
        return 1
    return mark if isinstance(mark, int) and 1 <= mark <= 8 else 1


def upright_size(image: Any) -> tuple[int, int]:
    """Height and width of a picture after it is turned as its mark says."""
    return (image.width, image.height) if turns(image) >= 5 else (image.height, image.width)


def upright(image: Any) -> Any:
    """The picture turned and mirrored as its mark says, decoded."""
    from PIL.Image import Transpose

    ways = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    way = ways.get(turns(image))
    image.load()
    return image if way is None else image.transpose(way)


def eight_bits(image: Any) -> Any:
    """A picture of at most 8 bits a channel; `convert` would cut 16 bits at 255 in place of scaling."""
    if not image.mode.startswith("I"):
        return image
    return pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))


def pictures_in(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files of these suffixes in a folder and below, in no order; hidden ones are left out.

    Raises:
        UnusableDataError: The folder, or one below, cannot be read, or a link leads nowhere.
    """
    try:
        return files_below(folder, suffixes)
    except OSError as error:
        raise UnusableDataError(f"{error.filename}: cannot be read ({error.strerror}); mend or remove it") from error


_seen: dict[tuple[int, int, tuple[tuple[str, int, int], ...]], None] = {}


def check_pictures(paths: Iterable[Path], *, limit: int = MAX_PIXELS, most: int = MAX_FILES) -> None:
    """Refuse pictures that cannot be decoded, as far as `limit` reaches; files that have not changed are asked once.

    Args:
        paths: The files.
        limit: Pixels that are decoded, see the module.
        most: Files that are opened.

    Raises:
        UnusableDataError: A file cannot be decoded; names it.
        MissingExtraError: Pillow is not installed.
    """
    files = list(paths)
    try:
        marks = tuple((str(path), (state := path.stat()).st_size, state.st_mtime_ns) for path in files)
    except OSError as error:
        raise UnusableDataError(f"{error.filename}: cannot be read ({error.strerror})") from error
    if (limit, most, marks) in _seen:
        return
    total = 0
    suspects: list[Path] = []
    files = files[:: max(math.ceil(len(files) / most), 1)]
    for path in files:
        with opened(path) as image:
            total += image.width * image.height
            if not _ends(path, image.format):
                suspects.append(path)
    for path in dict.fromkeys([*suspects, *spread(files, total, limit)]):
        with opened(path) as image:
            # An eighth of the size: every byte is read and its code undone, and half of the work left out.
            image.draft(None, (max(image.width // 8, 1), max(image.height // 8, 1)))
            image.load()
    _seen[limit, most, marks] = None


def spread(files: Sequence[Path], pixels: int, limit: int) -> Sequence[Path]:
    """So many of the files, evenly spread, that their pixels are about `limit`; all where there are no more.

    Examples:
        >>> spread([Path("a"), Path("b"), Path("c")], 30, 20)
        [PosixPath('a'), PosixPath('c')]
    """
    return list(files)[:: max(math.ceil(pixels / max(limit, 1)), 1)]


def _ends(path: Path, kind: str) -> bool:
    """Whether a file ends as its format does; some sound ones have a few bytes behind that."""
    with path.open("rb") as file:
        file.seek(0, io.SEEK_END)
        file.seek(max(file.tell() - TAIL, 0))
        return ENDS[kind] in file.read()
