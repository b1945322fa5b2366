"""What is known of one run, read from its folder. The folder is the truth; nothing else decides a run's state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trivet.core.config import digest
from trivet.core.errors import ConfigError, RunFolderError
from trivet.core.io import FileLock
from trivet.core.runfolder import RunFolder, RunResult
from trivet.core.yamlfile import load_yaml
from trivet.study.plan import PlannedRun

LAST_LINES = re.compile(r"(the last lines are|its last lines):$")
"""How the message of a failed command announces the end of its output."""

State = Literal["finished", "diverged", "failed", "running", "pending", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One run of a study and how it stands.

    A *diverged* run is an outcome; a *failed* one is missing data; an *unreadable* folder is neither and is never
    touched. *Pending* runs have not been started, or were interrupted and will resume.

    Examples:
        >>> record = Record(run_id="ab", arm="RR", levels={}, seed=0, state="pending", folder=Path("ab"))
        >>> record.is_done, record.metrics
        (False, {})
    """

    run_id: str
    """Name of the run folder."""
    arm: str
    """Levels joined by " · "."""
    levels: Mapping[str, str]
    """Factor → level."""
    seed: int
    """Seed of the run."""
    state: State
    """How the run stands."""
    folder: Path
    """The run folder."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Final value of each metric; empty unless the run is done."""
    steps: int = 0
    """Optimiser steps done."""
    bitops: float = 0.0
    """Bit operations of the training, counted."""
    seconds: float = 0.0
    """Wall seconds of the whole run, measured."""
    train_seconds: float = 0.0
    """Wall seconds inside the training loop, measured."""
    reason: str = ""
    """Why a run failed, diverged or cannot be read, what it left out, or how far an interrupted one came."""

    @property
    def is_done(self) -> bool:
        """Whether the run has an outcome."""
        return self.state in ("finished", "diverged")


def read_record(run: PlannedRun, path: Path, config_text: Callable[[], str]) -> Record:
    """Read one run's state from its folder, changing nothing.

    Args:
        run: What was planned.
        path: Where its folder is or would be.
        config_text: Gives the text of config.yaml as trivet writes it, for a cheap comparison.
    """
    folder = RunFolder(path)
    try:
        _check_belongs(run, folder, config_text)
        result = folder.read_result_or_none()
    except RunFolderError as error:
        return _record(run, folder, "unreadable", reason=str(error))
    except OSError as error:
        return _record(run, folder, "unreadable", reason=f"{path}: cannot be read ({error.strerror})")
    if result is not None:
        return done_record(run, path, result)
    if _lock_held(folder):
        return _record(run, folder, "running")
    error_content = folder.read_error()
    if error_content is not None:
        return _record(run, folder, "failed", reason=error_text(error_content))
    return _record(run, folder, "pending", reason=_progress_text(folder))


def done_record(run: PlannedRun, path: Path, result: RunResult) -> Record:
    """Record of a run that has a result."""
    return Record(
        run_id=run.run_id,
        arm=run.arm,
        levels=run.levels,
        seed=run.seed,
        state="finished" if result.outcome == "finished" else "diverged",
        folder=path,
        metrics=dict(result.metrics),
        steps=result.steps,
        bitops=result.bitops,
        seconds=result.seconds,
        train_seconds=result.train_seconds,
        reason=str(result.extra.get("reason", "")) if isinstance(result.extra, Mapping) else "",
    )


def error_text(content: Mapping[str, Any]) -> str:
    r"""One line that says why an attempt crashed; of quoted output its last line that says something.

    Examples:
        >>> error_text({"type": "ValueError", "message": "no such file"})
        'ValueError: no such file'
        >>> error_text({"type": "CommandFailed", "message": "it ended with exit code 1; its last lines:\na\nb\n"})
        'CommandFailed: it ended with exit code 1; its last line: b'
    """
    kind, message = str(content.get("type", "")), str(content.get("message", ""))
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    quoted = [number for number, line in enumerate(lines) if LAST_LINES.search(line)]
    if quoted:
        above, below = lines[: quoted[0] + 1], lines[quoted[0] + 1 :]
        first = LAST_LINES.sub("", " ".join(dict.fromkeys((above[0], above[-1])))).rstrip(";, ")
        first += f"; its last line: {below[-1][:200]}" if below else "; it printed nothing"
    return ": ".join(part for part in (kind, first) if part) or "an error without a message"


def _record(run: PlannedRun, folder: RunFolder, state: State, reason: str = "") -> Record:
    return Record(
        run_id=run.run_id,
        arm=run.arm,
        levels=run.levels,
        seed=run.seed,
        state=state,
        folder=folder.path,
        reason=reason,
    )


def _check_belongs(run: PlannedRun, folder: RunFolder, config_text: Callable[[], str]) -> None:
    """Raise `RunFolderError` when something else lies where the run's folder should be."""
    path = folder.path
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_dir():
        raise RunFolderError(f"{path}: a file lies where a run folder should be; move it away")
    try:
        text = folder.config_path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if any(not name.name.startswith(".") for name in path.iterdir()):
            raise RunFolderError(
                f"{path}: has no config.yaml, so it cannot be told what ran here; move the folder away"
            ) from None
        return
    except UnicodeDecodeError:
        raise RunFolderError(f"{folder.config_path}: is not text; move the folder away") from None
    if text == config_text():
        return
    try:
        found = digest(load_yaml(folder.config_path))
    except (ConfigError, ValueError) as error:
        raise RunFolderError(f"{folder.config_path}: cannot be read ({error}); move the folder away") from None
    if found != run.run_id:
        raise RunFolderError(
            f"{folder.config_path}: is the configuration of another run ({found}); move the folder away"
        )


def _lock_held(folder: RunFolder) -> bool:
    try:
        return FileLock.is_held(folder.lock_path)
    except OSError:
        return False


def _progress_text(folder: RunFolder) -> str:
    if not folder.checkpoint_path.exists():
        return ""
    steps = [row["step"] for row in folder.read_metrics() if isinstance(row.get("step"), int)]
    place = f" after step {max(steps)}" if steps else ""
    return f"interrupted{place}; it resumes from its checkpoint"
