"""One run from its folder to its result: what `python -m trivet.tasks RUN_DIR` does.

Exit codes: 0 `result.json` is written (finished or diverged) · 1 crashed, `error.json` says why · 2 configuration or
data refused, `error.json` too · 128 + signal: asked to stop (143 for SIGTERM), a checkpoint is written.

The run holds a lock on its folder while it lives, resumes from its checkpoint, and writes `result.json` last,
atomically.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import trivet
from trivet.core.config import build, digest, load_yaml
from trivet.core.errors import ConfigError, RunFolderError, TrivetError
from trivet.core.io import FileLock, write_json, write_text
from trivet.core.logging import setup_logging
from trivet.core.runfolder import RunFolder, RunResult
from trivet.tasks.config import RunConfig

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """The run was asked to stop and can be resumed."""


class StopFlag:
    """Remembers the signal that asked the run to stop.

    Examples:
        >>> StopFlag()()
        False
    """

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        """Whether the run shall stop."""
        return self.signal != 0

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    @contextmanager
    def installed(self) -> Generator[StopFlag]:
        """Handle SIGTERM and SIGINT inside the `with` block (main thread only)."""
        old = {number: signal.signal(number, self._set) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield self
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


Work = Callable[[RunFolder, StopFlag, float], RunResult]
"""What a run does: its folder, whether it shall stop, and when it started (of `perf_counter`) → its result."""


def run_task(run_dir: Path | str, work: Work | None = None) -> int:
    """Do one run, or the rest of it.

    Args:
        run_dir: Folder with a `config.yaml`.
        work: What is done; by default what the configuration's task says. It raises `Stopped` when it is stopped.

    Returns:
        The exit code, see the module. A run that is done already is left alone: 0.
    """
    folder = RunFolder(Path(run_dir))
    setup_logging()
    if not folder.path.is_dir():
        logger.error("%s: there is no such folder; give a run folder with a config.yaml", folder.path)
        return 2
    try:
        with FileLock(folder.lock_path, busy=f"{folder.path}: another process runs this run"):
            if folder.is_done:
                return 0
            with _logging_to(folder.log_path):
                return _guarded(folder, work or _run)
    except RunFolderError as error:
        logger.error("%s", error)  # the folder is another's: nothing is written to it
        return error.exit_code


def follow_task(run_dir: Path | str) -> int:
    """Do the part of a process that torchrun started beside the first one, which alone writes and speaks."""
    from trivet.core.processes import die_with_parent

    die_with_parent(signal.SIGTERM)
    folder = RunFolder(Path(run_dir))
    setup_logging(logging.ERROR)
    if folder.is_done:
        return 0
    stop = StopFlag()
    with stop.installed():
        try:
            file = str(folder.config_path)
            _train(build(RunConfig, load_yaml(folder.config_path), file=file), folder, stop, time.perf_counter())
        except TrivetError as error:
            logger.error("rank %s: %s", os.environ.get("RANK"), error)
            return error.exit_code
    return 0


def _guarded(folder: RunFolder, work: Work) -> int:
    """Run and turn every failure into error.json and an exit code."""
    started = time.perf_counter()
    stop = StopFlag()
    try:
        folder.error_path.unlink(missing_ok=True)
        with stop.installed():
            folder.write_result(work(folder, stop, started))
    except Stopped:
        return 128 + (stop.signal or signal.SIGTERM)  # another process may have been the one that was asked
    except (ConfigError, TrivetError) as error:
        logger.error("%s", error)
        _write_error(folder, error)
        return error.exit_code
    except (Exception, SystemExit) as error:
        logger.exception("the run crashed")
        _write_error(folder, error)
        return 1
    return 0


def _write_error(folder: RunFolder, error: BaseException) -> None:
    content = {
        "type": type(error).__name__,
        "message": str(error) or repr(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    try:
        write_json(folder.error_path, content)
    except OSError as second:
        logger.error("error.json could not be written either: %s", second)


def _run(folder: RunFolder, stop: StopFlag, started: float) -> RunResult:
    file = str(folder.config_path)
    run = build(RunConfig, load_yaml(folder.config_path), file=file)
    run.check(file=file)
    _keep_source(folder, run)
    if run.task.is_command:
        from trivet.tasks.command import run_command

        result = run_command(run, folder, stop)
    else:
        result = _train(run, folder, stop, started)
    if result is None:
        raise Stopped
    return result


def _train(run: RunConfig, folder: RunFolder, stop: StopFlag, started: float) -> RunResult | None:
    """Train a built-in task; None when it was stopped."""
    import torch

    from trivet.core.seeding import derive, seed_everything
    from trivet.tasks.base import build_job
    from trivet.training.checkpoint import Checkpoints
    from trivet.training.environment import apply_environment, describe_environment
    from trivet.training.loop import fit
    from trivet.training.metrics import MetricsLog
    from trivet.training.ranks import joined

    if run.training is None:
        raise ValueError("`training` is missing")
    realised = apply_environment(run.environment)
    device = torch.device(realised.device)
    with joined(device) as ranks:
        if ranks.is_first:
            content = describe_environment(run.environment, realised)
            processes = {"processes": {"size": ranks.size, "strategy": ranks.strategy}} if ranks.size > 1 else {}
            write_json(folder.environment_path, {**content, **processes})
        for name in realised.not_realised:
            logger.warning("environment.%s was not realised: it is %s", name, realised.to_dict()[name])
        job = build_job(run, device)
        if not ranks.is_first:
            seed_everything(derive(run.seed, "training", "rank", ranks.rank))
        end = fit(
            job,
            run.training,
            device=device,
            log=MetricsLog(folder.metrics_path),
            checkpoints=Checkpoints(folder.checkpoint_path, key=digest(run)),
            should_stop=stop,
            ranks=ranks,
        )
        if end.outcome == "finished" and ranks.is_first and not ranks.is_sharded:
            job.keep(folder.pictures_path)
    if end.outcome == "stopped":
        return None
    return RunResult(
        outcome=end.outcome,
        metrics=end.metrics,
        steps=end.step,
        bitops=float(job.observe(end.step).get("bitops", 0.0)),
        seconds=time.perf_counter() - started + end.resumed_seconds,
        train_seconds=end.train_seconds,
        extra=job.extra,
    )


def _keep_source(folder: RunFolder, run: RunConfig) -> None:
    """Copy what runs: the user's model module or script, and which trivet."""
    folder.source_path.mkdir(exist_ok=True)
    note = f"trivet {trivet.__version__}\npython {platform.python_version()}\n"
    write_text(folder.source_path / "versions.txt", note)
    for path in _source_files(run):
        with suppress(OSError, shutil.SameFileError):
            shutil.copyfile(path, folder.source_path / path.name)


def _source_files(run: RunConfig, limit: int = 1_000_000) -> list[Path]:
    if run.task.is_command:
        from trivet.tasks.command import split_command

        candidates = [Path(word) for word in split_command(run, run_dir="")]
    elif (model := getattr(run.task, "model", "")).startswith("python:"):
        import importlib.util

        spec = importlib.util.find_spec(model.removeprefix("python:").partition(":")[0])
        candidates = [Path(spec.origin)] if spec and spec.origin else []
    else:
        return []
    kinds = (".py", ".sh", ".yaml", ".yml", ".json", ".toml")
    return [path for path in candidates if path.suffix in kinds and path.is_file() and path.stat().st_size <= limit]


@contextmanager
def _logging_to(path: Path) -> Generator[None]:
    """Send log lines to the run's log.txt too, unless standard error goes there already."""
    if _is_stderr(path):
        yield
        return
    package = logging.getLogger("trivet")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
        handler.close()


def _is_stderr(path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(sys.stderr.fileno()), path.stat())
    except (OSError, ValueError, AttributeError):
        return False
