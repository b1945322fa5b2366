"""One run, completely described, and everything that can be refused before it starts. Torch-free.

A run has the sections `task`, `training`, `precision` and `environment`, and a seed. A task is a built-in one (named)
or any command line of the user's; a command needs no `training` section.

Not covered: whether a user's own `python:` model can be built, which only running his code can tell.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trivet.core.config import to_plain
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import ConfigError, Problem, nearest
from trivet.precision.config import PrecisionConfig
from trivet.training.config import TrainingConfig

PLACEHOLDER = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_][\w.\-]*)\}")
"""`{name}` in a command; `{{` and `}}` are literal braces, `${NAME}` is left to a shell."""

MAX_WIDTH = 4096
"""Most channels of a first stage; more is a slip of the pen, or more memory than a machine has."""

PYTHONS = ("python", "python3")
"""First words of a command that stand for the Python that runs trivet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig:
    """Random changes of training images; see `trivet.training.batches.augment`.

    Examples:
        >>> AugmentConfig(shift=2).flip
        False
    """

    shift: int = 0
    """Largest movement in pixels, in both directions; 0 for none."""
    flip: bool = False
    """Mirror left to right half of the time."""

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise ValueError(f"`shift={self.shift}` must be ≥ 0; it counts pixels, 0 is none")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    r"""The `task` section of a run: a built-in task, or a command.

    Examples:
        >>> TaskConfig(model="resnet20").data
        'fashion-mnist'
        >>> TaskConfig(command="python train.py --seed {seed}", metrics={"loss": r"final loss: (\S+)"}).name
        'command'
    """

    name: Literal["", "image-classification", "command"] = ""
    """Which task; empty means `command` where a command is given, else `image-classification`."""
    data: str = ""
    """Data set of image-classification; empty means `fashion-mnist`."""
    model: str = ""
    """Model of image-classification: `resnet20`, `mobilenet_v2`, `torchvision:NAME` or `python:pkg.module:function`."""
    width: int = 16
    """Channels of the first stage of `resnet…`; other models ignore it."""
    train_examples: int = 0
    """Training examples used, the same ones for every seed; 0 uses all."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """Random changes of training images."""
    command: str = ""
    """Command line of a user's own script, run without a shell; `{seed}`, `{run_dir}` and any key of the
    configuration, such as `{precision.q_min}`, are filled in. A first word `python` is the Python that runs trivet."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Values of the user's own for the command, filled in where it says `{options.NAME}`; what a factor varies."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Metric → regular expression whose first group is its value in the command's output; the last match counts."""

    def __post_init__(self) -> None:
        name = self.name or ("command" if self._means_command() else "image-classification")
        object.__setattr__(self, "name", name)
        if name == "command":
            self._check_command()
            return
        if self.command or self.metrics or self.options:
            raise ValueError(f"`command`, `options` and `metrics` belong to a command; remove them or `name: {name}`")
        if not self.model:
            raise ValueError("`model` is missing; give one, such as `model: resnet20`, or a `command`")
        object.__setattr__(self, "data", self.data or "fashion-mnist")
        if not 1 <= self.width <= MAX_WIDTH:
            raise ValueError(f"`width={self.width}` must lie in [1, {MAX_WIDTH}]; it counts channels, 16 is usual")
        if self.train_examples < 0:
            raise ValueError(f"`train_examples={self.train_examples}` must be ≥ 0; 0 uses all")

    def _means_command(self) -> bool:
        """Whether an unnamed task is a command, if one that is still to be written."""
        return bool(self.command or ((self.metrics or self.options) and not self.model and not self.data))

    def _check_command(self) -> None:
        if not self.command.strip():
            raise ValueError("`command` is missing or empty; give the command line of your script")
        if self.data or self.model or self.train_examples or self.augment != AugmentConfig():
            raise ValueError("a `command` brings its own data and model; remove `data`, `model` and the like")
        for metric, pattern in self.metrics.items():
            try:
                groups = re.compile(pattern, re.MULTILINE).groups
            except re.error as error:
                raise ValueError(
                    f"`metrics.{metric}={pattern}` is no regular expression ({error}); mend it, such as 'loss: (\\S+)'"
                ) from None
            if groups < 1:
                raise ValueError(
                    f"`metrics.{metric}={pattern}` has no group; put brackets around the number, such as 'loss: (\\S+)'"
                )

    @property
    def is_command(self) -> bool:
        """Whether the task is a user's own script."""
        return self.name == "command"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """One run: what, how, at which precision, on what, with which seed.

    Examples:
        >>> run = RunConfig(task=TaskConfig(model="resnet8"), training=TrainingConfig(steps=100))
        >>> run.seed, run.environment.threads
        (0, 1)
    """

    task: TaskConfig
    """What is trained."""
    training: TrainingConfig | None = None
    """How; needed by every task but a command."""
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    """At how many bits; empty is full precision."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    """On what."""
    seed: int = 0
    """Everything random is derived from it."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"`seed={self.seed}` must be ≥ 0")
        if self.training is None and not self.task.is_command:
            raise ValueError(
                f"`training` is missing; the task {self.task.name} needs at least `training: {{steps: 1000}}`"
            )

    def check(self, *, file: str = "") -> None:
        """Refuse what cannot run: unknown models, schedules that do not fit, missing data, bad placeholders.

        Args:
            file: Named in the errors.

        Raises:
            ConfigError: With every problem found.
            MissingDataError: The data are not on this machine.
            MissingExtraError: An optional package is needed.

        Examples:
            >>> try:
            ...     RunConfig(task=TaskConfig(command="python -m train {sed}")).check()
            ... except ConfigError as error:
            ...     print(error.problems[0].fix)
            did you mean {seed}? for a brace itself write {{ or }}
        """
        problems = self._command_problems(file) if self.task.is_command else self._image_problems(file)
        if problems:
            raise ConfigError(problems)

    def _image_problems(self, file: str) -> list[Problem]:
        from trivet.models import check_model_name
        from trivet.tasks.data import check_images
        from trivet.tasks.data.sources import find_source

        if self.training is None:
            raise ValueError("`training` is missing")
        problems: list[Problem] = []
        try:
            check_model_name(self.task.model, width=self.task.width)
        except ValueError as error:
            problems.append(_said(file, "task.model", repr(self.task.model), error))
        try:
            self.precision.build(self.training.steps)
        except ValueError as error:
            problems.append(_said(file, "precision", "a schedule that does not fit `training.steps`", error))
        try:
            check_images(self.task.data)
        except ValueError as error:
            problems.append(_said(file, "task.data", repr(self.task.data), error))
            return [*problems, *self._size_problems(file, 0)]
        return [*problems, *self._size_problems(file, find_source(self.task.data).info.num_train)]

    def _size_problems(self, file: str, available: int) -> list[Problem]:
        """Refuse more examples than there are; 0 are available where their number shows only on reading."""
        examples, batch = self.task.train_examples, self.training.batch_size if self.training else 0
        problems: list[Problem] = []
        data = f"the training images of {self.task.data}"
        if 0 < available < examples:
            allowed = f"at most {available} ({data}); 0 uses all"
            problems.append(Problem(file, "task.train_examples", str(examples), allowed, "lower it"))
        if 0 < examples < batch:
            allowed = f"at most task.train_examples={examples}"
            problems.append(Problem(file, "training.batch_size", str(batch), allowed, "lower it, or raise the other"))
        elif 0 < available < batch:
            allowed = f"at most {available} ({data})"
            problems.append(Problem(file, "training.batch_size", str(batch), allowed, "lower it; 128 is common"))
        return problems

    def _command_problems(self, file: str) -> list[Problem]:
        command = self.task.command
        try:
            words = shlex.split(command)
        except ValueError as error:
            return [Problem(file, "task.command", repr(command), f"quotes that match ({error})")]
        known = placeholders(self, run_dir="")
        problems: list[Problem] = []
        for match in PLACEHOLDER.finditer(command):
            name = match.group(1)
            if name and name not in known:
                close = nearest(name, known)
                hint = f"did you mean {{{close}}}? " if close else ""
                allowed = "{seed}, {run_dir}, {options.NAME} and keys of the configuration, such as {precision.q_min}"
                fix = f"{hint}for a brace itself write {{{{ or }}}}"
                problems.append(Problem(file, "task.command", f"{{{name}}}", allowed, fix))
        problems += [Problem(file, "task.command", found, "one that is there") for found in _not_there(words)]
        return problems


