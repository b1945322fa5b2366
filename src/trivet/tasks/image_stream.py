"""Pictures that are decoded when a step needs them, so that a folder of any size trains.

A batch is a pure function of (seed, step), as in memory: threads decode the batches of the next steps ahead, and
neither their number nor a resume changes a bit. With neither crop nor changes of the program, the batches are those of
the same folder in memory. Mean and standard deviation of the channels are those of at most `SAMPLE` training pictures.

Test pictures are decoded anew for every evaluation: the largest centred square, resized.

Not covered: pictures elsewhere than in files, decoding on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trivet.core.seeding import derive
from trivet.tasks.data.crops import TRIES, CropDraws
from trivet.tasks.data.image_folder import ImageFolder, PictureFiles, read_image
from trivet.tasks.image_batches import EVALUATION_BATCH, channel_counts, check_batch, statistics_of, subset
from trivet.tasks.image_classification_config import ImageClassificationConfig
from trivet.training.batches import BatchOrder, augment, keyed_generator
from trivet.training.config import TrainingConfig
from trivet.training.fingerprint import available_cores
from trivet.training.ranks import own_part

AHEAD = 2
"""Batches that are decoded before they are asked for."""
MOST_WORKERS = 8
SAMPLE = 2048
"""Training pictures whose mean and standard deviation normalize all, the same ones for every seed."""

Decoded = list["Future[np.ndarray]"]


class Streamed:
    """See `trivet.tasks.image_batches.Pictures`."""

    def __init__(
        self,
        folder: ImageFolder,
        files: PictureFiles,
        task: ImageClassificationConfig,
        training: TrainingConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        chosen = subset(len(files.train), task.train_examples)
        check_batch(training.batch_size, len(chosen))
        self.folder, self.device, self.seed, self.augment = folder, device, seed, task.augment
        self.train = [files.train[i] for i in chosen]
        self.test = files.test
        self.train_labels = torch.from_numpy(files.train_labels[chosen])
        self.test_labels = torch.from_numpy(files.test_labels).to(device)
        self.num_test = len(files.test)
        self.steps = training.steps
        self.order = BatchOrder(
            num_examples=len(self.train), batch_size=training.batch_size, seed=derive(seed, "batches")
        )
        workers = task.workers or min(MOST_WORKERS, available_cores())
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="trivet-pictures")
        self.pending: dict[int, Decoded] = {}
        sample = [self.train[i] for i in subset(len(self.train), min(SAMPLE, len(self.train)))]
        # Counted picture by picture: thousands of large ones would not fit.
        mean, deviation = statistics_of(self.pool.map(self._counts, sample))
        self.statistics = mean.to(device), deviation.to(device)

    def drawn(self, step: int) -> tuple[Tensor, Tensor]:
        """See `Pictures`; begins to decode the next batches, too."""
        ahead = range(step, min(step + AHEAD + 1, self.steps) if step < self.steps else step + 1)
        for number in [number for number in self.pending if number not in ahead]:
            for future in self.pending.pop(number):
                future.cancel()
        for number in ahead:
            if number not in self.pending:
                self.pending[number] = self._submit(number)
        images = self._gather(self.pending.pop(step))
        positions = self._positions()
        images = augment(
            images,
            shift=self.augment.shift,
            flip=self.augment.flip,
            seed=self.seed,
            step=step,
            part=(int(positions[0]), self.order.batch_size),
        )
        return images, self.train_labels[self.order.indices(step)[positions]].to(self.device)

    def test_parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Pictures`."""
        starts = range(0, self.num_test, EVALUATION_BATCH)
        parts = [self.test[start : start + EVALUATION_BATCH] for start in starts]
        coming = [self._decode(part) for part in parts[:AHEAD]]
        for index, labels in enumerate(self.test_labels.split(EVALUATION_BATCH)):
            if index + AHEAD < len(parts):
                coming.append(self._decode(parts[index + AHEAD]))
            yield self._gather(coming.pop(0)), labels

    def _positions(self) -> Tensor:
        """Where this process's part lies in a batch."""
        return own_part(torch.arange(self.order.batch_size))[0]

    def _submit(self, step: int) -> Decoded:
        positions = self._positions()
        paths = [self.train[i] for i in self.order.indices(step)[positions].tolist()]
        shares = self.augment.crop
        if shares is None:
            return self._decode(paths)
        generator = keyed_generator(self.seed, "crop", step)
        numbers = torch.rand(self.order.batch_size, TRIES, 4, generator=generator, dtype=torch.float64)[positions]
        return self._decode(paths, [CropDraws(row, shares) for row in numbers.numpy()])

    def _decode(self, paths: Sequence[Path], draws: Sequence[CropDraws | None] = ()) -> Decoded:
        return [
            self.pool.submit(self._read, path, crop)
            for path, crop in zip(paths, draws or [None] * len(paths), strict=True)
        ]

    def _read(self, path: Path, draws: CropDraws | None = None) -> np.ndarray:
        return read_image(path, size=self.folder.size, gray=self.folder.gray, draws=draws)

    def _counts(self, path: Path) -> np.ndarray:
        return channel_counts(self._read(path)[None])

    def _gather(self, decoded: Decoded) -> Tensor:
        return torch.from_numpy(np.stack([future.result() for future in decoded])).to(self.device)
