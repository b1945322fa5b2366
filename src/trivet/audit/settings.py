"""Settings that may move the result of a training: what each one is, and what to do about it. Torch-free.

Each is one change of a baseline: one thread, float32, everything else as the libraries choose. Some of them must not
change a single bit (`zero`): they are the control that gives the other figures a meaning.

Not covered: data, hyperparameters, anything that changes what is computed and not only how.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Group = Literal["quick", "usual", "all"]
Need = Literal["", "x86", "avx512", "amd", "compiler", "cuda"]

BASELINE = "baseline"
REPEAT = "repeat in a new process"
CUDA_BASELINE = "GPU instead of CPU"

THREADS = "fix the number of threads in every run: OMP_NUM_THREADS and torch.set_num_threads"
CAPS = "cap the instruction sets alike on every machine, or compare only runs of one kind of processor"
ALL_CAPS = (
    "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE on every machine, where results must "
    "agree between processors"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One change of how a training is computed.

    Examples:
        >>> Setting(name="threads 2", environment={"threads": 2}).against
        'baseline'
    """

    name: str
    """As the table calls it."""
    environment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Changes of the `environment` section of a run."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further environment variables."""
    change: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Changes inside the process; see `trivet.tasks.small_network`."""
    noise: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """A `noise` section."""
    against: str = BASELINE
    """Name of the setting that it is compared with."""
    zero: bool = False
    """Whether it must not change a bit."""
    null: bool = False
    """Whether it is rounding alone: what the others are held against."""
    fresh: bool = False
    """Whether it needs a process that is started from nothing, not forked from one that has imported torch."""
    group: Group = "usual"
    """Least choice of the user's that includes it."""
    needs: Need = ""
    """What must be there."""
    advice: str = ""
    """What to do if it moves the result."""


def _control() -> list[Setting]:
    return [
        Setting(name=BASELINE, group="quick"),
        Setting(name=REPEAT, zero=True, fresh=True, group="quick", advice="nothing below can be trusted"),
        Setting(name="deterministic algorithms", environment={"deterministic": True}, zero=True, advice="leave it on"),
        Setting(name="NNPACK off", change={"switch": "nnpack off"}, zero=True, advice="leave NNPACK as it is"),
        Setting(name="flush denormals", change={"switch": "flush denormals"}, zero=True, advice="leave it off"),
        Setting(name="Adam for-each", change={"optimizer": "foreach"}, zero=True, advice="one `foreach` for all runs"),
        Setting(name="matmul high", environment={"matmul_precision": "high"}, zero=True, needs="x86",
                advice='torch.set_float32_matmul_precision("highest") in every run'),
        Setting(name="MKL_CBWR=AUTO", variables={"MKL_CBWR": "AUTO"}, zero=True, needs="amd",
                advice="one MKL_CBWR for all runs"),
    ]  # fmt: skip


def _libraries(cores: int) -> list[Setting]:
    counts = [2, 4, *([cores] if cores > 4 else [])]
    threads = [
        Setting(name=f"threads {count}", environment={"threads": count}, advice=THREADS,
                group="quick" if count == 2 else "usual")
        for count in counts
    ]  # fmt: skip
    return [
        *threads,
        Setting(name="ATen avx2", environment={"aten_isa": "avx2"}, needs="avx512", advice=CAPS),
        Setting(name="ATen default", environment={"aten_isa": "default"}, needs="x86", advice=CAPS),
        Setting(name="oneDNN AVX2", environment={"onednn_isa": "AVX2"}, needs="avx512", advice=CAPS),
        Setting(name="oneDNN AVX", environment={"onednn_isa": "AVX"}, needs="x86", group="all", advice=CAPS),
        Setting(name="oneDNN SSE41", environment={"onednn_isa": "SSE41"}, needs="x86", advice=CAPS),
        Setting(name="MKL COMPATIBLE", environment={"mkl_cbwr": "COMPATIBLE"}, needs="x86",
                advice="one MKL_CBWR for all runs; COMPATIBLE agrees between processors"),
        Setting(name="MKL AVX2", environment={"mkl_cbwr": "AVX2"}, needs="x86",
                advice="one MKL_CBWR for all runs; AMD processors take AUTO and COMPATIBLE alone"),
        Setting(name="all three lowest", group="quick", needs="x86", advice=ALL_CAPS,
                environment={"aten_isa": "default", "onednn_isa": "SSE41", "mkl_cbwr": "COMPATIBLE"}),
        Setting(name="oneDNN off", environment={"mkldnn": False}, group="quick",
                advice="leave oneDNN on, or turn it off in every run"),
        Setting(name="oneDNN off + threads 2", environment={"mkldnn": False, "threads": 2}, group="all",
                advice="leave oneDNN on, and fix the threads"),
        Setting(name="matmul medium", environment={"matmul_precision": "medium"},
                advice='torch.set_float32_matmul_precision("highest") in every run'),
    ]  # fmt: skip


