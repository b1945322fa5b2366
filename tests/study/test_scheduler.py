"""One invocation with real processes: every kind of end, each seen from the run folder."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from trivet.study import PlannedRun, Record, Results, StudyStopped
from trivet.study.capacity import Capacity
from trivet.study.store import Store


class Watch:
    """Remembers what progress was told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.most = 0

    def begin(self, total: int, done: int, slots: int) -> None:
        self.events.append(("begin", total, done, slots))

    def started(self, run: PlannedRun, attempt: int) -> None:
        self.events.append(("started", run.run_id, attempt))

    def ended(self, record: Record) -> None:
        self.events.append(("ended", record.run_id, record.state))

    def tick(self, active: Any) -> None:
        self.most = max(self.most, len(active))

    def message(self, text: str) -> None:
        self.events.append(("message", text))

    def end(self) -> None:
        self.events.append(("end",))

    def texts(self) -> str:
        return "\n".join(event[1] for event in self.events if event[0] == "message")


def faults(monkeypatch: pytest.MonkeyPatch, content: dict[str, str]) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps(content))


@pytest.mark.parametrize("warm", [True, False])
def test_every_run_once_and_again_never(lab: Any, truth: dict[str, Any], warm: bool) -> None:
    watch = Watch()
    results = lab.run(warm=warm, progress=watch)
    assert lab.outcomes(results) == truth
    assert results.exit_code == 0
    assert len(lab.counted("start")) == len(set(lab.counted("start"))) == 6
    assert watch.events[0] == ("begin", 6, 0, 2)
    assert watch.events[-1] == ("end",)
    assert lab.outcomes(lab.run(warm=warm)) == truth
    assert len(lab.counted("start")) == 6
    assert lab.outcomes(Results.load(lab.folder)) == truth


