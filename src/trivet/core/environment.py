"""Settings of hardware and software for one run: what is asked for, and the variables to set before it starts.

What can only be set inside the process, and reading back what was really realised, is done by
`trivet.training.environment`. Not covered yet: instruction sets, cuDNN switches and compile settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentConfig:
    """The `environment` section of a run.

    Examples:
        >>> EnvironmentConfig(threads=2).variables()["OMP_NUM_THREADS"]
        '2'
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model trains; `auto` takes CUDA when there is one."""
    threads: int = 1
    """Threads of one operation (OpenMP and MKL); more than one can change the last bits of a result."""
    deterministic: bool = False
    """Ask torch for deterministic algorithms only; an operation that has none raises."""
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    """Inner precision that float32 matrix products may use on devices that have a choice."""

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 1024:
            raise ValueError(f"`threads={self.threads}` must lie in [1, 1024]; give the threads one run may use")

    def variables(self) -> dict[str, str]:
        """Environment variables that must be set before the process imports torch."""
        count = str(self.threads)
        return {
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            "OPENBLAS_NUM_THREADS": count,
            "VECLIB_MAXIMUM_THREADS": count,
            "NUMEXPR_NUM_THREADS": count,
        }
