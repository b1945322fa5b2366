"""What the `task` sections of all tasks have in common, and which section a mapping means. Torch-free.

One task is one row of `TASKS`: its options stand in `<stem>_config.py`, what it does in `<stem>.py`. The options
of a task that is not asked for are never imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from trivet.core.errors import ConfigError, Problem, describe, nearest

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig

COMMAND = "command"
DEFAULT = "image-classification"
"""Task of a section without a name that is no command."""

TASKS: Mapping[str, tuple[str, str]] = {
    DEFAULT: ("image_classification", "ImageClassificationConfig"),
    "language-model": ("language_model", "LanguageModelConfig"),
    "node-classification": ("node_classification", "NodeClassificationConfig"),
    "text-classification": ("text_classification", "TextClassificationConfig"),
    "detection": ("detection", "DetectionConfig"),
    "video-prediction": ("video_prediction", "VideoPredictionConfig"),
    "autoencoding": ("autoencoding", "AutoencodingConfig"),
    COMMAND: (COMMAND, "CommandConfig"),
}
"""Task → stem of its modules, and the class of its options."""

OF_A_COMMAND = ("command", "options", "metrics")
"""Keys that only a command has."""

T = TypeVar("T", bound="TaskConfig")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """The `task` section of a run: a built-in task, or a command. Every task has a class of its own below this one.

    Examples:
        >>> TaskConfig.variant_of({"model": "resnet20"}).__name__
        'ImageClassificationConfig'
        >>> TaskConfig.variant_of({"command": "python train.py --seed {seed}"}).__name__
        'CommandConfig'
    """

    reported: ClassVar[tuple[str, ...]] = ()
    """Final metrics that every run of the task reports; empty when that cannot be known."""

    name: str = ""
    """Which task; empty means `command` where a command is given, else `image-classification`."""

    @property
    def is_command(self) -> bool:
        """Whether the task is a user's own script."""
        return self.name == COMMAND

    @property
    def num_classes(self) -> int:
        """Classes that the task tells apart; 0 where there are none, or that shows only on reading the data."""
        return 0

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """What keeps a run of this task from running, as far as that shows before it starts.

        Args:
            run: The run that the section belongs to.
            file: Named in the problems.

        Raises:
            MissingDataError: The data are not on this machine.
            MissingExtraError: An optional package is needed.
        """
        raise NotImplementedError

    def data_problems(self, run: RunConfig, file: str) -> list[Problem]:
        """What only a look into all of the data shows, in some seconds.

        Asked where a study is planned, but not in a run, which reads its data itself before its first step. See
        `problems` for the rest; where that found something, this is not asked.
        """
        del run, file
        return []

    @staticmethod
    def variant_of(section: Mapping[str, Any]) -> type[TaskConfig]:
        """The class whose options a section holds; `trivet.core.config.build` asks for it.

        Raises:
            ConfigError: No task has that name, or the keys belong to two tasks.
        """
        name = section.get("name", "") or _unnamed(section)
        if name not in TASKS:
            close = nearest(str(name), TASKS)
            fix = f"did you mean {close!r}?" if close else ""
            raise ConfigError([Problem("", "name", describe(name), ", ".join(TASKS), fix)])
        if name == COMMAND:
            foreign = [key for key in ("data", "model", "train_examples", "augment") if section.get(key)]
            if foreign:
                _refuse(section, "a `command` brings its own data and model; remove `data`, `model` and the like")
        elif any(section.get(key) for key in OF_A_COMMAND):
            _refuse(section, f"`command`, `options` and `metrics` belong to a command; remove them or `name: {name}`")
        return task_class(name)


def _unnamed(section: Mapping[str, Any]) -> str:
    """Task of a section without a name; a command that is still to be written counts as one."""
    written = section.get("command") or (
        any(section.get(key) for key in OF_A_COMMAND) and not section.get("model") and not section.get("data")
    )
    return COMMAND if written else DEFAULT


def _refuse(section: Mapping[str, Any], sentence: str) -> None:
    raise ConfigError([Problem("", "", describe(dict(section)), sentence, sentence=sentence)])


def task_class(name: str) -> type[TaskConfig]:
    """The class of a task's options.

    Examples:
        >>> task_class("language-model").reported[0]
        'test_perplexity'
    """
    stem, cls = TASKS[name]
    return getattr(importlib.import_module(f"trivet.tasks.{stem}_config"), cls)


def options_of(run: RunConfig, cls: type[T]) -> T:
    """The options of a run's task, known to be of one task.

    Raises:
        TypeError: The run is of another task.
    """
    if not isinstance(run.task, cls):
        raise TypeError(f"the run is of the task {run.task.name}; allowed: one with a {cls.__name__}")
    return run.task


def said(file: str, key: str, found: str, error: Exception) -> Problem:
    """A problem whose sentence the part that found it has written."""
    return Problem(file, key, found, str(error), sentence=str(error))
