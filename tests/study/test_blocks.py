"""Slurm with `block: seed`: the arms of a seed are one job, in order, and none is lost or done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trivet.core.runfolder import RunFolder
from trivet.study import PlannedRun, Study, StudySpec
from trivet.study.executors.base import Exit, Job, WorkerError
from trivet.study.executors.make import make_executor
from trivet.study.executors.placed import Report
from trivet.study.resources import ResourcesSpec

ARMS = {"a": {}, "b": {"task": {"options": {"x": 1}}}}
SAYS_ITS_JOB = "sh -c 'echo loss: $SUBMITIT_LOCAL_JOB_ID'"


def study(folder: Path, command: str = SAYS_ITS_JOB, **resources: Any) -> Study:
    content = {
        "name": "blocked",
        "base": {"task": {"command": command, "metrics": {"loss": r"loss: (\S+)"}}},
        "factors": {"arm": ARMS},
        "seeds": 2,
        "metric": {"name": "loss"},
        "resources": {"block": "seed", **resources},
    }
    return Study(StudySpec.from_mapping(content), folder)


def job(root: Path, name: str, block: int = 0) -> Job:
    config = {"task": {"command": "true"}, "environment": {"threads": 2}}
    run = PlannedRun(run_id=name, arm=name, levels={}, seed=block, block=block, config=config)
    (root / name).mkdir(exist_ok=True)
    return Job(run=run, folder=root / name, resources=ResourcesSpec(block="seed", minutes=10))


def ended(folder: Path, code: int) -> None:
    Report(code, 0.0, 1.0).write(str(folder))


def test_the_arms_of_a_seed_share_a_job_and_what_is_done_stays_done(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    from trivet.study.executors.slurm import SlurmExecutor

    place: Any = SlurmExecutor(tmp_path / "s" / ".slurm", cluster="local")
    results = study(tmp_path / "s").run(place, slots=1)  # smaller than a seed: it goes out whole
    jobs = {seed: {r.metrics["loss"] for r in results.records if r.seed == seed} for seed in (0, 1)}
    assert results.counts == {"finished": 4}
    assert len(jobs[0]) == len(jobs[1]) == 1
    assert jobs[0] != jobs[1]


def test_a_seed_is_one_batch_file_with_the_time_of_all_its_runs(slurm: Path) -> None:
    executor: Any = make_executor("slurm", ResourcesSpec(), slurm)
    handles = [executor.start(job(slurm, name)) for name in "abc"]
    assert not (slurm / "batch").exists()
    executor.wait(0.0)
    assert "#SBATCH --time=30" in (slurm / "batch").read_text()
    ended(slurm / "a", 0)
    assert executor.poll(handles[0]).code == 0


def test_runs_whose_turn_never_came_go_into_another_job(slurm: Path) -> None:
    """Slurm says that the job failed: the second run was killed in it, so the third was not even begun."""
    executor: Any = make_executor("slurm", ResourcesSpec(), slurm)
    first, second, third = [executor.start(job(slurm, name)) for name in "abc"]
    executor.wait(0.0)
    ended(slurm / "a", 0)
    first.submitted.done = lambda: True
    first.submitted.paths.stderr.write_text("slurmstepd: error: Detected 1 oom_kill event\n")
    assert [executor.poll(first).code, executor.poll(second).code, executor.poll(third)] == [0, -9, None]
    (slurm / "batch").unlink()
    again = executor.start(job(slurm, "b"))
    executor.wait(0.0)
    assert "#SBATCH --time=20" in (slurm / "batch").read_text()
    assert third.submitted is again.submitted is not None


def test_a_job_that_vanished_without_accounting_counts_as_killed(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster without accounting: `sacct` fails, and only `squeue` tells that a job is no longer there."""
    (slurm / "bin" / "sacct").write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n")
    (slurm / "bin" / "sbatch").write_text("#!/bin/sh\necho 'Submitted batch job 8'\n")  # submitit remembers job 7
    queue = slurm / "bin" / "squeue"
    queue.write_text("#!/bin/sh\necho 8\n")
    queue.chmod(0o755)
    for name in ("LOOK_SECONDS", "GONE_SECONDS"):
        monkeypatch.setattr(f"trivet.study.executors.slurm_queue.{name}", 0.0)
    monkeypatch.setattr("trivet.study.executors.slurm.LOOK_SECONDS", -1.0)
    executor: Any = make_executor("slurm", ResourcesSpec(), slurm)
    handle = executor.start(job(slurm, "a"))
    executor.wait(0.0)
    assert executor.poll(handle) is None  # it is in the queue
    queue.write_text("#!/bin/sh\nexit 1\n")
    assert executor.poll(handle) is None  # nobody knows
    queue.write_text("#!/bin/sh\n")
    assert executor.poll(handle).code == -9


def test_a_job_that_left_no_log_speaks_of_the_storage(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor: Any = make_executor("slurm", ResourcesSpec(), slurm)
    handle = executor.start(job(slurm, "a"))
    executor.wait(0.0)
    handle.submitted.done = lambda: True
    assert executor.poll(handle) is None  # the log may come
    monkeypatch.setattr("trivet.study.executors.slurm.LOG_SECONDS", 0.0)
    handle.looked = 0.0
    with pytest.raises(WorkerError, match=r"left no log in .*storage that all machines share"):
        executor.poll(handle)


def test_a_seed_that_waits_is_cancelled_and_a_refused_one_failed(slurm: Path) -> None:
    executor: Any = make_executor("slurm", ResourcesSpec(), slurm)
    waits = executor.start(job(slurm, "a"))
    executor.cancel(waits, force=False)
    assert executor.poll(waits).code == -15
    (slurm / "bin" / "sbatch").write_text("#!/bin/sh\necho 'invalid partition' >&2; exit 1\n")
    refused = executor.start(job(slurm, "b"))
    executor.wait(0.0)
    assert isinstance(executor.poll(refused), Exit)
    assert "invalid partition" in str(RunFolder(slurm / "b").read_error())


def test_a_job_that_is_started_again_goes_on_with_the_run_that_was_stopped(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    from trivet.study.executors.slurm_job import SlurmCalls

    begun: list[str] = []
    codes = {"failed": [1], "stopped": [143, 0], "last": [0]}

    class Call:
        def __init__(self, folder: Path) -> None:
            folder.mkdir()
            self.folder = str(folder)

        def __call__(self) -> Report:
            name = Path(self.folder).name
            begun.append(name)
            report = Report(codes[name].pop(0), 0.0, 1.0)
            if report.code != 143:  # submitit ends the process before a stopped run is reported
                report.write(self.folder)
            return report

    done = Call(tmp_path / "done")
    (tmp_path / "done" / "result.json").write_text("{}")
    made: list[Any] = [done, *(Call(tmp_path / name) for name in codes)]
    calls = SlurmCalls(made)
    calls()
    assert begun == ["failed", "stopped"]
    calls()
    assert begun == ["failed", "stopped", "stopped", "last"]
