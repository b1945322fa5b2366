"""The checks of `trivet doctor`: each looks at one thing and returns what it found and how to mend it.

Not covered: speed (see benchmarks/) and whether a particular study will fit into memory.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

PACKAGES = ("trivet", "torch", "torchvision", "numpy", "scipy", "safetensors", "pyyaml", "typer", "pydantic", "altair",
            "vl-convert-python", "jinja2")  # fmt: skip
OPTIONAL = {"torchvision": "vision"}
SWITCHES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED",
            "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "TRIVET_DATA_ROOT")  # fmt: skip
"""Environment variables that move results or speed."""

PROBE_SECONDS = 120
SMOKE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer.

    Examples:
        >>> Check("python", "ok", "3.11.7").to_dict()["status"]
        'ok'
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """Plain values, for JSON."""
        return asdict(self)


def all_checks(*, smoke: bool) -> Iterator[Check]:
    """Every check in turn; the slow ones (torch, the smoke training) last."""
    yield from (_python(), _packages(), _cpu(), _memory())
    yield from _folders()
    yield from (_compiler(), _switches())
    yield from _data()
    torch = _probe()
    yield from _torch(torch)
    if smoke and isinstance(torch, dict):
        yield _smoke()


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable}) on {platform.platform()}"
    if sys.platform == "win32":
        return Check("python", "warn", found, "trivet is tested on Linux and macOS; on Windows use WSL")
    return Check("python", "ok", found)


def _packages() -> Check:
    found: list[str] = []
    missing: list[str] = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    needed = [name for name in missing if name not in OPTIONAL]
    text = ", ".join(found)
    if needed:
        return Check("packages", "fail", f"{text}; missing: {', '.join(needed)}", "pip install --upgrade trivet")
    if missing:
        extras = ",".join(OPTIONAL[name] for name in missing)
        return Check("packages", "warn", f"{text}; missing: {', '.join(missing)}", f"pip install 'trivet[{extras}]'")
    return Check("packages", "ok", text)


def _cpu() -> Check:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    found = f"{model}, {cores} cores usable, load {load:.1f}"
    if load > 0.5 * cores + 0.5:
        return Check(
            "cpu", "warn", found, "other work is running: measured seconds will be too long; results are not touched"
        )
    return Check("cpu", "ok", found)


def _memory() -> Check:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (ValueError, OSError):
        return Check("memory", "warn", "unknown", "at least 2 GiB free are needed for each run at the same time")
    free = total
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        free = next(int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    found = f"{total:.1f} GiB, {free:.1f} GiB free"
    if free < 2:
        return Check("memory", "warn", found, "a run needs about 1 GiB; close something, or use `--slots 1`")
    return Check("memory", "ok", found)


def _folders() -> Iterator[Check]:
    from trivet.tasks.data.base import default_root

    for name, folder in (("here", Path.cwd()), ("cache", default_root()), ("temporary", Path(tempfile.gettempdir()))):
        yield _folder(f"folder: {name}", folder)


def _folder(name: str, folder: Path) -> Check:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    try:
        with tempfile.NamedTemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free / 2**30
    except OSError as error:
        return Check(name, "fail", f"{folder}: cannot be written ({error.strerror})", "use another folder: --out DIR")
    found = f"{folder}: writable, {free:.1f} GiB free"
    return Check(
        name, "warn" if free < 1 else "ok", found, "free some space: a full disk stops a study" if free < 1 else ""
    )


def _compiler() -> Check:
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return Check("compiler", "ok", path)
    return Check("compiler", "warn", "no C compiler", "only `training.compile: true` needs one: apt-get install gcc")


def _switches() -> Check:
    found = [f"{name}={os.environ[name]}" for name in SWITCHES if name in os.environ]
    text = ", ".join(found) or "none set"
    return Check("variables", "ok", f"{text}; a study sets the thread counts of each run itself")


def _data() -> Iterator[Check]:
    from trivet.tasks.data import describe

    infos = describe()
    here = [info.name for info in infos if info.found]
    yield Check(
        "data", "ok" if here else "fail", f"found: {', '.join(here) or 'none'}", "" if here else "install trivet again"
    )


def _probe() -> dict[str, Any] | str:
    command = [sys.executable, "-m", "trivet.cli.probe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"importing it took more than {PROBE_SECONDS} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return lines[-1]
    return json.loads(done.stdout)


def _torch(torch: dict[str, Any] | str) -> Iterator[Check]:
    if isinstance(torch, str):
        yield Check(
            "torch", "fail", f"cannot be imported: {torch}", "install it again: pip install --force-reinstall torch"
        )
        return
    found = f"{torch['version']}, imported in {torch['import_seconds']:.1f} s, CPU kernels: {torch['cpu_capability']}"
    yield Check("torch", "ok", found)
    yield _cuda(torch)
    state = (
        f"deterministic algorithms {'on' if torch['deterministic'] else 'off'}, "
        f"matmul precision {torch['matmul_precision']}, cuDNN benchmark {'on' if torch['cudnn_benchmark'] else 'off'}"
    )
    if torch["cuda_available"] and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        fix = "for bit-equal runs on a GPU: environment.deterministic: true (and CUBLAS_WORKSPACE_CONFIG=:4096:8)"
        yield Check("determinism", "warn", state, fix)
    else:
        yield Check("determinism", "ok", state)


def _cuda(torch: dict[str, Any]) -> Check:
    if torch["devices"]:
        names = ", ".join(f"{item['name']} ({item['memory_gib']:.0f} GiB)" for item in torch["devices"])
        return Check("cuda", "ok", f"{names}; torch was built for CUDA {torch['cuda_built']}")
    if shutil.which("nvidia-smi") and not torch["cuda_available"]:
        fix = "a driver is installed, but torch cannot use it: compare `nvidia-smi` with torch's CUDA version"
        return Check("cuda", "warn", f"not usable; torch was built for CUDA {torch['cuda_built']}", fix)
    return Check("cuda", "ok", "none; everything runs on the CPU")


def _smoke() -> Check:
    """Train a small net for a few steps exactly as a study would: a process of its own, a run folder."""
    from trivet.core.config import dump_yaml
    from trivet.core.runfolder import RunFolder

    config = {
        "task": {"data": "fashion-mnist", "model": "resnet8", "width": 8, "train_examples": 512},
        "training": {"steps": 20, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}},
        "precision": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 2},
        "environment": {"threads": 1},
        "seed": 0,
    }
    with tempfile.TemporaryDirectory(prefix="trivet-doctor-") as name:
        run = RunFolder(Path(name) / "run")
        run.path.mkdir()
        run.config_path.write_text(dump_yaml(config), encoding="utf-8")
        start = time.perf_counter()
        command = [sys.executable, "-m", "trivet.tasks", str(run.path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SMOKE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return Check("smoke training", "fail", f"not done after {SMOKE_SECONDS} s", "is the machine overloaded?")
        seconds = time.perf_counter() - start
        return _judge_smoke(run, done, seconds)


def _judge_smoke(run: Any, done: subprocess.CompletedProcess[str], seconds: float) -> Check:
    if done.returncode or not run.is_done:
        error = run.read_error() or {}
        said = f"{error.get('type', '')}: {error.get('message', '')}" if error else done.stderr.strip()[-300:]
        return Check(
            "smoke training", "fail", f"exit code {done.returncode}: {said}", "please report it with this output"
        )
    result = run.read_result()
    found = (
        f"{result.steps} steps of a small ResNet at 3 to 8 bits: {result.outcome}, "
        f"{result.train_seconds:.1f} s training, {seconds:.1f} s in all"
    )
    return Check("smoke training", "ok" if result.outcome == "finished" else "fail", found)
