"""A user's own script as a task, unmodified.

The command runs without a shell, in the folder the study was started from and in the run's own process group; its
output goes to the run's `log.txt`. Its metrics are read from that output by regular expressions, the last match of
each counting, and from the rows that the script logged with `trivet.run()`. The run is "diverged" when a metric that it
is judged by is not finite: one of `task.metrics`, or the metric of the study that the run folder lies in (any metric
where neither is known). Another metric that is not finite is left out, and the result says so.

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
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trivet.core.config import to_plain
from trivet.core.errors import ConfigError, Problem, TrivetError
from trivet.core.io import write_json, write_text
from trivet.core.processes import die_with_parent
from trivet.core.runfolder import RunFolder, RunResult
from trivet.core.user_run import VARIABLE
from trivet.core.yamlfile import load_yaml
from trivet.tasks.command_config import PLACEHOLDER, PYTHONS, CommandConfig, placeholders
from trivet.tasks.config import RunConfig
from trivet.tasks.task_config import options_of
from trivet.training.fingerprint import fingerprint

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""How long a command that is asked to stop may take before it is killed."""

NUMBER_GOES_ON = re.compile(r"[eE][+-]?\d|[._]?\d")
"""What behind a matched number says that the pattern cut it short."""

_NUMBER = r"([-+]?(?:(?:nan|inf|infinity|NaN|Inf|Infinity|NAN|INF)\b|\.?\d[\w.+-]*))"

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

    Examples:
        >>> split_command(RunConfig(task=CommandConfig(command="train --seed {seed} '{{x}}'"), seed=3), run_dir="/r")
        ['train', '--seed', '3', '{x}']
    """
    command, values = options_of(run, CommandConfig).command, placeholders(run, run_dir=run_dir)

    def fill(match: re.Match[str]) -> str:
        return values[match.group(1)] if match.group(1) else match.group(0)[0]

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError([Problem("", "task.command", repr(command), f"matching quotes ({error})")]) from None
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
    wanted = options_of(run, CommandConfig).metrics
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
    values = {**_logged(rows), **extract_metrics(output, wanted)}
    if not values:
        raise CommandFailed(
            "the command gave no metric: `task.metrics` names none and the script logged none with trivet.run(); "
            "add `metrics: {loss: 'loss: (\\S+)'}` or log some"
        )
    judged = {*wanted, *_study_metric(folder)}
    outcome, finite, extra = _judge(values, judged or values.keys())
    if extra:
        logger.warning("%s", extra["reason"])
    return RunResult(
        outcome=outcome,
        metrics=finite,
        steps=max((_step(row.get("step")) for row in rows), default=0),
        seconds=seconds,
        train_seconds=seconds,
        extra=extra,
    )


def _judge(values: Mapping[str, float], judged: Collection[str]) -> tuple[str, dict[str, float], dict[str, Any]]:
    """Outcome, finite metrics, and, when a metric is not finite, a line that names it."""
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    broken = [name for name in values if name not in finite]
    fatal = [name for name in broken if name in judged]
    if fatal:
        return "diverged", {}, {"reason": f"not a finite number at the end: {', '.join(fatal)}"}
    if broken:
        return "finished", finite, {"reason": f"left out, not a finite number at the end: {', '.join(broken)}"}
    return "finished", finite, {}


def _study_metric(folder: RunFolder) -> tuple[str, ...]:
    """Name of the metric of the study that the run folder lies in; nothing when it lies in none."""
    try:
        metric = load_yaml(folder.path.resolve().parent / "study.yaml").get("metric")
    except (ConfigError, OSError):
        return ()
    name = metric.get("name") if isinstance(metric, Mapping) else None
    return (name,) if isinstance(name, str) else ()


def _step(value: object) -> int:
    """A step as logged; 0 for what is no whole number of 64 bits (rows of a script that writes them itself)."""
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0


def extract_metrics(output: str, patterns: Mapping[str, str]) -> dict[str, float]:
    r"""The last match of each pattern in the output of a command, as a number.

    Args:
        output: All that the command printed.
        patterns: Metric → regular expression whose first group is the number.

    Raises:
        CommandFailed: A pattern matches nowhere, its group is no number, or is only the beginning of one.

    Examples:
        >>> extract_metrics("loss: 2.5\nloss: 1.5\n", {"loss": r"loss: (\S+)"})
        {'loss': 1.5}
    """
    values = {}
    for metric, pattern in patterns.items():
        matches = list(re.finditer(pattern, output, re.MULTILINE))
        match = matches[-1] if matches else None
        later = _passed_over(pattern, output, match.start() + 1 if match else 0)
        if later.lower() in _NAMES:
            values[metric] = _NAMES[later.lower()]
            continue
        if later:
            raise _cut(metric, pattern, f"passes over {later!r}")
        if match is None:
            raise CommandFailed(
                f"metric {metric!r}: the pattern {pattern!r} matches nothing in the {len(output.splitlines())} lines "
                f"that the command printed; mend `task.metrics.{metric}`; the last lines are:\n{_tail(output)}"
            )
        _check_whole(metric, pattern, match)
        text = (match.group(1) or "").strip().rstrip(",;")
        try:
            values[metric] = _NAMES[text.lower()] if text.lower() in _NAMES else float(text)
        except ValueError:
            raise CommandFailed(
                f"metric {metric!r}: the pattern {pattern!r} matches {text!r}, which is no number; mend "
                f"`task.metrics.{metric}`"
            ) from None
    return values


def _parts(pattern: str) -> tuple[str, str]:
    """What stands before and after the only group of a pattern; empty texts when it is not of that form."""
    found = re.fullmatch(r"((?:\\.|[^\\()\[|])*)\((?!\?)[^()]*\)((?:\\.|[^\\()|])*)", pattern)
    return (found.group(1), found.group(2)) if found else ("", "")


def _passed_over(pattern: str, output: str, since: int) -> str:
    """The last number (or nan, inf) where the pattern's own number should be and that the pattern does not match."""
    head, tail = _parts(pattern)
    last = ""
    if head:
        for found in re.compile(head + _NUMBER + tail, re.MULTILINE).finditer(output, since):
            last = found.group(1)
    return last


def _check_whole(metric: str, pattern: str, match: re.Match[str]) -> None:
    """Refuse a match that stops in the middle of a number, such as 1.5 of 1.5e-05, or leaves its minus out."""
    text, (start, end) = match.group(1), match.span(1)
    if not text or match.end() != end:  # what follows is in the pattern: on purpose
        return
    before, after = match.string[max(0, start - 2) : start], match.string[end : end + 20]
    goes_on = text[-1] in "0123456789." and NUMBER_GOES_ON.match(after) is not None
    minus = text[0].isdigit() and before[-1:] == "-" and not before[:1].isalnum()
    minus = minus and not _parts(pattern)[0].endswith("-")
    if goes_on or minus:
        whole = f"{'-' if minus else ''}{text}{after.split(maxsplit=1)[0] if goes_on else ''}"
        raise _cut(metric, pattern, f"takes {text!r} out of {whole!r}, which is another number")


def _cut(metric: str, pattern: str, what: str) -> CommandFailed:
    head, tail = _parts(pattern)
    better = f"{head}(\\S+){tail}"
    return CommandFailed(
        f"metric {metric!r}: the pattern {pattern!r} {what}; write `task.metrics.{metric}: '{better}'`, which takes "
        "numbers of every form"
    )


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
