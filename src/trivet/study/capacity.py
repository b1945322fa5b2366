"""How many runs fit on the machine at once, and which GPU a run gets.

On CPU a run takes as many cores as its `environment.threads`. A GPU takes one run at a time, and the GPU of a run
follows from its seed alone: all arms of a seed share one, so a difference between two GPUs moves both sides of a pair
and is never taken for a difference between arms. The price: GPUs beyond the number of seeds stay idle.

A run of several devices takes a group of GPUs, always the same neighbors, or its threads for each process.

Not covered: memory, GPUs that other programs are using.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trivet.study.plan import PlannedRun

CPU = "cpu"
"""Name of the pool of CPU cores; every other pool is a GPU, named as in CUDA_VISIBLE_DEVICES."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Pools of what runs occupy.

    Examples:
        >>> capacity = Capacity(cores=8, slots=0, gpus=())
        >>> capacity.size("cpu")
        8
    """

    cores: int
    """CPU cores this process may use."""
    slots: int
    """Runs at the same time as the user asked for; 0: not said."""
    gpus: tuple[str, ...]
    """What one run gets, as CUDA_VISIBLE_DEVICES names it: a GPU, or several with commas between them."""
    devices: int = 1
    """Processes of a run."""

    def pool(self, run: PlannedRun) -> str:
        """What a run occupies: the CPU, or its GPU."""
        gpus = self.gpus[: self.slots] if self.slots else self.gpus
        if not gpus or run.config["environment"]["device"] == "cpu":
            return CPU
        return gpus[run.block % len(gpus)]

    def weight(self, run: PlannedRun) -> int:
        """How much of its pool a run takes: one slot, one GPU, or its threads in cores."""
        if self.slots or self.pool(run) != CPU:
            return 1
        return min(int(run.config["environment"]["threads"]) * self.devices, self.cores)

    def size(self, pool: str) -> int:
        """How much a pool holds."""
        if pool != CPU:
            return 1
        return self.slots or self.cores

    def total(self, runs: Sequence[PlannedRun]) -> int:
        """What all pools that the runs use hold together, at most the slots asked for."""
        whole = sum(self.size(pool) for pool in {self.pool(run) for run in runs})
        return min(whole, self.slots) if self.slots else whole

    def parallel(self, runs: Sequence[PlannedRun]) -> int:
        """How many runs go on at the same time, at most."""
        lightest: dict[str, int] = {}
        for run in runs:
            pool = self.pool(run)
            lightest[pool] = min(lightest.get(pool, self.weight(run)), self.weight(run))
        count = sum(self.size(pool) // weight for pool, weight in lightest.items())
        return min(count, self.slots) if self.slots else count


def measure_capacity(slots: int = 0, environ: Mapping[str, str] | None = None, *, devices: int = 1) -> Capacity:
    """Look at the machine.

    Args:
        slots: Runs at the same time; 0: decided from cores and GPUs.
        environ: Environment variables; those of this process when left out.
        devices: GPUs of one run.

    Examples:
        >>> measure_capacity(0, {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}, devices=2).gpus
        ('0,1', '2,3')
    """
    gpus = find_gpus(os.environ if environ is None else environ)
    groups = tuple(",".join(gpus[i : i + devices]) for i in range(0, len(gpus) - devices + 1, devices))
    return Capacity(cores=count_cores(), slots=slots, gpus=groups, devices=devices)


def count_cores() -> int:
    """CPU cores that this process may use: its affinity, and the quota of its container.

    Examples:
        >>> count_cores() >= 1
        True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return cores


def find_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """NVIDIA GPUs without asking torch: CUDA_VISIBLE_DEVICES when it is set, else what `nvidia-smi` lists.

    Examples:
        >>> find_gpus({"CUDA_VISIBLE_DEVICES": "0,2"}), find_gpus({"CUDA_VISIBLE_DEVICES": ""})
        (('0', '2'), ())
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        return tuple(name for name in names if name and name != "-1")
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in listing.splitlines() if line.strip().isdigit())
