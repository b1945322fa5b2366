"""Small classification tasks drawn from several sources, each a pure function of (seed, kind, number).

A task takes some classes of one source in a random order, a support set with as many images of each, and query images
that are not among them. Images are shifted and scaled by the mean and deviation of their own support set, so that a
task needs to know nothing but what it shows.

    kind    classes    support                       query
    train   trained    training images               training images
    val     trained    training images               the last tenth of each class's training images, never trained on
    test    held out   training images               test images

Not covered: sources that do not fit in memory, images that are not square after they were cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from trivet.core.errors import ConfigError, Problem
from trivet.core.seeding import derive
from trivet.ghn.batch import Cache
from trivet.ghn.meta.config import MetaDataConfig
from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.networks import PoolNetwork
from trivet.ghn.meta.task_config import TaskClass, TaskKind, TasksConfig
from trivet.training.batches import augment, keyed_generator

if TYPE_CHECKING:
    from trivet.ghn.task_encoder import Task

VALIDATION_PART = 10
"""One in so many training images of a class is for validation."""
MORE = 2
"""Further images of a task, in sizes of its support set; SGD twins choose their learning rate on them."""
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Source:
    """Images of one data set, all of the wanted size and channels."""

    name: str
    """Of the data set."""
    train: Split
    """Training images."""
    test: Split
    """Test images."""

    @cached_property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(max(self.train.labels.max(), self.test.labels.max())) + 1

    @cached_property
    def parts(self) -> dict[str, list[Tensor]]:
        """Images of each class by number: `train`, `val` (both training images) and `test`."""
        every, tests = (
            [torch.nonzero(split.labels == label).flatten() for label in range(self.num_classes)]
            for split in (self.train, self.test)
        )
        cuts = [len(rows) - len(rows) // VALIDATION_PART for rows in every]
        return {
            "train": [rows[:cut] for rows, cut in zip(every, cuts, strict=True)],
            "val": [rows[cut:] for rows, cut in zip(every, cuts, strict=True)],
            "test": tests,
        }


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a task is made of."""

    source: Source
    """Where its images come from."""
    classes: tuple[TaskClass, ...]
    """Its classes: label i means the i-th."""
    support: tuple[Tensor, ...]
    """Training images of the support set, of each class."""
    rest: tuple[Tensor, ...]
    """Further images of each class from the part that queries come from."""


