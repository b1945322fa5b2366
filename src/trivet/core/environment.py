"""Settings of hardware and software for one run: what is asked for, and the variables to set before it starts.

What can only be set inside the process, and reading back what was really realised, is done by
`trivet.training.environment`. Precision of the arithmetic inside a run (autocast), memory layout and compilation are in
the `training` section, as they are part of how a model is trained. Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trivet.core.config import UNSET_IS_LEFT_OUT

AtenIsa = Literal["auto", "default", "avx2", "avx512"]
OnednnIsa = Literal["auto", "SSE41", "AVX", "AVX2", "AVX512_CORE"]
MklCbwr = Literal["auto", "COMPATIBLE", "SSE4_2", "AVX2", "AVX512"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentConfig:
    """The `environment` section of a run.

    Examples:
        >>> EnvironmentConfig(threads=2).variables()["OMP_NUM_THREADS"]
        '2'
        >>> EnvironmentConfig(aten_isa="avx2").variables()["ATEN_CPU_CAPABILITY"]
        'avx2'
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model trains; `auto` takes CUDA when there is one."""
    threads: int = 1
    """Threads of one operation (OpenMP and MKL); more than one can change the last bits of a result."""
    interop_threads: int = 0
    """Threads that run independent operations at once; 0 leaves torch's number."""
    aten_isa: AtenIsa = "auto"
    """Vector instructions of torch's own CPU kernels; `auto` takes the best that the processor has."""
    onednn_isa: OnednnIsa = "auto"
    """Best vector instructions that oneDNN may use, for convolutions and matrix products."""
    mkl_cbwr: MklCbwr = "auto"
    """Branch of MKL's code ("conditional numerical reproducibility"); on AMD processors only COMPATIBLE is honoured."""
    mkldnn: bool = True
    """Use oneDNN; without it torch computes convolutions itself."""
    cudnn: bool = True
    """Use cuDNN on CUDA."""
    cudnn_benchmark: bool = False
    """Let cuDNN try its algorithms and keep the fastest, which can be another one next time."""
    tf32: bool = False
    """Let convolutions on CUDA round their inputs to 10 bits; for matrix products see `matmul_precision`."""
    backend: Literal["torch", "jax"] = field(default="torch", metadata=UNSET_IS_LEFT_OUT)
    """Who computes the forward and backward pass; `jax` (an extra, on the CPU, for the models small_cnn and PredNet) is
    a second implementation of the same computation. Weights, loss, optimizer and evaluation stay torch's."""
    deterministic: bool = False
    """Ask torch for deterministic algorithms only; an operation that has none raises."""
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    """Inner precision that float32 matrix products may use on devices that have a choice."""

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 1024:
            raise ValueError(f"`threads={self.threads}` must lie in [1, 1024]; give the threads one run may use")
        if not 0 <= self.interop_threads <= 1024:
            raise ValueError(f"`interop_threads={self.interop_threads}` must lie in [0, 1024]; 0 leaves torch's number")

    def variables(self) -> dict[str, str]:
        """Environment variables that must be set before the process imports torch."""
        count = str(self.threads)
        asked = {
            "ATEN_CPU_CAPABILITY": self.aten_isa,
            "ONEDNN_MAX_CPU_ISA": self.onednn_isa,
            "MKL_CBWR": self.mkl_cbwr,
        }
        return {
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            "OPENBLAS_NUM_THREADS": count,
            "VECLIB_MAXIMUM_THREADS": count,
            "NUMEXPR_NUM_THREADS": count,
            **{name: value for name, value in asked.items() if value != "auto"},
            **(_jax_variables(self.threads) if self.backend == "jax" else {}),
        }


def _jax_variables(threads: int) -> dict[str, str]:
    """The CPU alone, and one thread where one is asked for; JAX takes no other number."""
    flags = "--xla_cpu_multi_thread_eigen=false" if threads == 1 else ""
    return {"JAX_PLATFORMS": "cpu", **({"XLA_FLAGS": flags} if flags else {})}
