"""What a process really computes with, measured: busy threads, vector instructions, library branches, precision.

A library that does not like a setting changes it without a word, so no probe asks the setting itself:

* busy threads by the processor time of each thread of this process while a parallel operation runs (Linux);
* oneDNN's instructions, and whether it is used at all, by the name of the kernel in its own log of one convolution;
* MKL's branch by the `CNR` field in its log of one matrix product;
* inner precision of matrix products by their error against float64.

Each takes a few milliseconds. Not covered: kernels on CUDA.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import torch

TASKS = Path("/proc/self/task")
BUSY_SHARE = 0.1
"""A thread is busy if it used this share of the busiest one's time."""
FLOAT32_ERROR = 1e-5
"""Largest error of a product of 256 terms, relative to its size, that float32 makes; inputs of 10 bits make 1e-3."""


def busy_threads(seconds: float = 0.02) -> int:
    """Threads of this process that work on one parallel operation; 0 where the system does not tell.

    Args:
        seconds: Processor time that the probe may take, about.
    """
    if not TASKS.is_dir():
        return 0
    values = torch.linspace(0.0, 1.0, 1 << 18)
    torch.sin(values)  # threads start here
    before, end = _thread_times(), time.process_time() + seconds
    while time.process_time() < end:
        torch.sin(values)
    used = {task: after - before.get(task, 0) for task, after in _thread_times().items()}
    return sum(value > BUSY_SHARE * max(used.values()) for value in used.values())


def _thread_times() -> dict[str, int]:
    """Nanoseconds that each thread has run."""
    found = {}
    for task in TASKS.iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):  # a thread that has just ended, or a kernel that does not count
            continue
    return found


def convolution_kernel() -> str:
    """Name of oneDNN's kernel for a small convolution, such as `jit:avx2`; empty if oneDNN is not used."""
    if not torch.backends.mkldnn.is_available():
        return ""
    images, weight = torch.zeros(2, 8, 16, 16), torch.zeros(8, 8, 3, 3)
    verbose = torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON)
    text = _printed(verbose, lambda: torch.conv2d(images, weight))
    found = re.search(r"exec,cpu,convolution,([^,]+),", text)
    return found.group(1) if found else ""


def mkl_branch() -> str:
    """MKL's `CNR` field for a small product, such as `COMPATIBLE` or `OFF`; empty without MKL."""
    if not torch.backends.mkl.is_available():
        return ""
    matrix = torch.zeros(64, 64)
    verbose = torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON)
    found = re.search(r"\bCNR:(\S+)", _printed(verbose, lambda: matrix @ matrix))
    return found.group(1) if found else ""


def product_error(device: torch.device | str = "cpu") -> float:
    """Largest error of a float32 matrix product against float64, relative to the size of the result.

    Examples:
        >>> product_error() < FLOAT32_ERROR
        True
    """
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(64, 256, generator=generator) for _ in range(2))
    exact = left.double() @ right.double().T
    found = (left.to(device) @ right.to(device).T).cpu().double()
    return float((found - exact).abs().max() / exact.abs().max())


def _printed(context: AbstractContextManager[object], run: Callable[[], object]) -> str:
    """What C libraries write to standard output while something runs."""
    _flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with context:
                run()
            _flush()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)


def jax_version() -> str:
    """Which JAX computes a product on which device, such as `JAX 0.10.2 on cpu`; empty where there is none."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return ""
    product = jnp.eye(2) @ jnp.eye(2)
    return f"JAX {jax.__version__} on {next(iter(product.devices())).platform}"