def _said(file: str, key: str, found: str, error: ValueError) -> Problem:
    """A problem whose sentence the part that found it has written."""
    return Problem(file, key, found, str(error), sentence=str(error))


def _not_there(words: list[str]) -> list[str]:
    """The program, or the script that Python is to run, when it does not exist here."""
    program, first = words[0], words[1] if len(words) > 1 else ""
    if PLACEHOLDER.search(program):
        return []
    if program not in PYTHONS and shutil.which(program) is None:
        return [f"the program {program!r}, which is not on the PATH"]
    is_script = first.endswith(".py") and not PLACEHOLDER.search(first)
    if is_script and "python" in Path(program).name and not Path(first).is_file():
        return [f"the script {first!r}, which is not in {Path.cwd()}"]
    return []


def placeholders(run: RunConfig, *, run_dir: str) -> dict[str, str]:
    """What each placeholder of a command stands for; a value that is not set is the word `none`.

    Examples:
        >>> run = RunConfig(task=TaskConfig(command="x", options={"lr": 0.1}), seed=4)
        >>> filled = placeholders(run, run_dir="/r")
        >>> filled["seed"], filled["options.lr"]
        ('4', '0.1')
    """
    values = {"run_dir": run_dir}

    def walk(prefix: str, content: Any) -> None:
        for key, value in content.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping):
                walk(f"{name}.", value)
            elif not isinstance(value, list):
                plain_words = isinstance(value, bool) or value is None
                values[name] = str(value).lower() if plain_words else str(value)

    plain = to_plain(run)
    walk("options.", plain["task"]["options"])
    walk("", {key: value for key, value in plain.items() if key != "task" and value is not None})
    return values
