"""What machine, packages, variables and code a run has: the part of environment.json that needs no torch.

Only environment variables that can change a result are recorded; others may hold secrets.
"""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("trivet", "torch", "torchvision", "numpy", "scipy", "safetensors")
"""Packages whose version is recorded, when they are installed."""

PREFIXES = (
    "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "ATEN_", "ONEDNN_", "DNNL_", "CUDA_", "CUBLAS_", "CUDNN_",
    "NVIDIA_TF32", "NCCL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "PYTHONHASHSEED", "TRIVET_DATA_ROOT",
)  # fmt: skip
"""Environment variables that are recorded begin like this."""


def fingerprint() -> dict[str, Any]:
    """Machine, processor, versions, variables, and the revision of the folder the run was started in.

    Examples:
        >>> sorted(fingerprint())
        ['cpu', 'git', 'machine', 'packages', 'variables']
    """
    return {
        "machine": {
            "system": platform.system(),
            "release": platform.release(),
            "architecture": platform.machine(),
            "host": platform.node(),
            "cores": available_cores(),
            "python": platform.python_version(),
        },
        "cpu": {"model": _cpu("model name") or platform.processor(), "flags": _cpu("flags").split()},
        "packages": dict(_packages()),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)},
        "git": _git(Path.cwd()),
    }


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@cache
def _packages() -> tuple[tuple[str, str], ...]:
    found = []
    for name in PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


@cache
@cache
def _cpu(key: str) -> str:
    """A line of the first processor's description; empty where the system has none."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return ""


@cache
def _git(folder: Path) -> dict[str, Any] | None:
    """Commit of the folder, and whether tracked files differ from it; None outside a repository."""
    commit = _ask_git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _ask_git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": None if changed is None else bool(changed)}


def _ask_git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
