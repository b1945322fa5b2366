"""Settings of hardware and software inside the process: apply what was asked for, read back what was realised.

"Asked" is not "got": the libraries below change silently a thread count that is too high or a precision that the
build lacks. So every setting is read back, and one that differs is named in
`not_realised`, for the study to leave such runs out of a comparison.

Variables that must be set before torch is imported are set by whoever starts the process
(`EnvironmentConfig.variables`). Not covered yet: instruction sets, cuDNN switches; threads are read back from torch
and not by counting busy ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from trivet.core.config import to_plain
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import ConfigError, Problem
from trivet.training.fingerprint import fingerprint


@dataclass(frozen=True, kw_only=True, slots=True)
class Realised:
    """What the process really runs with."""

    device: str
    """`cpu` or `cuda`."""
    threads: int
    """Threads of one operation, as torch reports them."""
    deterministic: bool
    """Whether torch takes deterministic algorithms only."""
    matmul_precision: str
    """Inner precision of float32 matrix products, as torch reports it."""
    not_realised: tuple[str, ...] = ()
    """Settings that were asked for and are different."""

    def to_dict(self) -> dict[str, Any]:
        """The settings alone, as written to environment.json."""
        return {name: value for name, value in to_plain(self).items() if name != "not_realised"}


def apply_environment(config: EnvironmentConfig) -> Realised:
    """Set what can be set in this process and read everything back.

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
    torch.set_num_threads(config.threads)
    if config.deterministic:
        # cuBLAS reads this when it starts, which is later than here.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.deterministic)
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision(config.matmul_precision)
    got: dict[str, Any] = {
        "device": "cuda" if has_cuda else "cpu",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }
    asked = to_plain(config)
    if asked["device"] == "auto":
        asked["device"] = got["device"]
    missed = tuple(name for name, value in got.items() if asked.get(name, value) != value)
    return Realised(**got, not_realised=missed)


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
        **content,
        "gpu": _gpus() if realised.device == "cuda" else [],
    }


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