def test_an_orphaned_request_falls_back_when_the_server_cannot_start(
    lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SERVER", "never")
    assert lab.outcomes(lab.run()) == truth
    assert len(lab.counted("start")) == 6


def test_a_server_that_dies_is_started_once_more(
    lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SERVER", "dies")
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.02")
    assert lab.outcomes(lab.run()) == truth
    assert sorted(lab.counted("done")) == sorted(truth)


@pytest.mark.parametrize("warm", [True, False])
def test_a_run_killed_once_resumes(
    lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    faults(monkeypatch, {"1": "killed-once"})
    watch = Watch()
    assert lab.outcomes(lab.run(warm=warm, progress=watch)) == truth
    assert len(lab.counted("start")) == 8
    assert "killed by SIGKILL; started once more" in watch.texts()
    steps = [line.split()[2] for line in lab.count_file.read_text().splitlines() if line.startswith("start")]
    assert sorted(steps) == ["0"] * 6 + ["3"] * 2  # resumed in the middle


def test_a_run_killed_twice_is_a_failure_and_the_others_go_on(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faults(monkeypatch, {"1": "killed"})
    results = lab.run()
    assert results.counts == {"finished": 4, "failed": 2}
    assert results.exit_code == 1
    assert {r.reason for r in results.records if r.state == "failed"} == {
        "Killed: killed by SIGKILL, 2 times; out of memory?"
    }
    assert len(lab.counted("start")) == 8


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise", "ValueError: made to fail"),
        ("config", "ValueError: made to fail"),
        ("exit3", "NoResult: ended with exit code 3 and no result; last line of its log: the last words"),
    ],
)
def test_a_run_that_raised_is_not_retried_but_the_next_invocation_does(
    lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    faults(monkeypatch, {"2": fault})
    results = lab.run()
    assert results.counts == {"finished": 4, "failed": 2}
    assert {r.reason for r in results.records if r.state == "failed"} == {reason}
    assert len(lab.counted("start")) == 6
    faults(monkeypatch, {})
    assert lab.outcomes(lab.run()) == truth
    assert len(lab.counted("start")) == 8


def test_a_diverged_run_is_an_outcome(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faults(monkeypatch, {"0": "diverge"})
    results = lab.run()
    assert results.counts == {"finished": 4, "diverged": 2}
    assert results.exit_code == 0
    assert len(results.values("test_accuracy", "RR")) == 2
    verdict = results.decide("precision", "fp32", "RR")
    assert "1 further pair could not be compared: a run diverged" in verdict.sentence


def test_a_full_disk_stops_launching_and_nothing_is_lost(
    lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults(monkeypatch, {"1": "enospc"})
    with pytest.raises(StudyStopped, match=r"disk that holds .* is full.*runs are done and kept") as stopped:
        lab.run(slots=1)
    assert stopped.value.exit_code == 1
    assert stopped.value.results is not None
    assert stopped.value.results.counts == {"finished": 2, "pending": 4}
    assert len(lab.counted("start")) == 3
    faults(monkeypatch, {})
    assert lab.outcomes(lab.run()) == truth


def test_a_full_disk_met_by_the_parent(lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    real = Store.prepare

    def prepare(store: Store, run: PlannedRun) -> Any:
        if len(prepared) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        prepared.append(run.run_id)
        return real(store, run)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "prepare", prepare)
        with pytest.raises(StudyStopped, match="No space left on device"):
            lab.run()
    assert sorted(lab.counted("done")) == sorted(prepared)
    assert lab.outcomes(lab.run()) == truth


def test_threads_decide_the_server_and_the_variables(lab: Any) -> None:
    levels = {"one": {"threads": 1}, "two": {"threads": 2}}
    results = lab.run({"factors": {"environment": levels}, "seeds": 1})
    assert results.exit_code == 0
    threads = {line.split()[1]: line.split()[3] for line in lab.count_file.read_text().splitlines() if "start" in line}
    asked = {r.run_id: {"one": "1", "two": "2"}[r.levels["environment"]] for r in results.records}
    assert threads == asked


def test_each_gpu_takes_one_run_and_all_arms_of_a_seed_share_one(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.05")
    watch = Watch()
    results = lab.run({"seeds": 4}, slots=0, progress=watch)
    lines = [line.split() for line in lab.count_file.read_text().splitlines() if line.startswith("start")]
    seen = {words[1]: words[4] for words in lines}
    assert {(r.seed, seen[r.run_id]) for r in results.records} == {(0, "3"), (1, "5"), (2, "3"), (3, "5")}
    assert watch.most == 2


def test_a_fault_of_the_parent_leaves_no_run_behind(
    lab: Any, truth: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.1")

    class Broken(Watch):
        def tick(self, active: Any) -> None:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        lab.run(warm=False, progress=Broken())
    lab.wait_for(lambda: not lab.locked(), 10)
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0")
    assert lab.outcomes(lab.run()) == truth


def test_slots_are_kept(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.1")
    watch = Watch()
    lab.run({"seeds": 4, "base": {"training": {"steps": 3}}}, slots=3, progress=watch)
    assert watch.most == 3


def test_the_accounts_add_up(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.1")
    harness = lab.run().harness
    assert harness is not None
    assert harness.runs == 6
    assert harness.slot_seconds == pytest.approx(2 * harness.wall)
    parts = harness.train + harness.waiting + harness.overhead + harness.idle
    assert parts == pytest.approx(harness.slot_seconds)
    assert 0 < harness.efficiency < 1
    assert harness.train >= 6 * 6 * 0.1


def planned(*, seed: int = 0, threads: int = 1, device: str = "auto") -> PlannedRun:
    config = {"environment": {"threads": threads, "device": device}}
    return PlannedRun(run_id="0" * 12, arm="a", levels={}, seed=seed, block=seed, config=config)


def test_capacity() -> None:
    cpu = Capacity(cores=8, slots=0, gpus=())
    assert cpu.parallel([planned(threads=2)]) == 4
    assert cpu.weight(planned(threads=99)) == 8
    assert cpu.total([planned()]) == 8
    asked = Capacity(cores=8, slots=3, gpus=())
    assert (asked.parallel([planned(threads=2)]), asked.weight(planned(threads=2)), asked.total([planned()])) == (
        3,
        1,
        3,
    )
    gpus = Capacity(cores=8, slots=0, gpus=("0", "1"))
    assert [gpus.pool(planned(seed=s)) for s in range(4)] == ["0", "1", "0", "1"]
    assert gpus.pool(planned(device="cpu")) == "cpu"
    assert gpus.parallel([planned(seed=s) for s in range(4)]) == 2
    one = Capacity(cores=8, slots=1, gpus=("0", "1"))
    assert {one.pool(planned(seed=s)) for s in range(4)} == {"0"}
