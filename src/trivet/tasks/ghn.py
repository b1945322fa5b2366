"""Data and networks of a meta-training run: what `trivet ghn train` and `trivet ghn eval` have in common.

The one place where hypernetworks meet data: images are loaded here and handed to `trivet.ghn.meta` as tensors.

Not covered: few-shot sources larger than memory.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from trivet.core.config import digest, to_plain
from trivet.core.errors import ConfigError, Problem, TrivetError
from trivet.core.io import write_json
from trivet.core.logging import setup_logging
from trivet.core.seeding import derive
from trivet.ghn.deepnets.architecture import Architecture
from trivet.ghn.deepnets.dataset import DeepNets
from trivet.ghn.deepnets.splits import PREDEFINED
from trivet.ghn.ghn import GHN
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.evaluate import Scores, evaluate
from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.loop import Examples
from trivet.ghn.meta.networks import Pool, PoolNetwork, predict
from trivet.ghn.meta.rules import Entry, pool
from trivet.tasks.data import ImageData, load_images
from trivet.tasks.data.image_folder import PREFIX, ImageFolder, PictureFiles, streamed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """Data and pools of a configuration, made when first asked for."""

    config: MetaConfig
    """What is trained, on what."""
    device: torch.device
    """Where."""
    cache: Path | None = None
    """Folder in which pools are remembered."""

    @cached_property
    def data(self) -> ImageData:
        """The arrays.

        Raises:
            ConfigError: The classes do not fit, or the configuration is one of many tasks.
        """
        if self.config.tasks:
            fix = "this needs one data set; give a configuration without that section"
            raise ConfigError([Problem("", "tasks", "a section", "none", fix)])
        data = load_images(self.config.data.name)
        self._check_classes(data.num_classes)
        return data

    @cached_property
    def folder(self) -> tuple[ImageFolder, PictureFiles] | None:
        """The folder whose pictures are decoded when they are needed; None where all are held in memory.

        Raises:
            ConfigError: The classes do not fit.
        """
        data = self.config.data
        found = None if self.config.tasks else streamed(data.name, True if data.crop else data.stream)
        if found:
            self._check_classes(len(found[1].classes))
            logger.info("streaming %d training and %d test pictures", len(found[1].train), len(found[1].test))
        return found

    def _check_classes(self, count: int) -> None:
        if count != self.config.ghn.num_classes:
            found = f"{self.config.ghn.num_classes}, with {self.config.data.name} of {count} classes"
            raise ConfigError([Problem("", "ghn.num_classes", found, str(count))])

    @cached_property
    def images(self) -> Images:
        """The images, on the device."""
        config, seed = self.config, derive(self.config.seed, "images")
        if self.folder:
            from trivet.tasks.ghn_stream import StreamedImages

            return StreamedImages(*self.folder, config.data, seed=seed, device=self.device)
        data = self.data
        train = _split(config.data.name, data.train_images, data.train_labels)
        test = _split(config.data.name, data.test_images, data.test_labels)
        return Images(train, test, config.data, seed=seed, device=self.device)

    @property
    def num_classes(self) -> int:
        """Outputs of the networks."""
        return len(self.folder[1].classes) if self.folder else self.data.num_classes

    @property
    def about(self) -> tuple[str, str]:
        """Name and licence of the data."""
        info = self.folder[0].info if self.folder else None
        return (info.name, info.licence) if info else (self.data.name, self.data.licence)

    @property
    def examples(self) -> Examples:
        """What networks are trained on."""
        return self.images

    def case(self, kind: Literal["val", "test"], number: int, network: PoolNetwork) -> tuple[PoolNetwork, Images]:
        """The network of a number as the hypernetwork is shown it, and the images for it."""
        return network, self.images

    def judge(self, ghn: torch.nn.Module, networks: Pool, kind: Literal["val", "test"], count: int) -> Scores:
        """One prediction for each network, tested on the first images held out for validation, or for testing."""
        split = self.images.validation if kind == "val" else self.images.test
        return self.score(ghn, networks, split.head(count))

    def entries(self, split: str, size: int) -> Sequence[Entry]:
        """The first architectures of a split's pool; found once, then remembered by their numbers."""
        config = self.config
        if split == PREDEFINED:
            return [Entry(number=number, architecture=network) for number, network in enumerate(DeepNets(PREDEFINED))]
        about = {
            "num_classes": self.num_classes,
            "in_channels": config.data.channels,
            "image_size": config.data.image_size,
        }
        rules = {**to_plain(config.pool), "size": size}
        path = (
            self.cache / f"pool-{split}-{digest({**about, **rules})}.json"
            if self.cache and not config.pool.published
            else None
        )
        if path and path.is_file():
            rows = json.loads(path.read_text(encoding="utf-8"))
            return [Entry(number=number, architecture=Architecture.from_dict(plain)) for number, plain in rows]
        logger.info("choosing %d architectures of the split %s", size, split)
        entries = pool(split, config.pool, size, **about)
        if path:
            write_json(path, [[entry.number, entry.architecture.to_dict()] for entry in entries])
        return entries

    def networks(self, split: str, size: int, *, dropout: bool = False, workers: int = 0) -> Pool:
        """The networks of the first architectures of a split's pool."""
        config = self.config
        return Pool(
            self.entries(split, size),
            num_classes=self.num_classes,
            in_channels=config.data.channels,
            image_size=config.data.image_size,
            device=self.device,
            dropout=dropout,
            workers=workers,
        )

    def score(self, ghn: torch.nn.Module, networks: Pool, images: Split) -> Scores:
        """One prediction for each network, tested on the images."""
        size = self.config.evaluation.batch_size
        return evaluate(ghn, predict, networks, images, self.images, batch_size=size)


