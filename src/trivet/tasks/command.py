"""A user's own script as a task, unmodified.

The command runs without a shell, in the folder the study was started from and in the run's own process group; its
output goes to the run's `log.txt`. Its metrics are read from that output by regular expressions, the last match of
each counting, and from the rows that the script logged with `trivet.run()`. A number that is not finite makes the
run "diverged".

Not covered: resuming in the middle. A run that was interrupted starts anew; a script that keeps its own
checkpoints in `{run_dir}` may still go on from them.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from trivet.core.config import to_plain
from trivet.core.errors import ConfigError, Problem, TrivetError
from trivet.core.io import write_json, write_text
from trivet.core.runfolder import RunFolder, RunResult
from trivet.core.user_run import VARIABLE
from trivet.tasks.config import PLACEHOLDER, PYTHONS, RunConfig, placeholders
from trivet.training.fingerprint import fingerprint

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""How long a command that is asked to stop may take before it is killed."""

_NAMES = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "infinity": math.inf, "nan": math.nan, "-nan": math.nan}


class CommandFailed(TrivetError):
    """The user's command ended with an error, or gave no metric."""


def split_command(run: RunConfig, *, run_dir: str) -> list[str]:
    """The words of the command with every placeholder filled in.

    Filled-in text is never split again, so a path with spaces stays one word.

    Args:
        run: A run of a command task.
        run_dir: What `{run_dir}` stands for.

    Raises:
        ConfigError: The quotes of the command do not match.

    Example:
        >>> from trivet.tasks.config import TaskConfig
        >>> split_command(RunConfig(task=TaskConfig(command="train --seed {seed} '{{x}}'"), seed=3), run_dir="/r")
        ['train', '--seed', '3', '{x}']
    """
    values = placeholders(run, run_dir=run_dir)

    def fill(match: re.Match[str]) -> str:
        return values[match.group(1)] if match.group(1) else match.group(0)[0]

    try:
        words = shlex.split(run.task.command)
    except ValueError as error:
        raise ConfigError([Problem("", "task.command", repr(run.task.command), f"matching quotes ({error})")]) from None
    words = [PLACEHOLDER.sub(fill, word) for word in words]
    return [sys.executable, *words[1:]] if words[0] in PYTHONS else words


def run_command(run: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> RunResult | None:
    """Run the command to its end.

    Args:
        run: A run of a command task.
        folder: Where its output goes.
        should_stop: Asked ten times a second.

    Returns:
        The result, or None when the run was stopped.

    Raises:
        CommandFailed: It could not be started, ended with an error, or a metric is missing.
    """
    write_json(folder.environment_path, _environment(run))
    if folder.metrics_path.exists():
        write_text(folder.metrics_path, "")
    words = split_command(run, run_dir=str(folder.path.resolve()))
    started = time.perf_counter()
    with open(folder.log_path, "ab") as log:
        offset = log.tell()
        code = _wait(_start(words, run, folder, log.fileno()), should_stop)
    seconds = time.perf_counter() - started
    if code is None:
        return None
    with open(folder.log_path, "rb") as log:
        log.seek(offset)
        output = log.read().decode("utf-8", errors="replace")
    if code != 0:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise CommandFailed(f"the command {how}: {shlex.join(words)}\nits last lines:\n{_tail(output)}")
    rows = folder.read_metrics()
    values = {**_logged(rows), **extract_metrics(output, run.task.metrics)}
    if not values:
        raise CommandFailed(
            "the command gave no metric: `task.metrics` names none and the script logged none with trivet.run(); "
            "add `metrics: {loss: 'loss: ([0-9.]+)'}` or log some"
        )
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    return RunResult(
        outcome="finished" if len(finite) == len(values) else "diverged",
        metrics=finite if len(finite) == len(values) else {},
        steps=max((int(row.get("step", 0)) for row in rows), default=0),
        seconds=seconds,
        train_seconds=seconds,
    )


def extract_metrics(output: str, patterns: Mapping[str, str]) -> dict[str, float]:
    r"""The last match of each pattern in the output of a command, as a number.

    Args:
        output: All that the command printed.
        patterns: Metric → regular expression whose first group is the number.

    Raises:
        CommandFailed: A pattern matches nowhere, or its group is no number.

    Example:
        >>> extract_metrics("loss: 2.5\nloss: 1.5\n", {"loss": "loss: ([0-9.]+)"})
        {'loss': 1.5}
    """
    values = {}
    for metric, pattern in patterns.items():
        matches = list(re.finditer(pattern, output, re.MULTILINE))
        if not matches:
            raise CommandFailed(
                f"metric {metric!r}: the pattern {pattern!r} matches nothing in the {len(output.splitlines())} lines "
                f"that the command printed; mend `task.metrics.{metric}`; the last lines are:\n{_tail(output)}"
            )
        text = (matches[-1].group(1) or "").strip()
        try:
            values[metric] = _NAMES[text.lower()] if text.lower() in _NAMES else float(text)
        except ValueError:
            raise CommandFailed(
                f"metric {metric!r}: the pattern {pattern!r} matches {text!r}, which is no number; mend "
                f"`task.metrics.{metric}`"
            ) from None
    return values


def _logged(rows: list[dict[str, float | None]]) -> dict[str, float]:
    """Last value of each metric that the script logged; null stands for a number that was not finite."""
    values: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name not in ("step", "seconds"):
                values[name] = math.nan if value is None else float(value)
    return values


def _start(words: list[str], run: RunConfig, folder: RunFolder, output: int) -> subprocess.Popen[bytes]:
    variables = {**os.environ, **run.environment.variables(), VARIABLE: str(folder.path.resolve())}
    variables["PYTHONUNBUFFERED"] = "1"
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables, preexec_fn=die_with_parent
        )
    except OSError as error:
        raise CommandFailed(f"the command cannot be started: {shlex.join(words)}: {error.strerror}") from error


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends, so that nothing outlives a killed study."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait(process: subprocess.Popen[bytes], should_stop: Callable[[], bool]) -> int | None:
    """The exit code, or None when the run was stopped."""
    deadline = 0.0
    while True:
        try:
            code = process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            code = None
        if code == 0:
            return 0
        if should_stop():
            if code is not None:
                return None
            if not deadline:
                deadline = time.monotonic() + GRACE_SECONDS
                process.terminate()
            elif time.monotonic() > deadline:
                process.kill()
        elif code is not None:
            return code


def _environment(run: RunConfig) -> dict[str, object]:
    """Content of environment.json; what a script makes of its settings cannot be read back from outside."""
    return {"requested": to_plain(run.environment), "realised": {}, "not_realised": [], **fingerprint(), "gpu": []}


def _tail(output: str, lines: int = 10) -> str:
    return "\n".join(output.splitlines()[-lines:])