class Tasks:
    """Tasks by number.

    Args:
        sources: The data sets that the configuration names, brought to one format.
        config: What a task is.
        data: Size and channels of the images, and how training images are augmented.
        query: Query images of a training task.
        told: Whether the hypernetwork is shown the support set.
        seed: Of the training tasks.

    Raises:
        ConfigError: No source, or one that is to be trained on, has enough classes or images.

    Examples:
        >>> labels = torch.arange(80) % 8
        >>> split = Split(torch.randint(256, (80, 1, 12, 12), dtype=torch.uint8), labels)
        >>> data = MetaDataConfig(image_size=12, channels=1)
        >>> tasks = Tasks([Source("a", split, split)], TasksConfig(sources=("a",), ways=2, shots=3), data, query=6)
        >>> images, labels = tasks.batch(step=0, place=0, size=6, places=1)
        >>> images.shape, len(tasks.draw("test", 0, 4).test.labels)
        (torch.Size([6, 1, 12, 12]), 4)
    """

    def __init__(
        self,
        sources: Sequence[Source],
        config: TasksConfig,
        data: MetaDataConfig,
        *,
        query: int,
        told: bool = True,
        seed: int = 0,
    ) -> None:
        self.config, self.data, self.query, self.told, self.seed = config, data, query, told, seed
        self._sources = {kind: self._usable(sources, kind) for kind in ("train", "val", "test")}
        self._kept = Cache(64)

    def batch(self, *, step: int, place: int, size: int, places: int) -> tuple[Tensor, Tensor]:
        """Query images and labels for the network at `place` of a step that has `places` different tasks."""
        task = self._training(step * places + place)
        return task.prepare(task.test.images[:size]), task.test.labels[:size]

    def given(self, network: PoolNetwork, *, step: int, place: int, places: int) -> PoolNetwork:
        """The network with the support set of the task that `batch` has the queries of."""
        return self.shown(network, self._training(step * places + place))

    def shown(self, network: PoolNetwork, task: Images) -> PoolNetwork:
        """The network with a task's support set, if the hypernetwork is to see it."""
        return dataclasses.replace(network, task=support_of(task)) if self.told else network

    def choose(self, kind: TaskKind, number: int) -> Drawn:
        """The classes and images of a task, by number.

        Raises:
            ConfigError: No source has enough classes for tasks of this kind.
        """
        sources = self._sources[kind]
        if not sources:
            raise ConfigError([_too_few(f"{kind} tasks of {self.config.ways} classes")])
        seed = self.seed if kind == "train" else self.config.seed
        draw = keyed_generator(seed, "task", kind, number)
        source = sources[_below(len(sources), draw)]
        classes = self.config.classes(source.name, source.num_classes, kind)
        chosen = tuple(classes[i] for i in torch.randperm(len(classes), generator=draw)[: self.config.ways].tolist())
        support: list[Tensor] = []
        rest: list[Tensor] = []
        for label, _ in chosen:
            rows = source.parts["train"][label]
            rows = rows[torch.randperm(len(rows), generator=draw).to(rows.device)]
            support.append(rows[: self.config.shots])
            rest.append(rows[self.config.shots :] if kind == "train" else source.parts[kind][label])
        return Drawn(source, chosen, tuple(support), tuple(rest))

    def draw(self, kind: TaskKind, number: int, query: int) -> Images:
        """A task as data of its own: `train` is the support set and `test` the query images.

        `validation` are further images like those of the support set, which no prediction sees; training tasks have
        their query images there too.

        Args:
            kind: Which kind.
            number: Which of them.
            query: Query images, or as many as there are.
        """
        drawn = self.choose(kind, number)
        seed = derive(self.seed if kind == "train" else self.config.seed, "queries", kind, number)
        known = drawn.source.train
        support = _taken(drawn, known, *_listed(drawn.support))
        if kind == "train":
            asked = _taken(drawn, known, *_some(drawn.rest, query, seed))
            both = torch.cat((support.images, asked.images))
            moved = augment(both, shift=self.data.shift, flip=self.data.flip, seed=seed, step=0)
            count = len(support.labels)
            support, asked = Split(moved[:count], support.labels), Split(moved[count:], asked.labels)
            more = asked
        else:
            split = drawn.source.test if kind == "test" else known
            asked = _taken(drawn, split, *_some(drawn.rest, query, seed))
            more = _taken(drawn, known, *_some(self._unused(drawn), MORE * len(support.labels), seed))
        train = Split(torch.cat((support.images, more.images)), torch.cat((support.labels, more.labels)))
        data = dataclasses.replace(self.data, validation_images=len(more.labels))
        return Images(train, asked, data, seed=seed, device=train.images.device)

    def _training(self, number: int) -> Images:
        return self._kept.get(number, lambda: self.draw("train", number, self.query))

    def _unused(self, drawn: Drawn) -> list[Tensor]:
        """Training images of a task's classes that are not in its support set."""
        rows = [drawn.source.parts["train"][label] for label, _ in drawn.classes]
        return [own[~torch.isin(own, used)] for own, used in zip(rows, drawn.support, strict=True)]

    def _usable(self, sources: Sequence[Source], kind: TaskKind) -> list[Source]:
        """Sources with enough classes for tasks of a kind, and enough images of each."""
        found = []
        for source in sources:
            classes = self.config.classes(source.name, source.num_classes, kind)
            if len(classes) >= self.config.ways:
                self._check_images(source, classes)
                found.append(source)
            elif kind == "train" and source.name in self.config.sources:
                raise ConfigError([_too_few(f"{len(classes)} classes of {source.name} to train on")])
        return found

    def _check_images(self, source: Source, classes: Sequence[TaskClass]) -> None:
        fewest = min(len(source.parts["train"][label]) for label, _ in classes)
        empty = any(not len(source.parts[part][label]) for label, _ in classes for part in ("val", "test"))
        if fewest <= self.config.shots or empty:
            found = f"{self.config.shots}, with a class of {source.name} of {fewest} training images"
            fix = "every class needs more training images than shots, ten of them, and test images"
            raise ConfigError([Problem("", "tasks.shots", found, f"at most {max(1, fewest - 1)}", fix)])


