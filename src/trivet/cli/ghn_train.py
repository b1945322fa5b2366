"""`trivet ghn train`: train a hypernetwork in a run folder; the same command goes on after a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import FAILED, INTERRUPTED, emit_json, talk, verb
from trivet.cli.options import StudySetOption
from trivet.core.errors import ConfigError, Problem
from trivet.core.processes import die_with_parent

if TYPE_CHECKING:
    from trivet.core.runfolder import RunFolder
    from trivet.ghn.meta.config import MetaConfig


@verb
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What is trained, on which networks and data.")],
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; runs/NAME by default.")] = None,
    set_: StudySetOption = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="Processes that share a meta-batch; else `resources.devices`, or 1."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the configuration and say what it means.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result (or the plan) as JSON.")] = False,
) -> None:
    """Train a hypernetwork on sampled architectures; Ctrl-C stops after a checkpoint, the same command goes on."""
    from trivet.core.config import to_plain
    from trivet.core.runfolder import RunFolder
    from trivet.ghn.folder import find_folder
    from trivet.tasks.data.sources import check_images

    made, count = _read(config, set_ or [], processes)
    for name in made.tasks.all_sources if made.tasks else (made.data.name,):
        check_images(name)
    if made.training.start_from:
        find_folder(made.training.start_from)
    if dry_run:
        _plan(made, to_plain(made), json)
        return
    folder = RunFolder(out or Path("runs") / config.stem)
    _write_config(folder, made)
    code = 0 if folder.is_done else _run(folder, made, count)
    if code:
        talk(f"stopped; the same command goes on in {folder.path}" if code > 128 else f"see {folder.error_path}")
        raise typer.Exit(INTERRUPTED if code == 128 + signal.SIGINT else code if code < 128 else FAILED)
    result = folder.read_result()
    if json:
        emit_json({"folder": str(folder.path), "outcome": result.outcome, "steps": result.steps, **result.metrics})
    else:
        print(f"{result.outcome} after {result.steps:,} steps: {folder.path / 'ghn'}")
        for name, value in result.metrics.items():
            print(f"  {name:24} {value:.4g}")
    if result.outcome != "finished":
        raise typer.Exit(FAILED)


def _read(path: Path, overrides: list[str], processes: int | None) -> tuple[MetaConfig, int]:
    """The configuration, and by how many processes it is trained: that is no part of what a run is."""
    from trivet.core.config import build, load_yaml, set_key, to_plain
    from trivet.ghn.meta.config import MetaConfig
    from trivet.study.capacity import count_cores, find_gpus
    from trivet.study.resources import Machine, ResourcesSpec, machine_problems

    content, file = load_yaml(path), str(path)
    for assignment in overrides:
        content = set_key(content, assignment)
    asked = build(ResourcesSpec, content.pop("resources", {}), file=file, key="resources")
    made = build(MetaConfig, content, file=file)
    there = "on each node start torchrun with -m trivet.tasks.ghn_train, see docs/scale.md"
    problems = [
        Problem(file, f"resources.{name}", repr(value), "devices alone", there if name == "nodes" else "leave it out")
        for name, value in to_plain(asked).items()
        if name != "devices" and value != getattr(ResourcesSpec(), name)
    ]
    asked = ResourcesSpec(devices=processes or asked.devices)
    if made.training.meta_batch < asked.devices:
        found, key = str(made.training.meta_batch), "training.meta_batch"
        fix = "raise it or start fewer (--processes, resources.devices)"
        problems.append(Problem(file, key, found, f"≥ {asked.devices}, the number of processes", fix))
    machine = Machine(name="this machine", cores=count_cores(), gpus=len(find_gpus(os.environ)))
    problems += machine_problems(asked, machine, [to_plain(made)], strict=False)
    if problems:
        raise ConfigError(problems)
    return made, asked.devices


def _plan(config: MetaConfig, plain: dict[str, Any], json: bool) -> None:
    training, tasks = config.training, config.tasks
    images = training.steps * training.meta_batch * training.images
    if json:
        emit_json({"config": plain, "images": images, "predictions": training.steps * training.meta_batch})
        return
    names = ", ".join(tasks.all_sources) if tasks else config.data.name
    print(
        f"{training.steps:,} steps of {training.meta_batch} networks × {training.images} images: "
        f"{training.steps * training.meta_batch:,} predictions, {images:,} images of {names}"
    )
    if tasks:
        told = "is shown" if config.ghn.task == "set" else "is not shown"
        print(f"tasks of {tasks.ways} classes, of which the hypernetwork {told} {tasks.shots} images each")
    for name, budget in (("processor", training.cpu_seconds), ("wall", training.seconds)):
        if budget:
            print(f"or as many as fit into {budget:,.0f} {name} seconds")
    print(f"{config.pool.size:,} architectures of at most {config.pool.max_macs / 1e6:g} M multiply-accumulates")


def _write_config(folder: RunFolder, config: MetaConfig) -> None:
    """Make the folder, or check that it holds a run of this configuration."""
    from trivet.core.config import build, dump_yaml, load_yaml, to_plain
    from trivet.core.io import write_text
    from trivet.ghn.meta.config import MetaConfig

    if not folder.config_path.exists():
        write_text(folder.config_path, dump_yaml(to_plain(config)))
        return
    there = build(MetaConfig, load_yaml(folder.config_path), file=str(folder.config_path))
    if there != config:
        fix = "give another folder with --out, or remove this one"
        raise ConfigError([Problem(str(folder.path), "", "a run of another configuration", "a run of this one", fix)])


def _run(folder: RunFolder, config: MetaConfig, processes: int) -> int:
    """Train in a process of its own, or several; its talk goes to standard error. Returns its exit code."""
    launcher: list[str] = []
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *launcher, "-m", "trivet.tasks.ghn_train", str(folder.path)]
    with subprocess.Popen(
        command,
        env={**os.environ, **config.environment.variables()},
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),
    ) as process:  # a run whose command was killed writes its checkpoint and ends
        while True:
            try:
                code = process.wait()
                return 128 - code if code < 0 else code
            except KeyboardInterrupt:  # the terminal interrupted the child too; it writes a checkpoint and ends
                talk("stopping …")
