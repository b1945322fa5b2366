"""A data set as two numpy archives in a folder, `train.npz` and `test.npz`.

Either plain arrays, `x` (uint8, [N, H, W], [N, H, W, C] or [N, C, H, W] with C = 1 or 3) and `y` (whole numbers [N]),
also under the names `images` and `labels`; or compressed images, `jpeg` (uint8, all files one after the other),
`offsets` (int64 [N + 1], where each begins and the last ends) and `label` (whole numbers [N]), which needs Pillow
(extra `vision`).

Nothing is unpickled. Not covered: float pixels, images of different sizes in one archive.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trivet.core.errors import MissingExtraError
from trivet.tasks.data.base import Layout, Splits
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.picture_files import eight_bits, opened, upright

ZIP, NPY = b"PK", b"\x93NUMPY"
"""How an archive and a single array begin."""

GLANCED = 1000
"""Compressed images of an archive that are decoded in a check before work; the archive's own checksums cover all."""


def npz_layout(*folders: str) -> Layout:
    """The layout `train.npz` and `test.npz` in one of these folders.

    Examples:
        >>> npz_layout("cifar10").files
        (('train.npz',), ('test.npz',))
    """
    return Layout(folders=folders, files=(("train.npz",), ("test.npz",)), read=_read, check=_check, glance=_glance)


def _check(paths: list[Path]) -> None:
    """Compressed images need Pillow; say so before anything is read."""
    for path in paths:
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            if "jpeg.npy" in archive.namelist() and importlib.util.find_spec("PIL") is None:
                raise MissingExtraError("pillow", "vision")


def _read(paths: list[Path]) -> Splits:
    train, test = (read_npz(path) for path in paths)
    return Splits(*train, *test)


def _glance(paths: list[Path]) -> Splits:
    """Everything but most of the compressed images."""
    train, test = (read_npz(path, decoded=GLANCED) for path in paths)
    return Splits(*train, *test)


def read_npz(path: Path, *, decoded: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one archive.

    Args:
        path: The `.npz` file.
        decoded: How many compressed images are decoded, evenly spread; each stands for those behind it. 0 decodes all.

    Returns:
        Images, uint8 [N, C, H, W], and labels, whole numbers [N].

    Raises:
        UnusableDataError: The archive is damaged or its arrays are none of the two forms.
        MissingExtraError: The images are compressed and Pillow is not installed.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "train.npz"
        >>> np.savez(file, x=np.zeros((5, 8, 8, 3), np.uint8), y=np.arange(5))
        >>> images, labels = read_npz(file); images.shape
        (5, 3, 8, 8)
    """
    arrays = read_arrays(path)
    for image_name, label_name in (("x", "y"), ("images", "labels")):
        if {image_name, label_name} <= arrays.keys():
            return _channels_first(arrays[image_name], path), _labels(arrays[label_name], path)
    if {"jpeg", "offsets", "label"} <= arrays.keys():
        return _decode(arrays, path, decoded), _labels(arrays["label"], path)
    raise UnusableDataError(
        f"{path}: found the arrays {sorted(arrays)}; allowed: x and y, images and labels, or jpeg, offsets and label"
    )


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` archive, by name; raises `UnusableDataError` when it is damaged or needs unpickling.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.npz"
        >>> np.savez(file, x=np.arange(3))
        >>> read_arrays(file)
        {'x': array([0, 1, 2])}
    """
    try:
        check_magic(path, ZIP)
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            with archive:
                return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, MemoryError, zlib.error, zipfile.BadZipFile) as error:
        raise UnusableDataError(f"{path}: not a readable numpy archive of plain arrays ({error})") from error


def check_magic(path: Path, start: bytes) -> None:
    """Refuse a file that begins otherwise; numpy would take it for a pickle, and advise to unpickle it.

    Raises:
        ValueError: It begins otherwise.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        found = file.read(len(start))
    if found != start:
        raise ValueError(f"it begins with {found!r}, and such a file with {start!r}" if found else "it is empty")


def _labels(labels: np.ndarray, path: Path) -> np.ndarray:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UnusableDataError(f"{path}: found labels {labels.dtype} {list(labels.shape)}; allowed: whole numbers [N]")
    return labels


def _channels_first(images: np.ndarray, path: Path) -> np.ndarray:
    if images.dtype == np.uint8 and images.ndim == 3:
        return images[:, None]
    if images.dtype == np.uint8 and images.ndim == 4 and images.shape[3] in (1, 3):
        return images.transpose(0, 3, 1, 2)
    if images.dtype == np.uint8 and images.ndim == 4 and images.shape[1] in (1, 3):
        return images
    raise UnusableDataError(
        f"{path}: found images {images.dtype} {list(images.shape)}; allowed: uint8 [N, H, W], [N, H, W, C] or "
        f"[N, C, H, W] with 1 or 3 channels"
    )


def _decode(arrays: Mapping[str, np.ndarray], path: Path, decoded: int) -> np.ndarray:
    """Decode a blob of image files: uint8 [N, C, H, W]."""
    blob, offsets = arrays["jpeg"], arrays["offsets"].astype(np.int64)
    if blob.dtype != np.uint8 or blob.ndim != 1 or offsets.ndim != 1 or len(offsets) != len(arrays["label"]) + 1:
        raise UnusableDataError(
            f"{path}: found jpeg {blob.dtype} {list(blob.shape)}, offsets {list(offsets.shape)}; allowed: uint8 [B] "
            f"and [{len(arrays['label']) + 1}], one offset more than labels"
        )
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(blob) or (np.diff(offsets) <= 0).any():
        raise UnusableDataError(f"{path}: the offsets must rise from 0 to the length of jpeg, {len(blob)}")
    content, every = blob.tobytes(), math.ceil((len(offsets) - 1) / decoded) if decoded else 1
    images: list[np.ndarray] = []
    for index, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        if index % every:
            images.append(images[-1])
            continue
        with opened(path, content=content[start:end], where=f"{path}: image {index}") as stored:
            image = upright(stored)
            images.append(np.asarray(image if image.mode in ("L", "RGB") else eight_bits(image).convert("RGB")))
        if images[-1].shape != images[0].shape:
            raise UnusableDataError(
                f"{path}: image {index} is {list(images[-1].shape)} and image 0 is {list(images[0].shape)}; "
                f"they must be alike"
            )
    return _channels_first(np.stack(images), path)
