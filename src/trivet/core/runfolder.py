"""The format of a run folder: the one thing that the side that trains and the side that judges share.

config.yaml        the resolved configuration, seed included
environment.json   settings asked for and realised, machine, packages
metrics.jsonl      one row a logged step
log.txt            everything the run printed
error.json         why the last attempt crashed; gone once a new attempt starts
checkpoint/        what a resume needs
source/            what ran
result.json        written last and atomically: a run is done exactly when it is there
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trivet.core.errors import RunFolderError
from trivet.core.io import read_jsonl, write_json

FORMAT = 1
"""Version of result.json."""

OUTCOMES = ("finished", "diverged")
"""How a run that is done can have ended. A crashed run is not done: it is missing data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """What a finished run leaves behind.

    `outcome`, `metrics` and `steps` are free of clocks and machine names: equal runs compare equal on them.

    Examples:
        >>> RunResult(outcome="finished", metrics={"test_accuracy": 0.9}, steps=10).outcome
        'finished'
    """

    outcome: str
    """One of `OUTCOMES`."""
    metrics: Mapping[str, float]
    """Final value of each metric, by name; only finite numbers."""
    steps: int = 0
    """Optimiser steps done."""
    bitops: float = 0.0
    """Bit operations of the training, counted (not seconds)."""
    seconds: float = 0.0
    """Wall seconds of the whole run over all its attempts, measured."""
    train_seconds: float = 0.0
    """Wall seconds inside the training loop over all attempts, measured."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Anything else worth keeping, JSON values only."""

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"`outcome={self.outcome!r}` must be one of {', '.join(OUTCOMES)}")
        for name, value in self.metrics.items():
            if not math.isfinite(value):
                raise ValueError(f"metric {name!r} is {value}; leave out what is not a finite number")

    @property
    def comparable(self) -> tuple[str, dict[str, float], int]:
        """The part that is equal for equal runs."""
        return self.outcome, dict(self.metrics), self.steps


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run, and reading and writing what lies there.

    Examples:
        >>> import tempfile
        >>> run = RunFolder(Path(tempfile.mkdtemp()))
        >>> run.write_result(RunResult(outcome="finished", metrics={"loss": 1.0}, steps=1))
        >>> run.is_done, run.read_result().metrics
        (True, {'loss': 1.0})
    """

    path: Path

    @property
    def config_path(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def environment_path(self) -> Path:
        """Settings asked for and realised."""
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        """Rows of logged metrics."""
        return self.path / "metrics.jsonl"

    @property
    def log_path(self) -> Path:
        """Everything the run printed."""
        return self.path / "log.txt"

    @property
    def checkpoint_path(self) -> Path:
        """Folder of what a resume needs."""
        return self.path / "checkpoint"

    @property
    def source_path(self) -> Path:
        """Folder of what ran."""
        return self.path / "source"

    @property
    def pictures_path(self) -> Path:
        """Folder of PNG files that the report shows; most runs have none."""
        return self.path / "pictures"

    @property
    def result_path(self) -> Path:
        """The result; its presence means done."""
        return self.path / "result.json"

    @property
    def error_path(self) -> Path:
        """Why the last attempt crashed."""
        return self.path / "error.json"

    @property
    def lock_path(self) -> Path:
        """Locked by the process that runs this run, while it lives."""
        return self.path / ".lock"

    @property
    def is_done(self) -> bool:
        """Whether a readable result is there. A result that is there but unreadable raises `RunFolderError`."""
        return self.read_result_or_none() is not None

    def read_result_or_none(self) -> RunResult | None:
        """The result, or None when the run is not done.

        Raises:
            RunFolderError: Something that is no result lies in its place; it is never overwritten.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path}: a file lies where a run folder should be; move it away")
        try:
            text = self.result_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise RunFolderError(f"{self.result_path}: cannot be read ({error}); mend or remove it") from error
        try:
            return _parse_result(json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            raise RunFolderError(
                f"{self.result_path}: is not a result ({type(error).__name__}: {error}); "
                "remove it to run this run again"
            ) from error

    def read_result(self) -> RunResult:
        """The result of a run that is done; `RunFolderError` when it is not."""
        result = self.read_result_or_none()
        if result is None:
            raise RunFolderError(f"{self.path}: this run is not done (no result.json)")
        return result

    def write_result(self, result: RunResult) -> None:
        """Write the result, last of all and atomically."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "outcome": result.outcome,
            "metrics": dict(result.metrics),
            "steps": result.steps,
            "bitops": result.bitops,
            "seconds": result.seconds,
            "train_seconds": result.train_seconds,
        }
        if result.extra:
            content["extra"] = dict(result.extra)
        write_json(self.result_path, content)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Logged rows, torn ones left out."""
        return read_jsonl(self.metrics_path)

    def read_environment(self) -> dict[str, Any]:
        """The environment record, or an empty one when it is missing or unreadable."""
        return _read_mapping(self.environment_path) or {}

    def read_error(self) -> dict[str, Any] | None:
        """The error of the last attempt, or None."""
        return _read_mapping(self.error_path)


def _read_mapping(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _parse_result(content: Any) -> RunResult:
    if not isinstance(content, dict):
        raise TypeError("a JSON object is expected")
    if content.get("format", FORMAT) > FORMAT:
        raise ValueError(f"format {content['format']} is newer than this trivet ({FORMAT}); upgrade trivet")
    metrics = content["metrics"]
    if not isinstance(metrics, dict):
        raise TypeError("`metrics` must be an object")
    return RunResult(
        outcome=content["outcome"],
        metrics={str(name): float(value) for name, value in metrics.items()},
        steps=int(content.get("steps", 0)),
        bitops=float(content.get("bitops", 0.0)),
        seconds=float(content.get("seconds", 0.0)),
        train_seconds=float(content.get("train_seconds", 0.0)),
        extra=content.get("extra", {}),
    )
