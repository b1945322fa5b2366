"""Engines: what is asked of them, what is refused before anything starts, and the same results as on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import trivet
from trivet.core.errors import ConfigError, MissingExtraError, TrivetError
from trivet.study import PlannedRun, Study, StudySpec
from trivet.study.capacity import Capacity, measure_capacity
from trivet.study.executors import placed
from trivet.study.executors.base import Job, WorkerError, run_words
from trivet.study.executors.make import IN_THE_QUEUE, capacity_of, make_executor
from trivet.study.executors.placed import Placed, Report
from trivet.study.resources import Machine, ResourcesSpec, machine_problems, resource_problems
from trivet.study.store import spec_changes

COMMAND = {
    "name": "tiny",
    "base": {"task": {"command": "echo loss: {seed}.5", "metrics": {"loss": r"loss: (\S+)"}}},
    "seeds": 2,
    "metric": {"name": "loss"},
}


def job(folder: Path, *, command: bool = False, gpus: int = 0, **resources: Any) -> Job:
    config = {"task": {"command": "true"} if command else {"name": "x"}, "environment": {"threads": 2}}
    run = PlannedRun(run_id="ab", arm="base", levels={}, seed=0, block=0, config=config)
    return Job(run=run, folder=folder, gpus=gpus, resources=ResourcesSpec(**resources))


def config(device: str = "auto", batch: int = 8, **rest: Any) -> dict[str, Any]:
    own = {"task": {"name": "image-classification"}, "training": {"batch_size": batch}}
    return {**own, "environment": {"device": device, "threads": 2}, **rest}


@pytest.mark.parametrize(
    ("resources", "executor", "content", "said"),
    [
        ({"devices": 3}, "local", config(), "a multiple of 3"),
        ({"devices": 2}, "local", config(task={"name": "node-classification"}), "task node-classification"),
        ({"nodes": 2}, "slurm", config(task={"name": "detection"}), "resources.nodes: found 2 with task detection"),
        ({"devices": 2}, "local", config(noise={"kind": "rounding"}), "with noise"),
        ({"nodes": 2}, "ray", config(), "resources.nodes"),
        ({"nodes": 2}, "slurm", config(task={"command": "true"}), "1 for a command"),
    ],
)
def test_what_cannot_be_split_is_refused(resources: Any, executor: str, content: Any, said: str) -> None:
    assert said in str(resource_problems(ResourcesSpec(**resources), executor, [content])[0])


def test_what_can_be_split_is_not_refused() -> None:
    own = {"base": {"task": {"name": "image-classification", "data": "fashion-mnist", "model": "resnet8"}}}
    own["base"]["training"] = {"steps": 2, "batch_size": 8}
    StudySpec.from_mapping({**COMMAND, **own, "metric": {"name": "test_loss"}, "resources": {"devices": 2}})
    assert resource_problems(ResourcesSpec(devices=2, nodes=2), "slurm", [config(), config(batch=4)]) == []
    assert resource_problems(ResourcesSpec(devices=3), "local", [config(task={"command": "torchrun …"})]) == []


@pytest.mark.parametrize(
    ("device", "gpus", "devices", "said"),
    [
        ("cuda", 0, 1, "the node has no GPU"),
        ("cuda", 2, 4, "at most 2, the GPUs of the node"),
        ("auto", 2, 4, "at most 2"),
        ("cpu", 0, 4, "at most 4, the cores"),
    ],
)
def test_more_than_there_is_is_refused(device: str, gpus: int, devices: int, said: str) -> None:
    there = Machine(name="the node", cores=4, gpus=gpus)
    found = machine_problems(ResourcesSpec(devices=devices), there, [config(device)], strict=True)
    assert said in str(found[0])
    assert machine_problems(ResourcesSpec(), Machine(name="x", cores=4, gpus=1), [config(device)], strict=True) == []


def test_a_study_that_asks_for_a_gpu_is_refused_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    spec = StudySpec.from_mapping({**COMMAND, "base": {**COMMAND["base"], "environment": {"device": "cuda"}}})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="this machine has no GPU"):
        Study(spec, tmp_path / "s").run()
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_package_names_its_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"trivet\[{name}\]"):
        make_executor(name)


def test_torchrun_starts_a_split_run(tmp_path: Path) -> None:
    words = run_words(job(tmp_path, devices=2))
    assert words[1:4] == ["-m", "torch.distributed.run", "--standalone"]
    assert words[-4:] == ["--nproc-per-node=2", "-m", "trivet.tasks", str(tmp_path)]
    assert "--nnodes=3" in run_words(job(tmp_path, nodes=3))
    assert "torch.distributed.run" not in run_words(job(tmp_path, devices=2, command=True))


def test_a_run_of_two_devices_takes_two_gpus_or_the_cores_of_two() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert measure_capacity(0, environ, devices=2).gpus == ("0,1", "2,3")
    run = PlannedRun(run_id="a", arm="b", levels={}, seed=0, block=0, config=config("cpu"))
    assert Capacity(cores=8, slots=0, gpus=(), devices=2).parallel([run]) == 2


def test_devices_are_a_change_of_the_study_and_slots_are_not() -> None:
    specs = [StudySpec.from_mapping({**COMMAND, "resources": asked}) for asked in ({}, {"slots": 2}, {"devices": 2})]
    assert spec_changes(specs[0], specs[1]) == []
    assert spec_changes(specs[0], specs[2]) == ["devices: added 2"]


def test_a_worker_is_looked_at_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed, "SEE_SECONDS", 0.0)
    assert "does not see" in Placed(["python"], str(tmp_path), {}, trivet.__version__)().refused
    assert "install that" in Placed(["python"], str(tmp_path), {}, "0.0.0")().refused


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    Report(3, 1.0, 2.0).write(str(tmp_path))
    assert placed.read_report(tmp_path) == Report(3, 1.0, 2.0)
    assert placed.read_report(tmp_path / "nowhere") is None


def test_the_batch_file_says_what_was_asked(slurm: Path) -> None:
    executor: Any = make_executor("slurm", ResourcesSpec(options={"partition": "long", "account": "me"}), slurm)
    assert executor.largest() == Machine(name="the largest Slurm node", cores=64, gpus=4)
    (slurm / "run").mkdir()
    asked = job(slurm / "run", gpus=2, devices=2, nodes=3, minutes=90, memory_gb=8)
    handle = executor.start(asked)
    lines = (slurm / "batch").read_text().splitlines()
    wanted = {"partition=long", "account=me", "gres=gpu:2", "nodes=3", "cpus-per-task=4", "time=90", "mem=8GB"}
    assert {f"#SBATCH --{word}" for word in wanted} <= set(lines)
    assert any(line.startswith("srun ") and "submitit.core._submit" in line for line in lines)
    assert executor.poll(handle) is None or handle.exit.code == -9
    Report(0, time.time(), 1.0).write(str(slurm / "run"))
    handle.looked, handle.exit = 0.0, None
    ended = executor.poll(handle)
    assert (ended.code, ended.ran) == (0, 1.0)
    other = executor.start(asked)
    executor.cancel(other, force=False)
    assert (slurm / "cancelled").read_text().strip() == "7"
    Report(2, 0.0, 0.0, "host does not see it").write(str(slurm / "run"))
    with pytest.raises(WorkerError, match="does not see"):
        executor.poll(other)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "printf 'sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\\n"
            "sinfo: error: fetch_config: DNS SRV lookup failed\\nsinfo: fatal: Could not establish a configuration "
            "source\\n' >&2; exit 1",
            "executor slurm: the Slurm client here has no configuration; name its slurm.conf in SLURM_CONF, run trivet",
        ),
        (
            "echo 'sinfo: error: unable to contact slurm controller (connect failure)' >&2; exit 1",
            r"executor slurm: Slurm does not answer \(unable to contact slurm controller \(connect failure\)\)",
        ),
        ("sleep 5", "sinfo gave no answer in 0.2 s"),
    ],
)
def test_a_slurm_that_does_not_answer_is_one_message(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr("trivet.study.executors.slurm_info.SINFO_SECONDS", 0.2)
    (slurm / "bin" / "sinfo").write_text(f"#!/bin/sh\n{script.replace('sleep', 'exec sleep')}\n")
    executor: Any = make_executor("slurm", ResourcesSpec(), slurm)
    with pytest.raises(WorkerError, match=words) as caught:
        executor.largest()
    assert "\n" not in str(caught.value)


def test_without_sbatch_slurm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkerError, match="login node"):
        make_executor("slurm", folder=tmp_path)


def test_ray_is_refused_what_it_does_not_know_and_does_not_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = ModuleType("ray")
    fake.is_initialized = lambda: False
    monkeypatch.setitem(sys.modules, "ray", fake)
    for name, value, said in (
        ("adress", "x", "resources.options: found 'adress'; allowed: address, working_dir"),
        ("working_dir", "nowhere", "`working_dir: nowhere` is no folder"),
        ("address", "127.0.0.1:1", "no cluster at 127.0.0.1:1"),
    ):
        with pytest.raises(TrivetError, match=said):
            make_executor("ray", ResourcesSpec(options={name: value}))


def test_an_engine_gets_a_queue_of_runs() -> None:
    class Somewhere:
        def largest(self) -> Machine:
            return Machine(name="x", cores=1, gpus=0)

    place: Any = Somewhere()
    assert capacity_of(place, 0, ResourcesSpec(), 10_000).slots == IN_THE_QUEUE
    assert capacity_of(place, 0, ResourcesSpec(), 3).slots == 3


def test_submitits_local_mode_gives_the_results_of_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    from trivet.study.executors.slurm import SlurmExecutor

    found = {}
    for name in ("local", "submitit"):
        folder = tmp_path / name
        place: Any = "local" if name == "local" else SlurmExecutor(folder / ".slurm", cluster="local")
        results = Study(StudySpec.from_mapping(COMMAND), folder).run(place, slots=2)
        found[name] = {r.run_id: (r.state, dict(r.metrics), r.steps) for r in results.records}
    assert found["local"] == found["submitit"]
    assert {state for state, _, _ in found["local"].values()} == {"finished"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_gives_the_results_of_this_machine(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    found = {}
    try:
        ray.init(address="local", num_cpus=2, log_to_driver=False, include_dashboard=False)
        for name in ("local", "ray", "copied"):
            spec = StudySpec.from_mapping({**COMMAND, "resources": {"storage": "copied"} if name == "copied" else {}})
            results = Study(spec, tmp_path / name).run("local" if name == "local" else "ray", slots=2)
            found[name] = {r.run_id: (r.state, dict(r.metrics), r.steps) for r in results.records}
        threads = StudySpec.from_mapping({**COMMAND, "base": {**COMMAND["base"], "environment": {"threads": 3}}})  # type: ignore[dict-item]
        with pytest.raises(ConfigError, match="at most 2, the cores of the largest Ray node"):
            Study(threads, tmp_path / "wide").run("ray")
    finally:
        ray.shutdown()
    assert found["local"] == found["ray"] == found["copied"]
    assert {state for state, _, _ in found["ray"].values()} == {"finished"}
