"""One run, completely described, and everything that can be refused before it starts. Torch-free.

A run has the sections `task`, `init`, `training`, `precision`, `environment`, `noise` and `curvature`, and a seed. A
task is a built-in one (named) or any command line of the user's; a command needs no `training` section. The options of
each task stand beside it, in `<task>_config.py`; `TaskConfig.variant_of` finds the class that a section means.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, replace

from trivet.audit.curvature_config import CurvatureConfig
from trivet.audit.noise_config import NoiseConfig
from trivet.core.config import UNSET_IS_LEFT_OUT
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import ConfigError, MissingExtraError, Problem, TrivetError
from trivet.ghn.init_config import InitConfig
from trivet.models.names import SMALL_CNN
from trivet.precision.config import PrecisionConfig
from trivet.tasks.task_config import TaskConfig, said
from trivet.training.config import TrainingConfig

__all__ = ["RunConfig", "TaskConfig"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """One run: what, how, at which precision, on what, with which seed.

    Examples:
        >>> from trivet.core.config import build
        >>> run = build(RunConfig, {"task": {"model": "resnet8"}, "training": {"steps": 100}})
        >>> run.task.name, run.seed, run.environment.threads
        ('image-classification', 0, 1)
    """

    task: TaskConfig
    """What is trained."""
    init: InitConfig = field(default_factory=InitConfig)
    """What its parameters are before; empty is its own random initialization."""
    training: TrainingConfig | None = None
    """How; needed by every task but a command."""
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    """At how many bits; empty is full precision."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    """On what."""
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    """What is disturbed on purpose; empty is nothing."""
    curvature: CurvatureConfig = field(default_factory=CurvatureConfig, metadata=UNSET_IS_LEFT_OUT)
    """Where the curvature of the loss is measured; empty is nowhere."""
    seed: int = 0
    """Everything random is derived from it."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"`seed={self.seed}` must be ≥ 0")
        if self.training is None and not self.task.is_command:
            raise ValueError(
                f"`training` is missing; the task {self.task.name} needs at least `training: {{steps: 1000}}`"
            )

    def pinned(self) -> RunConfig:
        """The same run with the contents of what it names by path written into it, for now those of a hypernetwork."""
        return replace(self, init=self.init.pinned())

    def check(self, *, file: str = "", read_data: bool = False) -> None:
        """Refuse what cannot run: unknown models, schedules that do not fit, missing data, bad placeholders.

        Args:
            file: Named in the errors.
            read_data: Whether to look into all of the data too, see `TaskConfig.data_problems`.

        Raises:
            ConfigError: With every problem found.
            MissingDataError: The data are not on this machine.
            MissingExtraError: An optional package is needed.

        Examples:
            >>> from trivet.core.config import build
            >>> try:
            ...     build(RunConfig, {"task": {"command": "python -m train {sed}"}}).check()
            ... except ConfigError as error:
            ...     print(error.problems[0].fix)
            did you mean {seed}? for a brace itself write {{ or }}
        """
        problems: list[Problem] = []
        if self.training is not None and not self.task.is_command:
            try:
                self.precision.build(self.training.steps)
            except ValueError as error:
                problems.append(said(file, "precision", "a schedule that does not fit `training.steps`", error))
            problems += _rate_problems(self.task, self.training, file)
            try:
                self.init.check(num_classes=self.task.num_classes)
            except ValueError as error:
                problems.append(said(file, "init", repr(self.init.ghn), error))
            if not self.init.is_random and getattr(self.task, "pretrained", False):
                allowed = "nothing beside `task.pretrained`: a start of its own would be written over what was learned"
                fix = "remove `init`, or begin at random (`pretrained: false`, for a detector remove it)"
                problems.append(Problem(file, "init", self.init.ghn or self.init.method, allowed, fix))
        if self.environment.backend != "torch":
            problems += _backend_problems(self, file)
        if not self.noise.is_silent and self.task.is_command:
            problems.append(Problem(file, "noise", self.noise.kind, "nothing: a command's tensors are out of reach"))
        if not self.curvature.is_off and self.task.is_command:
            allowed = "nothing: a command's model is out of reach; use trivet.audit.curvature in the script"
            problems.append(Problem(file, "curvature", f"at {list(self.curvature.at)}", allowed))
        elif self.training is not None and max(self.curvature.at, default=0) > self.training.steps:
            allowed = f"steps up to training.steps, which is {self.training.steps}"
            problems.append(Problem(file, "curvature.at", str(list(self.curvature.at)), allowed))
        if self.noise.kind == "race" and self.environment.threads < 2:
            found = f"'race', with environment.threads: {self.environment.threads}"
            problems.append(Problem(file, "noise.kind", found, "two threads or more, as one cannot race"))
        try:
            found = self.task.problems(self, file)
            problems += found or (self.task.data_problems(self, file) if read_data else [])
        except OSError as error:  # of data; a missing package is one too
            if isinstance(error, TrivetError) or not error.filename:
                raise
            allowed = "files and folders that may be read"
            problems.append(Problem(file, "task.data", f"{error.filename} ({error.strerror})", allowed))
        if problems:
            raise ConfigError(problems)


def _rate_problems(task: TaskConfig, training: TrainingConfig, file: str) -> list[Problem]:
    """A problem where the learning rate waits for a metric that the task does not have."""
    if training.schedule.name != "plateau" or "valid_loss" in task.reported:
        return []
    allowed = f"constant, cosine, linear, step: {task.name} has no validation part whose loss `plateau` could watch"
    return [Problem(file, "training.schedule.name", "'plateau'", allowed)]


def _backend_problems(run: RunConfig, file: str) -> list[Problem]:
    """What of a run a second implementation cannot compute.

    Raises:
        MissingExtraError: JAX is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        raise MissingExtraError("jax", "jax")
    model = getattr(run.task, "model", "")
    known = run.task.name == "video-prediction" or (run.task.name == "image-classification" and model == SMALL_CNN)
    training = run.training
    wishes = [
        (known, "task", model or run.task.name, f"video-prediction, and image-classification with {SMALL_CNN}"),
        (run.environment.device != "cuda", "environment.device", "'cuda'", "cpu"),
        (training is None or not training.compile, "training.compile", "true", "false"),
        (training is None or training.autocast == "none", "training.autocast", "'bf16'", "none"),
        (run.precision == PrecisionConfig(), "precision", repr(run.precision.schedule), "full precision"),
    ]
    reason = "environment.backend: jax computes nothing else"
    return [Problem(file, key, found, allowed, reason) for fits, key, found, allowed in wishes if not fits]