def _training() -> list[Setting]:
    return [
        Setting(name="channels last", change={"channels_last": True}, advice="one memory layout for all runs"),
        Setting(name="Adam fused", change={"optimizer": "fused"}, group="quick", advice="one `fused` for all runs"),
        Setting(name="accumulate 2×16", change={"accumulate": 2},
                advice="batches in parts are other sums: cut them alike in every run"),
        Setting(name="order inside the batch", noise={"kind": "order"}, null=True,
                advice="store the order of the data with the run: trivet.audit.order"),
        Setting(name="torch.compile", change={"compile": True}, group="all", needs="compiler",
                advice="compile all runs that are compared, or none"),
        Setting(name="one ulp of one weight", change={"nudge": True}, null=True,
                advice="nothing: this is how far any change goes; start from one stored file of weights"),
        Setting(name="rounding 2^-24", noise={"kind": "rounding", "bits": 24}, null=True, group="quick",
                advice="nothing: this is what rounding does; a smaller difference between two machines means nothing"),
        Setting(name="noise 1e-3", noise={"kind": "rounding", "bits": 10}, advice="nothing: it is here as a measure"),
        Setting(name="float64", change={"dtype": "float64"}, advice="one precision for all runs"),
        Setting(name="autocast bf16", change={"autocast": True}, group="quick",
                advice="a change of the training, not a detail: compare over several seeds (trivet run)"),
        Setting(name="race + threads 2", environment={"threads": 2}, noise={"kind": "race"}, group="all",
                advice="torch.use_deterministic_algorithms(True), or one thread"),
        Setting(name="race repeated", environment={"threads": 2}, noise={"kind": "race"}, group="all",
                against="race + threads 2", advice="not repeatable: torch.use_deterministic_algorithms(True)"),
        Setting(name="other seed", change={"seed": 1}, group="quick",
                advice="a result is a mean over seeds: `trivet run` with 8 or more"),
    ]  # fmt: skip


def _cuda() -> list[Setting]:
    def on_gpu(name: str, advice: str, **environment: Any) -> Setting:
        return Setting(
            name=f"GPU: {name}",
            environment={"device": "cuda", **environment},
            against=CUDA_BASELINE,
            needs="cuda",
            fresh=True,
            group="quick" if name == "repeat" else "usual",
            advice=advice,
        )

    return [
        Setting(name=CUDA_BASELINE, environment={"device": "cuda"}, needs="cuda", fresh=True, group="quick",
                advice="compare on one kind of device, over several seeds"),
        on_gpu("repeat", "the device is not repeatable: environment.deterministic: true"),
        on_gpu("deterministic algorithms", "one choice for all runs", deterministic=True),
        on_gpu("cuDNN off", "leave cuDNN on, or turn it off in every run", cudnn=False),
        on_gpu("cuDNN benchmark", "leave it off: it may choose another algorithm next time", cudnn_benchmark=True),
        on_gpu("TF32 convolutions", "one choice for all runs; it is rounding to 10 bits", tf32=True),
        on_gpu("TF32 products", "one float32 precision for all runs", matmul_precision="high"),
    ]  # fmt: skip


def settings(group: Group, *, cores: int) -> list[Setting]:
    """The settings of a choice, baseline and repeat first; also those that this machine may lack.

    Args:
        group: quick, usual or all.
        cores: Processors that may be used; more than 4 add a row.

    Examples:
        >>> [one.name for one in settings("quick", cores=2)][:3]
        ['baseline', 'repeat in a new process', 'threads 2']
    """
    order: tuple[Group, ...] = ("quick", "usual", "all")
    wanted = order[: order.index(group) + 1]
    everything = [*_control(), *_libraries(cores), *_training(), *_cuda()]
    return [one for one in everything if one.group in wanted]


def lacking(need: Need, *, flags: Iterable[str], model: str, architecture: str, compiler: bool, cuda: bool) -> str:
    """Why a setting cannot be tried here; empty if it can.

    Args:
        need: What it needs.
        flags: Of the processor.
        model: Name of the processor.
        architecture: Such as x86_64.
        compiler: Whether there is a C compiler.
        cuda: Whether torch can use a CUDA device.

    Examples:
        >>> lacking("cuda", flags=(), model="", architecture="x86_64", compiler=True, cuda=False)
        'no CUDA device'
    """
    is_x86 = architecture in ("x86_64", "AMD64")
    there = {
        "": (True, ""),
        "x86": (is_x86, f"an {architecture} processor"),
        "avx512": (is_x86 and "avx512f" in flags, "the processor has no AVX-512, AVX2 is its best"),
        "amd": (is_x86 and "AMD" in model, "the processor is not AMD's, where MKL's AUTO is its default"),
        "compiler": (compiler, "no C compiler"),
        "cuda": (cuda, "no CUDA device"),
    }
    found, reason = there[need]
    return "" if found else reason
