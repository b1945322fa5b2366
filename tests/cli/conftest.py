"""The real command line, and a study of a user's script that takes moments and loads no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from trivet.__main__ import main

Trivet = Callable[..., "Ended"]

SCRIPT = """
import sys, time
seed, shift, mode = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if mode == "slow":
    time.sleep(60)
if mode == "crash":
    raise RuntimeError("no such luck")
print("final loss:", 1 + 0.01 * ((seed * 7919) % 13) + shift + 0.001 * ((seed * 31) % 5))
"""

STUDY = """
name: tiny
base:
  task: {command: "python train.py {seed} 0.0 fine", metrics: {loss: 'final loss: ([0-9.]+)'}}
factors:
  size:
    small: {}
    large: {task: {command: "python train.py {seed} 0.5 fine"}}
seeds: 3
metric: {name: loss, margin: 0.01}
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def trivet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Trivet:
    """Run `trivet …` by its entry point inside this process (no interpreter to start), in a folder of its own."""

    def run(*arguments: str | Path, cwd: Path | None = None) -> Ended:
        monkeypatch.chdir(cwd or tmp_path)
        monkeypatch.setattr(sys, "argv", ["trivet", *map(str, arguments)])
        monkeypatch.delenv("COLUMNS", raising=False)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run


@pytest.fixture
def real_trivet(tmp_path: Path) -> Trivet:
    """Run `python -m trivet …` as a process, in a folder of its own; extra variables by keyword."""

    def run(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Ended:
        return run_trivet(cwd or tmp_path, *map(str, arguments), **variables)

    return run


def run_trivet(cwd: Path, *arguments: str, **variables: str) -> Ended:
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(
        [sys.executable, "-m", "trivet", *arguments],
        cwd=cwd,
        env={**kept, "PYTHONIOENCODING": "utf-8", **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Path]:
    """Write the small study and its script; pairs of texts in it are exchanged first."""

    def write(*exchanges: tuple[str, str]) -> Path:
        text = STUDY
        for old, new in exchanges:
            assert old in text
            text = text.replace(old, new)
        return write_study(tmp_path, text)

    return write


def write_study(folder: Path, text: str = STUDY) -> Path:
    """The study and its script."""
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    file = folder / "tiny.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A study that has run, and how `trivet run` ended; tests only read it."""
    folder = tmp_path_factory.mktemp("finished")
    write_study(folder)
    ended = run_trivet(folder, "run", "tiny.yaml", "--slots", "2", XDG_CACHE_HOME=str(folder / "cache"))
    return folder / "studies" / "tiny", ended
