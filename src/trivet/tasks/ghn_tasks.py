"""Data and networks of a run on many small tasks: what `trivet ghn train` and `eval` take where `tasks` is given.

Network i of a split is tested on task i, both unseen, so that the standard error over the pairs holds for networks
and tasks together.

Not covered: several tasks for one network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, Literal

import torch

from trivet.core.seeding import derive
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.evaluate import Scores, evaluate, merged
from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.loop import Examples
from trivet.ghn.meta.networks import Pool, PoolNetwork, predict
from trivet.ghn.meta.task_config import TasksConfig
from trivet.ghn.meta.tasks import Source, Tasks, brought, nearest_mean_accuracy
from trivet.tasks.data import ImageData, load_images
from trivet.tasks.ghn import Setting, as_tensor

ALL = 10**9
"""Query images of a task: as many as there are."""


@dataclass(frozen=True)
class TaskSetting(Setting):
    """Tasks and pools of a configuration, made when first asked for."""

    @property
    def tasks_config(self) -> TasksConfig:
        """The section `tasks`."""
        if self.config.tasks is None:
            raise ValueError("the configuration has no section `tasks`")
        return self.config.tasks

    @cached_property
    def loaded(self) -> tuple[ImageData, ...]:
        """The arrays of every source."""
        return tuple(load_images(name) for name in self.tasks_config.all_sources)

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks, on the device."""
        config = self.config
        return Tasks(
            [self._source(name, data) for name, data in zip(self.tasks_config.all_sources, self.loaded, strict=True)],
            self.tasks_config,
            config.data,
            query=config.training.images,
            told=config.ghn.task == "set",
            seed=derive(config.seed, "tasks"),
        )

    def _source(self, name: str, data: ImageData) -> Source:
        def split(images: Any, labels: Any) -> Split:
            wanted = brought(as_tensor(images), channels=self.config.data.channels, size=self.config.data.image_size)
            return Split(wanted.to(self.device), torch.from_numpy(labels).to(self.device))

        train, test = split(data.train_images, data.train_labels), split(data.test_images, data.test_labels)
        return Source(name, train, test)

    @property
    def num_classes(self) -> int:
        """Outputs of the networks."""
        return self.tasks_config.ways

    @property
    def about(self) -> tuple[str, str]:
        """Names and licences of the sources."""
        ways, shots = self.tasks_config.ways, self.tasks_config.shots
        names = ", ".join(data.name for data in self.loaded)
        licences = "; ".join(dict.fromkeys(data.licence for data in self.loaded))
        return f"{ways} classes of {names}, told by {shots} images each", licences

    @property
    def examples(self) -> Examples:
        """What networks are trained on."""
        return self.tasks

    def case(self, kind: Literal["val", "test"], number: int, network: PoolNetwork) -> tuple[PoolNetwork, Images]:
        """The network with the support set of the task of its number, and that task's images."""
        task = self.tasks.draw(kind, number, ALL)
        return self.tasks.shown(network, task), task

    def judge(self, ghn: torch.nn.Module, networks: Pool, kind: Literal["val", "test"], count: int) -> Scores:
        """One prediction for each network and its task, tested on as many query images of it."""
        parts = []
        for number in range(len(networks)):
            shown, task = self.case(kind, number, networks[number])
            size = self.config.evaluation.batch_size
            parts.append(evaluate(ghn, predict, [shown], task.test.head(count), task, batch_size=size))
        return merged(parts)

    def nearest_mean(self, tasks: int, count: int) -> dict[str, float]:
        """Accuracy without any network, on the same test tasks and images: mean, standard error, tasks.

        Each image is given the class whose support images have the nearest mean, by pixels.
        """
        drawn = (self.tasks.draw("test", number, ALL) for number in range(tasks))
        found = [nearest_mean_accuracy(task, task.test.head(count)) for task in drawn]
        error = stdev(found) / math.sqrt(tasks) if tasks > 1 else math.nan
        return {"accuracy": fmean(found), "se": error, "n": tasks}


def setting_of(config: MetaConfig, device: torch.device, cache: Any = None) -> Setting:
    """Data and networks of a configuration, of one data set or of many tasks."""
    return (TaskSetting if config.tasks else Setting)(config, device, cache)
