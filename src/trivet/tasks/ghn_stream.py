"""Images of a meta-training run that are decoded from a folder when a step needs them; otherwise as `Images`.

A folder lies class by class, so its training pictures are first ordered by the hash of their position, and so are its
test pictures: those held out, and the first ones that an evaluation takes, are then of all classes. In memory the order
is the same (`mixed`), and so is every batch. Mean and deviation are those of at most `SAMPLE` training pictures.

Not covered: tasks (few-shot sources are held in memory).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trivet.ghn.meta.config import MetaDataConfig
from trivet.ghn.meta.images import Images, Split, check_images
from trivet.tasks.data.image_folder import ImageFolder, PictureFiles
from trivet.tasks.data.select import hash_ranked
from trivet.tasks.image_stream import SAMPLE
from trivet.tasks.picture_decoder import AHEAD, Ahead, Decoded, Decoder, crops_of, finished


def mixed(count: int) -> np.ndarray:
    """Positions of a folder's pictures in the order in which they are taken: int64 [N].

    Examples:
        >>> sorted(mixed(4).tolist())
        [0, 1, 2, 3]
    """
    return hash_ranked(np.arange(count), "mixed")


@dataclass(frozen=True)
class FileSplit(Split):
    """Pictures in files and their labels; `images` lie on the device "meta": a shape without values."""

    paths: Sequence[Path]
    decoder: Decoder

    @classmethod
    def of(cls, paths: Sequence[Path], labels: Tensor, decoder: Decoder) -> FileSplit:
        """The pictures of these files; labels on the device."""
        shape = len(paths), *decoder.folder.shape
        return cls(torch.empty(shape, dtype=torch.uint8, device="meta"), labels, paths, decoder)

    def head(self, count: int) -> Split:
        """The first `count`, decoded and on the device; kept while the same number is asked for."""
        kept = self._kept
        count = min(count, len(self.paths))
        if count not in kept:
            kept.clear()
            images = torch.from_numpy(finished(self.decoder.begin(self.paths[:count])))
            kept[count] = Split(images.to(self.labels.device), self.labels[:count])
        return kept[count]

    @cached_property
    def _kept(self) -> dict[int, Split]:
        return {}


class StreamedImages(Images):
    """`Images` of a folder, decoded when they are needed.

    Args:
        folder: Size and channels of the pictures.
        files: Where they lie.
        config: Size, channels, augmentation.
        seed: Of the run.
        device: Where the networks run.

    Raises:
        ConfigError: The pictures do not fit the configuration.
        UnusableDataError: A picture cannot be decoded; names it. Of most pictures that shows when a step needs them.
    """

    def __init__(
        self, folder: ImageFolder, files: PictureFiles, config: MetaDataConfig, *, seed: int, device: torch.device
    ) -> None:
        decoder = Decoder(folder)
        paths, labels = _mixed(files.train, files.train_labels, device)
        self.test = FileSplit.of(*_mixed(files.test, files.test_labels, device), decoder)
        check_images((len(paths), *folder.shape), self.test.images.shape, config)
        self._prepare_with(config, seed)
        held_out = config.validation_images
        self.train = FileSplit.of(paths[:-held_out], labels[:-held_out], decoder)
        self.validation = FileSplit.of(paths[-held_out:], labels[-held_out:], decoder)
        self.num_classes = len(files.classes)
        self._normalize_by(torch.from_numpy(reduce(np.add, decoder.counts(paths[:-held_out][:SAMPLE]))))
        self._paths, self._decoder = paths, decoder
        self._ahead: Ahead[tuple[int, int]] = Ahead(self._begin)
        self._last: tuple[tuple[int, int], Tensor] | None = None

    def batch(self, *, step: int, place: int, size: int, places: int) -> tuple[Tensor, Tensor]:
        """As `Images.batch`; begins to decode the batches of the same place in the next steps, too."""
        number = step * places + place
        key = size, number
        if self._last is None or self._last[0] != key:  # the networks of a step may share one batch
            coming = [(size, number + places * later) for later in range(1, AHEAD + 1)]
            begun = [other for other in self._ahead.pending if other[0] == size and number < other[1] < coming[-1][1]]
            pictures = torch.from_numpy(self._ahead.take(key, [*begun, *coming]))
            self._last = key, pictures.to(self.train.labels.device)
        return self._changed(self._last[1], number), self.train.labels[self._chosen(size, number)]

    def _begin(self, key: tuple[int, int]) -> Decoded:
        paths, shares = [self._paths[i] for i in self._chosen(*key).tolist()], self.config.crop
        return self._decoder.begin(paths, crops_of(shares, len(paths), seed=self.seed, step=key[1]) if shares else ())


def _mixed(paths: Sequence[Path], labels: np.ndarray, device: torch.device) -> tuple[list[Path], Tensor]:
    order = mixed(len(paths))
    return [paths[i] for i in order], torch.from_numpy(labels[order]).to(device)
