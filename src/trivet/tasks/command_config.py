"""Options of a command: a user's own script as a task. Torch-free."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trivet.core.config import to_plain
from trivet.core.errors import Problem, nearest
from trivet.tasks.task_config import TaskConfig

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig

PLACEHOLDER = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_][\w.\-]*)\}")
"""`{name}` in a command; `{{` and `}}` are literal braces, `${NAME}` is left to a shell."""

PYTHONS = ("python", "python3")
"""First words of a command that stand for the Python that runs trivet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandConfig(TaskConfig):
    r"""The `task` section of a run of a user's own script.

    Examples:
        >>> CommandConfig(command="python train.py --seed {seed}", metrics={"loss": r"final loss: (\S+)"}).name
        'command'
    """

    name: Literal["", "command"] = ""
    """command; may be left out where a command is given."""
    command: str = ""
    """Command line of a user's own script, run without a shell; `{seed}`, `{run_dir}` and any key of the
    configuration, such as `{precision.q_min}`, are filled in. A first word `python` is the Python that runs trivet."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Values of the user's own for the command, filled in where it says `{options.NAME}`; what a factor varies."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Metric → regular expression whose first group is its value in the command's output; the last match counts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "command")
        if not self.command.strip():
            raise ValueError("`command` is missing or empty; give the command line of your script")
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

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Quotes that do not match, unknown placeholders, programs that are not there."""
        command = self.command
        try:
            words = shlex.split(command)
        except ValueError as error:
            return [Problem(file, "task.command", repr(command), f"quotes that match ({error})")]
        known = placeholders(run, run_dir="")
        problems: list[Problem] = []
        for match in PLACEHOLDER.finditer(command):
            name = match.group(1)
            if name and name not in known:
                close = nearest(name, known)
                hint = f"did you mean {{{close}}}? " if close else ""
                allowed = "{seed}, {run_dir}, {options.NAME} and keys of the configuration, such as {precision.q_min}"
                fix = f"{hint}for a brace itself write {{{{ or }}}}"
                problems.append(Problem(file, "task.command", f"{{{name}}}", allowed, fix))
        unclosed = [name for name in _UNCLOSED.findall(command) if name in known]
        problems += [Problem(file, "task.command", f"{{{name} without its end", f"{{{name}}}") for name in unclosed]
        for word in re.sub(r"'[^']*'|\"[^\"]*\"", "quoted", command).split():
            if word in SHELL_WORDS:
                allowed, fix = "a program and its arguments", "there is no shell; for one write: sh -c '…'"
                problems.append(Problem(file, "task.command", repr(word), allowed, fix))
        problems += [Problem(file, "task.command", found, "one that is there") for found in _not_there(words)]
        return problems


_UNCLOSED = re.compile(r"\{([a-z_][\w.]*)(?=[\s\"']|$)")

SHELL_WORDS = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1", "&>")
"""Words that mean something to a shell, and would be arguments of the program here."""


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
        >>> from trivet.tasks.config import RunConfig
        >>> run = RunConfig(task=CommandConfig(command="x", options={"lr": 0.1}), seed=4)
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
    walk("options.", plain["task"].get("options", {}))
    walk("", {key: value for key, value in plain.items() if key != "task" and value is not None})
    return values
