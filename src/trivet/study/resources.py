"""What a run gets of a machine or a cluster: devices, nodes, a time limit; and whether that can be had.

Everything here is checked before anything is started: what a file asks for against itself (`resource_problems`), and
against the largest machine there is (`machine_problems`).

Not covered: a run that asks for less than a whole GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trivet.core.config import UNSET_IS_LEFT_OUT
from trivet.core.errors import Problem

SPLIT_TASKS = ("image-classification", "language-model", "autoencoding")
"""Tasks whose batch is split over processes."""

MAX_MINUTES, MAX_GB = 366 * 24 * 60, 65_536
"""Most that a run may ask for: a year, and 64 TiB; more is a slip of the pen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourcesSpec:
    """How much of the machine or cluster a study and each of its runs use.

    Examples:
        >>> ResourcesSpec(slots=2, devices=4).processes
        4
    """

    slots: int = 0
    """Runs at the same time; 0: as many as CPU cores / `environment.threads`, or one a GPU."""
    devices: int = field(default=1, metadata=UNSET_IS_LEFT_OUT)
    """Processes of one run on each node, each with a GPU of its own, or with `environment.threads` cores."""
    nodes: int = field(default=1, metadata=UNSET_IS_LEFT_OUT)
    """Machines of one run; more than one with `executor: slurm` only."""
    strategy: Literal["ddp", "fsdp2"] = field(default="ddp", metadata=UNSET_IS_LEFT_OUT)
    """How the processes of a run share its model: each holds all of it (`ddp`), or a part (`fsdp2`)."""
    minutes: int | None = field(default=None, metadata=UNSET_IS_LEFT_OUT)
    """Longest time of one run that Slurm is told; one day where it is left out."""
    memory_gb: int | None = field(default=None, metadata=UNSET_IS_LEFT_OUT)
    """Memory of one run on each node that the engine is told, in GB; the engine's default where it is left out."""
    storage: Literal["shared", "copied"] = field(default="shared", metadata=UNSET_IS_LEFT_OUT)
    """Whether all machines see the study folder, or Ray carries each run there and its files back (`copied`)."""
    block: Literal["none", "seed"] = field(default="none", metadata=UNSET_IS_LEFT_OUT)
    """`seed`: Slurm gets all arms of a seed as one job, which runs one after another on the same GPU."""
    options: dict[str, str | int] = field(default_factory=dict, metadata=UNSET_IS_LEFT_OUT)
    """For the engine as they are: `partition`, … of sbatch; for Ray `address` and `working_dir`, a folder of code."""

    def __post_init__(self) -> None:
        if not 0 <= self.slots <= 4096:
            raise ValueError(f"`slots={self.slots}` must lie in [0, 4096]; 0 lets trivet decide")
        for name, value, most in (("devices", self.devices, 64), ("nodes", self.nodes, 4096)):
            if not 1 <= value <= most:
                raise ValueError(f"`{name}={value}` must lie in [1, {most}]")
        for name, given, most in (("minutes", self.minutes, MAX_MINUTES), ("memory_gb", self.memory_gb, MAX_GB)):
            if given is not None and not 1 <= given <= most:
                raise ValueError(f"`{name}={given}` must lie in [1, {most}]; leave it out for the engine's own")
        for name, option in self.options.items():
            if not str(name).strip() or not str(option).strip():
                raise ValueError(f"`options` has {name!r}: {option!r}; a name and a value must not be empty")

    @property
    def processes(self) -> int:
        """Processes of one run, on all nodes together."""
        return self.devices * self.nodes


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The largest machine that a run can get.

    Examples:
        >>> Machine(name="this machine", cores=8, gpus=0).gpus
        0
    """

    name: str
    """As it is called in a sentence."""
    cores: int
    """CPU cores; 0: not known."""
    gpus: int
    """GPUs; −1: not known."""


def resource_problems(
    resources: ResourcesSpec, executor: str, configs: Iterable[Mapping[str, Any]], file: str = ""
) -> list[Problem]:
    """What cannot be split or placed as asked, whatever the machine.

    Args:
        resources: What is asked for.
        executor: Name of the executor.
        configs: Run configurations, one an arm.
        file: Named in the problems.

    Examples:
        >>> config = {"task": {"name": "image-classification"}, "training": {"batch_size": 50}, "environment": {}}
        >>> print(resource_problems(ResourcesSpec(devices=4), "local", [config])[0])
        training.batch_size: found 50; allowed: a multiple of 4, the processes of a run; each takes an equal part
    """
    found: dict[str, Problem] = {}
    if resources.nodes > 1 and executor != "slurm":
        fix = "Slurm places runs of several nodes; elsewhere start torchrun on each node yourself"
        found["nodes"] = Problem(file, "resources.nodes", f"{resources.nodes} with {executor}", "1", fix)
    if resources.storage == "copied" and executor == "slurm":
        fix = "jobs of Slurm find the study on storage that all machines share (--out)"
        found["storage"] = Problem(file, "resources.storage", "'copied' with slurm", "shared", fix)
    if resources.processes == 1:
        return list(found.values())
    allowed = f"a multiple of {resources.processes}, the processes of a run"
    for config in configs:
        task = config["task"]
        if task.get("command"):
            if resources.nodes > 1:
                fix = "a command gets the devices of one node and starts its own processes"
                found["nodes"] = Problem(file, "resources.nodes", str(resources.nodes), "1 for a command", fix)
            continue
        batch = int((config.get("training") or {}).get("batch_size", 0))
        if batch % resources.processes:
            found["batch"] = Problem(file, "training.batch_size", str(batch), allowed, "each takes an equal part")
        for reason in _one_process(config):
            key, count = ("devices", resources.devices) if resources.devices > 1 else ("nodes", resources.nodes)
            found[reason] = Problem(
                file, f"resources.{key}", f"{count} with {reason}", "1", "it is computed by one process"
            )
    return list(found.values())


def _one_process(config: Mapping[str, Any]) -> list[str]:
    """What of a run one process computes alone."""
    precision, training = config.get("precision", {}), config.get("training") or {}
    quantized = precision.get("schedule", "none") != "none"
    name = config["task"].get("name")
    found = {
        f"task {name}": name not in SPLIT_TASKS,
        "noise": config.get("noise", {}).get("kind", "none") != "none",
        "curvature": bool(config.get("curvature", {}).get("at")),
        "environment.backend: jax": config["environment"].get("backend") == "jax",
        "training.compile of a quantized model": bool(training.get("compile")) and quantized,
        "precision.execution": precision.get("execution", "simulated") != "simulated",
    }
    return [reason for reason, holds in found.items() if holds]


def machine_problems(
    resources: ResourcesSpec, machine: Machine, configs: Sequence[Mapping[str, Any]], *, strict: bool
) -> list[Problem]:
    """What the largest machine does not have.

    Args:
        resources: What is asked for.
        machine: What there is.
        configs: Run configurations, one an arm.
        strict: Whether a run that asks for more cores than there are would wait for ever.

    Examples:
        >>> config = {"environment": {"device": "cuda", "threads": 1}}
        >>> there = Machine(name="this machine", cores=8, gpus=0)
        >>> print(machine_problems(ResourcesSpec(), there, [config], strict=False)[0])
        environment.device: found 'cuda', 1 GPU a run; allowed: cpu; this machine has no GPU
    """
    found: dict[str, Problem] = {}
    wanted = resources.devices
    for config in configs:
        device, threads = config["environment"]["device"], int(config["environment"]["threads"])
        asks = device == "cuda" or (device == "auto" and machine.gpus > 0)
        if asks and 0 <= machine.gpus < wanted:
            gpus = f"{wanted} GPU{'s' if wanted > 1 else ''} a run"
            if machine.gpus == 0:
                found["gpu"] = Problem(
                    "", "environment.device", f"{device!r}, {gpus}", "cpu", f"{machine.name} has no GPU"
                )
            else:
                allowed = f"at most {machine.gpus}, the GPUs of {machine.name}"
                found["gpu"] = Problem("", "resources.devices", gpus, allowed, "or environment.device: cpu")
        elif strict and not asks and 0 < machine.cores < wanted * threads:
            cores = f"{wanted * threads} cores a run (devices × environment.threads)"
            allowed = f"at most {machine.cores}, the cores of {machine.name}"
            found["cores"] = Problem("", "resources.devices", cores, allowed)
    return list(found.values())