@contextmanager
def without_denormals() -> Generator[None]:
    """Inside, numbers near zero are zero: networks without norms make them, and a CPU computes them slowly."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def new_ghn(config: MetaConfig) -> GHN:
    """The hypernetwork before training.

    Raises:
        ValueError: There is no hypernetwork to start from, or it is another kind than `config.ghn`.
    """
    start = config.training.start_from
    if not start:
        return GHN(config.ghn, seed=derive(config.seed, "ghn"))
    ghn = GHN.from_pretrained(start)
    theirs, ours = to_plain(ghn.config), to_plain(config.ghn)
    other = [name for name in ours if theirs[name] != ours[name]]
    if other:
        raise ValueError(
            f"`training.start_from={start}` has other values of `ghn` than this configuration: "
            + ", ".join(f"{name}: {theirs[name]!r} instead of {ours[name]!r}" for name in other)
            + "; write its values into the section `ghn`"
        )
    return ghn


def _split(name: str, images: np.ndarray, labels: np.ndarray) -> Split:
    """Images and labels as tensors; those of a folder, which lie class by class, in an order of their own."""
    if name.startswith(PREFIX):
        from trivet.tasks.ghn_stream import mixed

        order = mixed(len(labels))
        images, labels = images[order], labels[order]
    return Split(as_tensor(images), torch.from_numpy(labels))


def as_tensor(images: Any) -> torch.Tensor:
    """Images with the strides of a fresh tensor; numpy's may make torch corrupt memory, see `image_classification`."""
    return torch.from_numpy(images).clone(memory_format=torch.contiguous_format)


def answer(
    arguments: Sequence[str], module: str, rows: Callable[[Mapping[str, Any]], Iterator[Mapping[str, Any]]]
) -> int:
    """What the process `python -m module REQUEST` does: print one JSON object a line as they come.

    Args:
        arguments: Of the command line: the request, as JSON.
        module: Its name, for the usage.
        rows: Answers a request.

    Returns:
        The exit code; on an error the last line of standard error says what went wrong.
    """
    if len(arguments) != 1:
        sys.stderr.write(f"usage: python -m {module} REQUEST\n")
        return 2
    setup_logging()
    try:
        with without_denormals():
            for row in rows(json.loads(arguments[0])):
                sys.stdout.write(f"{json.dumps(row)}\n")
                sys.stdout.flush()
    except (TrivetError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return getattr(error, "exit_code", 2)
    return 0
