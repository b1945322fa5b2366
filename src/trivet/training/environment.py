"""Settings of hardware and software inside the process: apply what was asked for, measure what was realised.

"Asked" is not "got": libraries change silently a thread count that is too high, an instruction set that the processor
lacks, or a branch of code that is meant for another vendor. So every setting has a probe (`probes.py`), and one that
differs is named in `not_realised`: the study leaves such runs out of its comparisons.

Variables that must be set before torch is imported are set by whoever starts the process
(`EnvironmentConfig.variables`). Not covered: kernels on CUDA, whose settings are read back from torch.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from trivet.core.config import to_plain
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import ConfigError, Problem
from trivet.training import probes
from trivet.training.fingerprint import available_cores, fingerprint


@dataclass(frozen=True, kw_only=True, slots=True)
class Realised:
    """What the process really runs with."""

    settings: Mapping[str, Any]
    """Name → value, for every setting of `EnvironmentConfig`; `auto` where nothing was asked and nothing measured."""
    evidence: Mapping[str, str] = field(default_factory=dict[str, str])
    """Setting → what was measured, in words."""
    not_realised: tuple[str, ...] = ()
    """Settings that were asked for and are different."""

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return self.settings["device"]

    def to_dict(self) -> dict[str, Any]:
        """The settings alone, as written to environment.json."""
        return dict(self.settings)


def apply_environment(config: EnvironmentConfig) -> Realised:
    """Set what can be set in this process and measure everything.

    Args:
        config: What is asked for.

    Raises:
        ConfigError: A device is asked for by name that is not there.

    Examples:
        >>> apply_environment(EnvironmentConfig(device="cpu", threads=1)).to_dict()["threads"]
        1
    """
    has_cuda = config.device != "cpu" and torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        fix = "torch sees no CUDA device on this machine; check the driver, or use auto"
        raise ConfigError([Problem("", "environment.device", "'cuda'", "auto, cpu", fix)])
    device = "cuda" if has_cuda else "cpu"
    _apply(config, device)
    got, evidence = _measured(config, device)
    asked = {**to_plain(config), "backend": config.backend}
    asked["device"] = device if config.device == "auto" else config.device
    missed = tuple(
        name for name, value in got.items() if asked[name] not in (value, "auto") and name != "interop_threads"
    )
    if config.interop_threads and got["interop_threads"] != config.interop_threads:
        missed += ("interop_threads",)
    return Realised(settings=got, evidence=evidence, not_realised=missed)


def _apply(config: EnvironmentConfig, device: str) -> None:
    torch.set_num_threads(config.threads)
    if config.interop_threads and torch.get_num_interop_threads() != config.interop_threads:
        with contextlib.suppress(RuntimeError):  # too late in this process; the measurement says so
            torch.set_num_interop_threads(config.interop_threads)
    if config.deterministic:
        # cuBLAS reads this when it starts, which is later than here.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.deterministic)
    torch.backends.mkldnn.set_flags(config.mkldnn)
    torch.backends.cudnn.enabled = config.cudnn
    torch.backends.cudnn.benchmark = config.cudnn_benchmark
    if device == "cuda":
        convolutions: Any = torch.backends.cudnn.conv  # pyrefly: ignore[missing-attribute]
        convolutions.fp32_precision = "tf32" if config.tf32 else "ieee"
    torch.set_float32_matmul_precision(config.matmul_precision)


def _measured(config: EnvironmentConfig, device: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Every setting as it is, and what was seen."""
    threads, seen = _threads(config.threads)
    capability = torch.backends.cpu.get_cpu_capability()
    kernel, branch = probes.convolution_kernel(), probes.mkl_branch()
    error = probes.product_error(device)
    library = probes.jax_version() if config.backend == "jax" else ""
    got: dict[str, Any] = {
        "device": device,
        "threads": threads,
        "interop_threads": torch.get_num_interop_threads(),
        "aten_isa": capability.lower(),
        "onednn_isa": _isa(kernel, config),
        "mkl_cbwr": branch if branch not in ("", "OFF") else "none" if not branch else "auto",
        "mkldnn": bool(kernel) or not torch.backends.mkldnn.is_available(),
        "cudnn": torch.backends.cudnn.enabled,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "tf32": device == "cuda" and _tf32(),
        "backend": "jax" if library else "torch",
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }
    evidence = {
        "threads": seen,
        "aten_isa": f"torch reports {capability}",
        "onednn_isa": f"a convolution ran as {kernel}" if kernel else "oneDNN ran no convolution",
        "mkl_cbwr": f"MKL reports CNR:{branch}" if branch else "there is no MKL",
        "mkldnn": f"a convolution ran as {kernel}" if kernel else "oneDNN ran no convolution",
        "backend": f"a product was computed by {library}" if library else "torch computes",
        "matmul_precision": f"error of a product against float64: {error:.1e} of its size",
    }
    return got, evidence


def _tf32() -> bool:
    convolutions: Any = torch.backends.cudnn.conv  # pyrefly: ignore[missing-attribute]
    return convolutions.fp32_precision == "tf32"


def _threads(asked: int) -> tuple[int, str]:
    """Threads that can really run at once, and what was seen."""
    busy, cores, said = probes.busy_threads(), available_cores(), torch.get_num_threads()
    if not busy:
        return min(said, cores), f"torch reports {said}; busy threads cannot be counted on this system"
    seen = f"{busy} threads were busy in one operation, on {cores} processors"
    return min(busy, cores) if said == asked else said, seen


def _isa(kernel: str, config: EnvironmentConfig) -> str:
    """The instruction set in a kernel's name, as it was asked for where that is what it is."""
    if not kernel:
        return "none" if config.mkldnn else "auto"
    name = kernel.split(":")[-1].lower()
    return "AVX512_CORE" if name.startswith("avx512") else name.upper()


def describe_environment(config: EnvironmentConfig, realised: Realised) -> dict[str, Any]:
    """Content of environment.json: asked for, realised, machine, packages, variables, revision of the code.

    Examples:
        >>> config = EnvironmentConfig(device="cpu")
        >>> describe_environment(config, apply_environment(config))["realised"]["device"]
        'cpu'
    """
    content = fingerprint()
    content["cpu"]["torch_capability"] = torch.backends.cpu.get_cpu_capability()
    return {
        "requested": to_plain(config),
        "realised": realised.to_dict(),
        "not_realised": list(realised.not_realised),
        "evidence": dict(realised.evidence),
        **content,
        "built": _built(),
        "gpu": _gpus() if realised.device == "cuda" else [],
    }


def _built() -> dict[str, str]:
    """What torch was built with and computes with on the CPU: MKL, oneDNN, OpenMP, BLAS, compiler."""
    text = torch.__config__.show()
    parts = {
        "mkl": r"Math Kernel Library Version ([\w.-]+)",
        "onednn": r"MKL-DNN v([\w.]+)",
        "openmp": r"OpenMP (\d+)",
        "blas": r"BLAS_INFO=(\w+)",
        "compiler": r"- (GCC [\w.]+|clang [\w.]+)",
        "commit": r"COMMIT_SHA=(\w+)",
        "cuda": r"CUDA_VERSION=([\d.]+)",
        "cudnn": r"CUDNN_VERSION=([\d.]+)",
    }
    return {name: found.group(1) for name, pattern in parts.items() if (found := re.search(pattern, text))}


def _gpus() -> list[dict[str, Any]]:
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", "")),
                "multiprocessors": properties.multi_processor_count,
                "memory_bytes": properties.total_memory,
                "capability": f"{properties.major}.{properties.minor}",
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version(),
            }
        )
    return found
