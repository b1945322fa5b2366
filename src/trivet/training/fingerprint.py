"""What machine, packages, variables and code a run has: the part of environment.json that needs no torch.

Only environment variables that can change a result are recorded; others may hold secrets. Of the libraries that
compute, those are listed that this process has loaded at the moment: two OpenMP runtimes in one process, or another
BLAS than on the machine beside, are causes of other results and of hangs.

Not covered: what torch itself was built with (`trivet.training.environment` adds it); libraries that are linked into
torch, such as MKL in its wheels.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "trivet", "torch", "torchvision", "torchaudio", "triton", "numpy", "scipy", "safetensors", "transformers",
    "accelerate", "lightning", "jax", "jaxlib", "mkl", "intel-openmp", "nvidia-cublas", "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)  # fmt: skip
"""Packages whose version is recorded, when they are installed."""

PREFIXES = (
    "OMP_", "MKL_", "OPENBLAS_", "BLIS_", "KMP_", "GOMP_", "VECLIB_", "NUMEXPR_", "ATEN_", "ONEDNN_", "DNNL_",
    "CUDA_", "CUBLAS_", "CUBLASLT_", "CUDNN_", "NVIDIA_TF32", "NCCL_", "HIP_", "ROCBLAS_", "MIOPEN_", "XLA_", "JAX_",
    "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "PYTHONHASHSEED", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_",
    "TRIVET_DATA_ROOT",
)  # fmt: skip
"""Environment variables that are recorded begin like this."""

LIBRARY = re.compile(
    r"lib(gomp|iomp|omp|mkl|openblas|blas|blis|cblas|lapack|dnnl|onednn|cudnn|cublas|cudart|rocblas|MIOpen|tcmalloc|jemalloc)"
    r"[\w.+-]*\.so"
)
"""Names of libraries that can change a result."""


def fingerprint() -> dict[str, Any]:
    """Machine, processor, driver, libraries, versions, variables, and the revision of the folder it was started in.

    Examples:
        >>> sorted(fingerprint())
        ['cpu', 'driver', 'git', 'libraries', 'machine', 'packages', 'variables']
    """
    return {
        "machine": {
            "system": platform.system(),
            "release": platform.release(),
            "architecture": platform.machine(),
            "host": platform.node(),
            "cores": available_cores(),
            "memory_bytes": _memory_bytes(),
            "libc": " ".join(platform.libc_ver()).strip(),
            "python": platform.python_version(),
        },
        "cpu": {
            "model": _cpu("model name") or platform.processor(),
            "vendor": _cpu("vendor_id"),
            "family_model_stepping": ".".join(filter(None, map(_cpu, ("cpu family", "model", "stepping")))),
            "microcode": _cpu("microcode"),
            "flags": _cpu("flags").split(),
        },
        "driver": _driver(),
        "libraries": loaded_libraries(),
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


def loaded_libraries() -> list[str]:
    """File names of the OpenMP, BLAS and CUDA libraries that this process has loaded, each once, in order of name.

    Examples:
        >>> all(".so" in name for name in loaded_libraries())
        True
    """
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = {line.rpartition("/")[2] for line in lines if "/" in line}
    return sorted(name for name in names if LIBRARY.match(name))


@cache
def _driver() -> str:
    """Version of NVIDIA's driver; empty without one."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return ""
    found = re.search(r"\d+\.\d+(?:\.\d+)?", first)
    return found.group(0) if found else first.strip()


@cache
def _memory_bytes() -> int:
    """Memory of the machine; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


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
