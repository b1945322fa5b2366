"""Which small classification tasks a hypernetwork is trained and tested on: the `tasks` section. Torch-free.

A task is a source of labelled images, some of its classes, and some images of each. Part of the classes of every
source, and all of those of `held_out_sources`, occur in no training task; the tasks that a hypernetwork is tested on
are made of them alone.

Not covered: classes that are the same in two sources; two sources must not show the same things.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from trivet.core.seeding import derive

TaskKind = Literal["train", "val", "test"]
"""`train` and `val` tasks have the same classes and no images in common; `test` tasks have classes held out."""
TaskClass = tuple[int, int]
"""A class of a source, and by how many times 90° its images are turned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksConfig:
    """The `tasks` section.

    Examples:
        >>> TasksConfig(sources=("fashion-mnist:full",), ways=5, turns=True).variants
        4
        >>> TasksConfig(ways=1)
        Traceback (most recent call last):
        ...
        ValueError: `ways=1` must be ≥ 2; a task tells classes apart
    """

    sources: tuple[str, ...] = ("fashion-mnist",)
    """Data sets as `trivet data` lists them; each occurs as often as the others."""
    held_out_sources: tuple[str, ...] = ()
    """Further ones for testing alone."""
    ways: int = 5
    """Classes of a task."""
    shots: int = 16
    """Labelled images of each class that the hypernetwork is shown: the support set."""
    held_out: float = 0.3
    """Share of each source's classes that is for testing alone, rounded to whole classes."""
    turns: bool = False
    """A class also occurs turned by 90°, 180° and 270°, as three more classes, so that there are more tasks."""
    seed: int = 0
    """Decides which classes are held out, and the tasks of tests."""

    def __post_init__(self) -> None:
        if self.ways < 2:
            raise ValueError(f"`ways={self.ways}` must be ≥ 2; a task tells classes apart")
        if self.shots < 1:
            raise ValueError(f"`shots={self.shots}` must be ≥ 1; 16 is the default")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"`held_out={self.held_out}` must lie in [0, 1); 0.3 is the default")
        if not self.sources:
            raise ValueError("`sources` must name one data set or more")
        names = Counter(name.removesuffix(":full") for name in self.all_sources)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise ValueError(f"`sources` hold {twice[0]} twice; classes that are held out would be trained on")

    @property
    def all_sources(self) -> tuple[str, ...]:
        """Those of training, then those of testing alone."""
        return (*self.sources, *self.held_out_sources)

    @property
    def variants(self) -> int:
        """How many classes are made of each."""
        return 4 if self.turns else 1

    def classes(self, source: str, count: int, kind: TaskKind) -> tuple[TaskClass, ...]:
        """Classes of a source of `count` that tasks of this kind are made of.

        Examples:
            >>> config = TasksConfig(held_out=0.3)
            >>> seen, unseen = (config.classes("fashion-mnist", 10, kind) for kind in ("train", "test"))
            >>> len(seen), len(unseen), set(seen) & set(unseen)
            (7, 3, set())
        """
        order = list(range(count))
        random.Random(derive(self.seed, "held out", source)).shuffle(order)
        unseen = count if source in self.held_out_sources else round(self.held_out * count)
        chosen = order[:unseen] if kind == "test" else order[unseen:]
        return tuple((number, turn) for number in sorted(chosen) for turn in range(self.variants))