def _too_few(what: str) -> Problem:
    fix = "lower `ways`, change `held_out`, or count turned classes with `turns: true`"
    return Problem("", "tasks", f"too few classes: {what}", "as many classes as `ways`, or more", fix)


def support_of(task: Images) -> Task:
    """The support set of a task, as its networks take images.

    Examples:
        >>> split = Split(torch.randint(256, (40, 1, 28, 28), dtype=torch.uint8), torch.arange(40) % 10)
        >>> images, labels = support_of(Images(split, split, MetaDataConfig(validation_images=10, channels=1)))
        >>> images.shape, len(labels)
        (torch.Size([30, 1, 32, 32]), 30)
    """
    return task.prepare(task.train.images), task.train.labels


def nearest_mean_accuracy(task: Images, query: Split) -> float:
    """Share of the query images whose nearest mean of a class's support images, by pixels, is that of their class.

    What a task is worth without any network.

    Examples:
        >>> levels = torch.arange(40, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
        >>> split = Split(levels, torch.arange(40) // 20)
        >>> task = Images(split, split, MetaDataConfig(validation_images=10, channels=1, image_size=8))
        >>> nearest_mean_accuracy(task, split)
        0.95
    """
    images, labels = support_of(task)
    pixels = images.flatten(1)
    means = torch.stack([pixels[labels == label].mean(0) for label in range(int(labels.max()) + 1)])
    nearest = torch.cdist(task.prepare(query.images).flatten(1), means).argmin(1)
    return float((nearest == query.labels).double().mean())


def brought(images: Tensor, *, channels: int, size: int) -> Tensor:
    """Images in one format: the largest centered square, resized, gray or color as wanted.

    Args:
        images: uint8 [N, C, H, W].
        channels: 1 for gray (ITU-R 601 luma of color), else gray is repeated.
        size: Height and width; bilinear, with anti-aliasing.

    Raises:
        ValueError: Neither gray nor color.

    Examples:
        >>> brought(torch.full((2, 3, 40, 32), 7, dtype=torch.uint8), channels=1, size=28).unique()
        tensor([7], dtype=torch.uint8)
    """
    have, height, width = images.shape[1:]
    if have not in (1, 3) or channels not in (1, 3):
        raise ValueError(f"images of {have} channels cannot become images of {channels}; both must be 1 or 3")
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    images = images[:, :, top : top + side, left : left + side]
    done = []
    for some in images.split(4096):
        if have == 3 and channels == 1:
            weights = torch.tensor(_LUMA, device=some.device).view(1, 3, 1, 1)
            some = (some * weights).sum(1, keepdim=True).round().to(torch.uint8)
        if side != size:
            resized = functional.interpolate(some.float(), (size, size), mode="bilinear", antialias=True)
            some = resized.round().clamp(0, 255).to(torch.uint8)
        done.append(some.expand(-1, channels, -1, -1))
    return torch.cat(done).contiguous()


def _listed(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Images of each class one after the other: their numbers and labels."""
    counts = torch.tensor([len(own) for own in rows])
    numbers = torch.cat(list(rows))
    return numbers, torch.arange(len(rows)).repeat_interleave(counts).to(numbers.device)


def _some(rows: Sequence[Tensor], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The first `count` in a random order, so that a batch has several classes."""
    numbers, labels = _listed(rows)
    order = torch.randperm(len(numbers), generator=keyed_generator(seed, "order"))[:count].to(numbers.device)
    return numbers[order], labels[order]


def _taken(drawn: Drawn, split: Split, numbers: Tensor, labels: Tensor) -> Split:
    """Some images of a task, turned as their class is."""
    images = split.images[numbers]
    turns = torch.tensor([turn for _, turn in drawn.classes], device=labels.device)[labels]
    for turn in range(1, 4):
        own = turns == turn
        images[own] = torch.rot90(images[own], turn, (2, 3))
    return Split(images, labels)


def _below(limit: int, generator: torch.Generator) -> int:
    return int(torch.randint(limit, (), generator=generator))
