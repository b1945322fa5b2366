"""Studies that run in moments: a fake child process (no torch), and a parent that tests can kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trivet.core.config import dump_yaml, merge
from trivet.core.io import FileLock
from trivet.study import LocalExecutor, Results, Study

HERE = Path(__file__).parent

BASE: dict[str, Any] = {
    "name": "fake",
    "base": {"task": {"model": "resnet8", "width": 4}, "training": {"steps": 6}},
    "factors": {"precision": {"fp32": {}, "RR": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 2}}},
    "seeds": 3,
    "metric": {"name": "test_accuracy", "margin": 0.01},
}


@pytest.fixture
def mapping() -> dict[str, Any]:
    """A sound study of two arms and three seeds, as plain values."""
    return merge(BASE, {})


@dataclass
class Lab:
    """A study file, its folder, and the count of what really ran."""

    root: Path
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.root / "out"

    @property
    def count_file(self) -> Path:
        return self.root / "count"

    def write(self, patch: Mapping[str, Any] | None = None) -> Path:
        file = self.root / "my.yaml"
        file.write_text(dump_yaml(merge(BASE, patch or {})), encoding="utf-8")
        return file

    def counted(self, what: str) -> list[str]:
        """Run ids of the lines that begin with `what`."""
        lines = self.count_file.read_text().splitlines() if self.count_file.exists() else []
        return [line.split()[1] for line in lines if line.startswith(what)]

    def run(self, patch: Mapping[str, Any] | None = None, *, warm: bool = True, slots: int = 2, **rest: Any) -> Results:
        """Run the study here with the fake child."""
        executor = LocalExecutor(command=(sys.executable, str(HERE / "fake_child.py")), warm=warm)
        study = Study.from_yaml(self.write(patch), folder=self.folder)
        return study.run(executor=executor, slots=slots, **rest)

    @staticmethod
    def outcomes(results: Results) -> dict[str, Any]:
        """The part of the records that equal studies have in common."""
        return {r.run_id: (r.arm, r.seed, r.state, dict(r.metrics), r.steps, r.bitops) for r in results.records}

    def start(self, kind: str = "warm", *, slots: int = 2) -> subprocess.Popen[str]:
        """Run the study in a parent process that can be killed."""
        words = [
            sys.executable,
            str(HERE / "parent.py"),
            str(self.root / "my.yaml"),
            str(self.folder),
            str(slots),
            kind,
        ]
        child = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.children.append(child)
        return child

    def wait_for(self, what: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until something is true; fail when it never is."""
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                pytest.fail(f"nothing happened in {seconds} s")
            time.sleep(0.01)

    def locked(self) -> list[Path]:
        """Run folders whose lock is held."""
        return [path.parent for path in self.folder.glob("*/.lock") if FileLock.is_held(path)]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder to run fake studies in; every process that is left over is killed at the end."""
    made = Lab(tmp_path)
    monkeypatch.setenv("FAKE_COUNT", str(made.count_file))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield made
    for child in made.children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    for path in made.locked():
        holder = FileLock.holder(path / ".lock")
        if holder and holder != os.getpid():
            os.kill(holder, signal.SIGKILL)


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Outcomes of the base study when nothing interrupts it."""
    made = Lab(tmp_path_factory.mktemp("truth"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        results = made.run()
    return made.outcomes(results)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm of five scripts: what is submitted is kept, nothing runs."""
    pytest.importorskip("submitit", reason="needs the extra slurm")
    scripts = {
        "sbatch": f'cp "$1" {tmp_path}/batch; echo "Submitted batch job 7"',
        "sinfo": "echo '64 gpu:a100:4(S:0-1)'",
        "srun": "true",
        "sacct": "echo 'JobID|State'; echo '7|FAILED'",
        "scancel": f"echo $1 > {tmp_path}/cancelled",
    }
    (tmp_path / "bin").mkdir()
    for name, text in scripts.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path
