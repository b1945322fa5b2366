"""Pictures of a folder, decoded by threads before they are asked for.

Pillow decodes without Python's lock, so threads of one process are enough, and what is decoded depends on neither their
number nor their order.

Not covered: decoding on a GPU, pictures elsewhere than in files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch

from trivet.tasks.data.crops import TRIES, CropDraws
from trivet.tasks.data.image_folder import ImageFolder, read_image
from trivet.tasks.image_batches import channel_counts
from trivet.training.batches import keyed_generator
from trivet.training.fingerprint import available_cores

MOST_WORKERS = 8
"""Threads, where their number is not given and the machine has as many cores."""

AHEAD = 2
"""Batches that are decoded before they are asked for."""

Key = TypeVar("Key", bound=Hashable)
Decoded = list["Future[np.ndarray]"]
"""Pictures that are being decoded."""


class Decoder:
    """Decodes pictures at the size and with the channels of a folder.

    Args:
        folder: What they are made into.
        workers: Threads; 0 takes one a core, at most `MOST_WORKERS`.
    """

    def __init__(self, folder: ImageFolder, workers: int = 0) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(
            workers or min(MOST_WORKERS, available_cores()), thread_name_prefix="trivet-pictures"
        )

    def begin(self, paths: Sequence[Path], draws: Sequence[CropDraws] = ()) -> Decoded:
        """Begin to decode pictures, with a crop of each where `draws` are given."""
        crops = draws or [None] * len(paths)
        return [self.pool.submit(self._read, path, crop) for path, crop in zip(paths, crops, strict=True)]

    def counts(self, paths: Iterable[Path]) -> Iterator[np.ndarray]:
        """`channel_counts` of each picture; the pictures themselves, thousands of large ones, would not fit."""
        return self.pool.map(self._count, paths)

    def _count(self, path: Path) -> np.ndarray:
        return channel_counts(self._read(path)[None])

    def _read(self, path: Path, crop: CropDraws | None = None) -> np.ndarray:
        return read_image(path, size=self.folder.size, gray=self.folder.gray, draws=crop)


def finished(decoded: Decoded) -> np.ndarray:
    """The pictures, uint8 [N, C, H, W], once they are decoded; raises `UnusableDataError` that names a damaged file."""
    return np.stack([future.result() for future in decoded])


class Ahead(Generic[Key]):
    """Batches that are decoded before they are asked for; those that are not asked for after all are dropped.

    Args:
        begin: Begins to decode the batch of a key.
    """

    def __init__(self, begin: Callable[[Key], Decoded]) -> None:
        self.begin = begin
        self.pending: dict[Key, Decoded] = {}

    def take(self, key: Key, coming: Sequence[Key]) -> np.ndarray:
        """The pictures of one batch; the coming ones are begun, too."""
        wanted = (key, *coming)
        for other in [other for other in self.pending if other not in wanted]:
            for future in self.pending.pop(other):
                future.cancel()
        for each in wanted:
            if each not in self.pending:
                self.pending[each] = self.begin(each)
        return finished(self.pending.pop(key))


def crops_of(shares: tuple[float, float], count: int, *, seed: int, step: int) -> list[CropDraws]:
    """Random numbers for the crops of one step's batch, which follow from seed and step alone."""
    generator = keyed_generator(seed, "crop", step)
    numbers = torch.rand(count, TRIES, 4, generator=generator, dtype=torch.float64)
    return [CropDraws(row, shares) for row in numbers.numpy()]
