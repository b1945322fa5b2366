"""Video as frames in memory: a file, a folder of pictures, an array, or one that is generated. Loads no torch.

    egomotion                  generated: a drive over a painted plain, see `egomotion.py`
    FOLDER                     its .png and .jpg files (sub-folders too), in the order of the numbers in their names
    FILE.npz, FILE.npy         uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels; in an archive under
                               the name `frames`, or the only array
    FILE                       any video that FFmpeg decodes; needs PyAV (extra `video`)

Frames are resized to the wanted size, stretched where the shape differs: each new pixel is the mean of the area that
it covers, rounded to the nearest whole number, computed exactly. A frame of a video file is taken as it comes; times
are not read.

Not covered: videos larger than memory (a frame takes channels × height × width bytes, before that its own size),
sound, frame rates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from trivet.core.errors import MissingDataError, MissingExtraError
from trivet.core.places import find_place
from trivet.tasks.data.base import ROOT_HINT, roots
from trivet.tasks.data.egomotion import egomotion
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.npz import NPY, check_magic, read_arrays
from trivet.tasks.data.picture_files import eight_bits, opened, pictures_in, upright

EGOMOTION = "egomotion"
"""Name of the generated video."""

EGOMOTION_FRAMES = 6250
"""Its length when none is asked for: 5,000 frames for training when a fifth is held out."""

PICTURES = (".png", ".jpg", ".jpeg")
ARRAYS = (".npz", ".npy")
NO_VIDEOS = ("tty", "hls", "concat", "sdp")
"""What FFmpeg calls a text that it would draw, and lists of other files and addresses, none of which is opened."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey picture (ITU-R BT.601)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VideoData:
    """A video.

    Examples:
        >>> VideoData(source="made up", frames=np.zeros((5, 3, 8, 8), np.uint8)).copy_mse(0, 5)
        0.0
    """

    source: str
    """Where it came from, for a reader."""
    frames: np.ndarray
    """uint8 [N, C, H, W]."""

    def copy_mse(self, start: int, stop: int) -> float:
        """Mean squared error of taking each frame for the next, pixels in [0, 1], over predicted frames of a range."""
        first = max(start, 1)
        total = 0.0
        for index in range(first, stop):
            difference = self.frames[index].astype(np.int64) - self.frames[index - 1]
            total += float((difference * difference).sum())
        return total / 255**2 / max((stop - first) * self.frames[0].size, 1)


def find_video(name: str) -> Path:
    """The file or folder that a name means: a path, looked up here and in the data roots when it is relative.

    Raises:
        MissingDataError: Nothing is there; says where it was looked for.
    """
    missing = f"video {name!r} is not on this machine"
    return find_place(
        name,
        roots(None),
        missing=missing,
        allowed=f"a video file, a folder of pictures, an .npz or .npy array, or {EGOMOTION!r}, generated",
        hint=ROOT_HINT,
        names=(EGOMOTION,),
    )


def load_video(name: str, *, height: int, width: int, channels: int = 3, frames: int = 0) -> VideoData:
    """Read a video, or its first frames.

    Args:
        name: See the module.
        height: Of the frames returned.
        width: Of the frames returned.
        channels: 3, or 1 for grey.
        frames: Read at most so many; 0 for all.

    Raises:
        MissingDataError: Nothing is there.
        MissingExtraError: A package is needed to decode it.
        UnusableDataError: A file is damaged, pictures differ in size, or there is no frame.

    Examples:
        >>> load_video("egomotion", height=24, width=32, frames=10).frames.shape
        (10, 3, 24, 32)
    """
    if name == EGOMOTION:
        return _generated(height, width, channels, frames or EGOMOTION_FRAMES)
    path = find_video(name)
    files = _pictures(path) if path.is_dir() else [path]
    marks = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files[: frames or None])
    return _load(str(path), marks, height, width, channels, frames)


@lru_cache(maxsize=2)
def _generated(height: int, width: int, channels: int, frames: int) -> VideoData:
    video = egomotion(frames, height=height, width=width)
    return VideoData(source=f"{EGOMOTION}, generated", frames=_as_channels(video, channels))


@lru_cache(maxsize=2)
def _load(
    source: str, marks: tuple[tuple[str, int, int], ...], height: int, width: int, channels: int, frames: int
) -> VideoData:
    """Kept, because a plan asks once an arm; the marks of the files notice a change."""
    path, files = Path(source), [Path(name) for name, _, _ in marks]
    if path.is_dir():
        read: Iterable[np.ndarray] = _of_pictures(files)
    elif path.suffix.lower() in ARRAYS:
        read = _of_array(path)
    else:
        read = _of_video(path)
    limited = islice(read, frames) if frames else read
    found = [resized(frame, height=height, width=width) for frame in limited]
    if not found:
        raise UnusableDataError(f"{source}: no frame in it; give a longer video")
    return VideoData(source=source, frames=_as_channels(np.stack(found), channels))


