"""Pictures that are decoded when a step needs them, so that a folder of any size trains.

A batch is a pure function of (seed, step), as in memory: threads decode the batches of the next steps ahead, and
neither their number nor a resume changes a bit. With neither crop nor changes of the program, the batches are those of
the same folder in memory. Mean and standard deviation of the channels are those of at most `SAMPLE` training pictures.

Test pictures are decoded anew for every evaluation: the largest centred square, resized.

Not covered: pictures elsewhere than in files, decoding on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from trivet.core.seeding import derive
from trivet.tasks.data.image_folder import ImageFolder, PictureFiles
from trivet.tasks.image_batches import EVALUATION_BATCH, check_batch, statistics_of, subset
from trivet.tasks.image_classification_config import ImageClassificationConfig
from trivet.tasks.picture_decoder import AHEAD, Ahead, Decoded, Decoder, crops_of, finished
from trivet.training.batches import BatchOrder, augment
from trivet.training.config import TrainingConfig
from trivet.training.ranks import own_part

SAMPLE = 2048
"""Training pictures whose mean and standard deviation normalize all, the same ones for every seed."""


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
        self.device, self.seed, self.augment = device, seed, task.augment
        self.train = [files.train[i] for i in chosen]
        self.test = files.test
        self.train_labels = torch.from_numpy(files.train_labels[chosen])
        self.test_labels = torch.from_numpy(files.test_labels).to(device)
        self.num_test = len(files.test)
        self.steps = training.steps
        self.order = BatchOrder(
            num_examples=len(self.train), batch_size=training.batch_size, seed=derive(seed, "batches")
        )
        self.decoder = Decoder(folder, task.workers)
        self.ahead = Ahead(self._begin)
        sample = [self.train[i] for i in subset(len(self.train), min(SAMPLE, len(self.train)))]
        mean, deviation = statistics_of(self.decoder.counts(sample))
        self.statistics = mean.to(device), deviation.to(device)

    def drawn(self, step: int) -> tuple[Tensor, Tensor]:
        """See `Pictures`; begins to decode the next batches, too."""
        images = torch.from_numpy(self.ahead.take(step, range(step + 1, min(step + AHEAD + 1, self.steps))))
        positions = self._positions()
        images = augment(
            images.to(self.device),
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
        coming = [self.decoder.begin(part) for part in parts[:AHEAD]]
        for index, labels in enumerate(self.test_labels.split(EVALUATION_BATCH)):
            if index + AHEAD < len(parts):
                coming.append(self.decoder.begin(parts[index + AHEAD]))
            yield torch.from_numpy(finished(coming.pop(0))).to(self.device), labels

    def _positions(self) -> Tensor:
        """Where this process's part lies in a batch."""
        return own_part(torch.arange(self.order.batch_size))[0]

    def _begin(self, step: int) -> Decoded:
        positions = self._positions()
        paths = [self.train[i] for i in self.order.indices(step)[positions].tolist()]
        if self.augment.crop is None:
            return self.decoder.begin(paths)
        crops = crops_of(self.augment.crop, self.order.batch_size, seed=self.seed, step=step)
        return self.decoder.begin(paths, [crops[i] for i in positions.tolist()])