def _pictures(folder: Path) -> list[Path]:
    """Pictures in a folder and below, in the order of the numbers in their names."""
    seen = pictures_in(folder, PICTURES)
    if not seen:
        raise MissingDataError(f"video {str(folder)!r}: the folder holds no picture ({', '.join(PICTURES)})")
    return sorted(seen, key=lambda path: natural(str(path.relative_to(folder))))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts by the numbers in a name, as numbers.

    Examples:
        >>> sorted(["10_a.jpg", "9_a.jpg", "9_b.jpg"], key=natural)
        ['9_a.jpg', '9_b.jpg', '10_a.jpg']
    """
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _of_pictures(files: list[Path]) -> Iterator[np.ndarray]:
    first: tuple[int, int] | None = None
    for path in files:
        with opened(path, extra="video") as stored:
            pixels = np.asarray(eight_bits(upright(stored)).convert("RGB"))
        size = (pixels.shape[1], pixels.shape[0])
        first = first or size
        if size != first:
            raise UnusableDataError(
                f"{path}: {size[0]} × {size[1]} pixels, and {files[0].name} has {first[0]} × {first[1]}; all frames of "
                "a video must be alike: resize them, or keep other pictures elsewhere"
            )
        yield pixels.transpose(2, 0, 1)


def _of_array(path: Path) -> Iterator[np.ndarray]:
    frames = _array(path)
    if frames.dtype == np.uint8 and frames.ndim == 3:
        frames = frames[:, None]
    elif frames.dtype == np.uint8 and frames.ndim == 4 and frames.shape[3] in (1, 3):
        frames = frames.transpose(0, 3, 1, 2)
    elif frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[1] not in (1, 3):
        raise UnusableDataError(
            f"{path}: found {frames.dtype} {list(frames.shape)}; allowed: uint8 [N, H, W], [N, H, W, C] or "
            "[N, C, H, W] with 1 or 3 channels"
        )
    if 0 in frames.shape[1:]:
        raise UnusableDataError(f"{path}: its frames of {list(frames.shape[1:])} hold no pixel")
    yield from (np.repeat(frame, 3, 0) if len(frame) == 1 else frame for frame in frames)


def _array(path: Path) -> np.ndarray:
    if path.suffix.lower() == ".npz":
        arrays = read_arrays(path)
        if "frames" not in arrays and len(arrays) != 1:
            raise UnusableDataError(f"{path}: found the arrays {sorted(arrays)}; allowed: frames, or a single one")
        return arrays.get("frames", next(iter(arrays.values())))
    try:
        check_magic(path, NPY)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UnusableDataError(f"{path}: not a readable numpy array ({error})") from error


def _of_video(path: Path) -> Iterator[np.ndarray]:
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", "video") from error
    first: tuple[int, int] | None = None
    try:
        with av.open(str(path), options={"protocol_whitelist": "file"}) as container:
            if not container.streams.video or container.format.name in NO_VIDEOS:
                raise UnusableDataError(f"{path}: there is no picture in it; give a video")
            for frame in container.decode(video=0):
                pixels = frame.to_ndarray(format="rgb24")
                size = (pixels.shape[1], pixels.shape[0])
                first = first or size
                if size != first:
                    raise UnusableDataError(
                        f"{path}: its frames change from {first[0]} × {first[1]} to {size[0]} × {size[1]} pixels; "
                        "all frames of a video must be alike"
                    )
                yield pixels.transpose(2, 0, 1)
    except (av.FFmpegError, OSError) as error:
        raise UnusableDataError(f"{path}: cannot be decoded as a video ({error}); mend it or give another") from error


def resized(frame: np.ndarray, *, height: int, width: int) -> np.ndarray:
    """A picture of another size: each new pixel is the mean of the area that it covers.

    Args:
        frame: uint8 [C, H, W].
        height: New height.
        width: New width.

    Examples:
        >>> resized(np.array([[[0, 2], [4, 7]]], np.uint8), height=1, width=1).tolist()
        [[[3]]]
    """
    _, old_height, old_width = frame.shape
    if (old_height, old_width) == (height, width):
        return np.ascontiguousarray(frame)
    # Whole numbers below 2^53 all the way, so the sums are exact in any order.
    total = _overlaps(old_height, height) @ frame.astype(np.float64) @ _overlaps(old_width, width).T
    return np.floor(total / (old_height * old_width) + 0.5).astype(np.uint8)


@lru_cache(maxsize=8)
def _overlaps(old: int, new: int) -> np.ndarray:
    """[new, old]: how much of each old pixel a new one covers, in units of 1/new of an old one; rows sum to `old`."""
    ends = np.arange(1, new + 1)[:, None] * old, np.arange(1, old + 1)[None] * new
    starts = ends[0] - old, ends[1] - new
    return np.maximum(np.minimum(*ends) - np.maximum(*starts), 0).astype(np.float64)


def _as_channels(frames: np.ndarray, channels: int) -> np.ndarray:
    if channels == 3:
        return frames
    weights = (np.array(LUMA) * 1000).round().astype(np.int64)
    grey = np.zeros((len(frames), 1, *frames.shape[2:]), np.uint8)
    for index, frame in enumerate(frames):
        grey[index, 0] = (np.tensordot(weights, frame.astype(np.int64), 1) + 500) // 1000
    return grey
