"""What is concluded from records: pairs, losses, families, frames."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from trivet.core.io import append_jsonl, write_json
from trivet.stats import decide
from trivet.study import MetricSpec, Record, Results, StudySpec
from trivet.study.accounting import Harness, harness_of

ACCURACY = {
    ("fp32", "one"): [0.90, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97],
    ("RR", "one"): [0.80, 0.82, 0.81, 0.84, 0.83, 0.85, 0.86, 0.88],
    ("fp32", "two"): [0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98],
    ("RR", "two"): [0.81, 0.83, 0.82, 0.85, 0.84, 0.86, 0.87, 0.89],
}


def spec(*, two: bool = True, seeds: int = 8) -> StudySpec:
    factors: dict[str, Any] = {"precision": {"fp32": {}, "RR": {"schedule": "RR"}}}
    if two:
        factors["environment"] = {"one": {"threads": 1}, "two": {"threads": 2}}
    metric = MetricSpec(name="test_accuracy", margin=0.005)
    return StudySpec(name="r", base={}, factors=factors, seeds=seeds, metric=metric)


def results(folder: Path, states: dict[tuple[str, str, int], str] | None = None, *, two: bool = True) -> Results:
    records = []
    for (precision, threads), values in ACCURACY.items():
        if threads == "two" and not two:
            continue
        levels = {"precision": precision, "environment": threads} if two else {"precision": precision}
        for seed, value in enumerate(values):
            state: Any = (states or {}).get((precision, threads, seed), "finished")
            done = state == "finished"
            records.append(
                Record(
                    run_id=f"{precision}{threads}{seed}",
                    arm=" · ".join(levels.values()),
                    levels=levels,
                    seed=seed,
                    state=state,
                    folder=folder / f"{precision}{threads}{seed}",
                    metrics={"test_accuracy": value} if done else {},
                    bitops=5.0,
                    seconds=2.0,
                )
            )
    return Results(spec(two=two), records, folder)


def test_values_and_arms(tmp_path: Path) -> None:
    r = results(tmp_path, {("RR", "one", 3): "diverged"})
    assert r.arms == ["fp32 · one", "fp32 · two", "RR · one", "RR · two"]
    assert sorted(r.values("test_accuracy", "RR · one")) == [0, 1, 2, 4, 5, 6, 7]
    assert r.values("bitops", "fp32 · one")[0] == 5.0
    assert r.values("nothing", "fp32 · one") == {}
    with pytest.raises(ValueError, match=r"unknown arm 'RX · one'.*did you mean 'RR · one'"):
        r.values("test_accuracy", "RX · one")


def test_decide_averages_other_factors_within_each_seed(tmp_path: Path) -> None:
    verdict = results(tmp_path).decide("precision", "fp32", "RR")
    left = [(a + b) / 2 for a, b in zip(ACCURACY["fp32", "one"], ACCURACY["fp32", "two"], strict=True)]
    right = [(a + b) / 2 for a, b in zip(ACCURACY["RR", "one"], ACCURACY["RR", "two"], strict=True)]
    assert verdict == decide(left, right, margin=0.005, names=("fp32", "RR"), metric="test_accuracy")
    assert verdict.label == "different"
    other = results(tmp_path).decide("environment", "one", "two", margin=0.02)
    assert other.label == "equivalent"


def test_lost_pairs_are_told(tmp_path: Path) -> None:
    states = {("RR", "one", 3): "diverged", ("fp32", "one", 3): "failed", ("RR", "one", 5): "unreadable"}
    verdict = results(tmp_path, states, two=False).decide("precision", "fp32", "RR")
    assert verdict.comparison is not None
    assert verdict.comparison.n == 6
    assert "2 further pairs could not be compared" in verdict.sentence
    waiting = results(tmp_path, {("RR", "one", 3): "pending"}, two=False).decide("precision", "fp32", "RR")
    assert "could not be compared" not in waiting.sentence  # still to come, not lost
    both = {("RR", "one", 3): "pending", ("fp32", "one", 3): "diverged"}
    assert "1 further pair" in results(tmp_path, both, two=False).decide("precision", "fp32", "RR").sentence
    nothing = results(tmp_path, {("RR", "one", s): "diverged" for s in range(8)}, two=False)
    assert nothing.decide("precision", "fp32", "RR").label == "undecided"


def test_compare_all_is_one_family(tmp_path: Path) -> None:
    found = results(tmp_path).compare_all()
    assert [(c.arm_a, c.arm_b) for c in found] == [("fp32 · one", arm) for arm in results(tmp_path).arms[1:]]
    single = results(tmp_path, two=False).decide("precision", "fp32", "RR")
    assert single.p is not None
    assert found[1].verdict.p == pytest.approx(min(1.0, 3 * single.p))
    assert len(results(tmp_path).compare_all("RR · two")) == 3
    with pytest.raises(ValueError, match="unknown arm"):
        results(tmp_path).compare_all("x")


def test_unknown_names(tmp_path: Path) -> None:
    r = results(tmp_path, two=False)
    with pytest.raises(ValueError, match=r"unknown factor 'precison'.*did you mean 'precision'"):
        r.decide("precison", "fp32", "RR")
    with pytest.raises(ValueError, match="unknown level of precision 'RX'"):
        r.decide("precision", "fp32", "RX")
    with pytest.raises(ValueError, match="unknown metric 'test_acc'"):
        r.decide("precision", "fp32", "RR", metric="test_acc")
    assert r.decide("precision", "fp32", "RR", metric="seconds").margin == 0.0


def test_curves_and_environments(tmp_path: Path) -> None:
    r = results(tmp_path, two=False)
    first = r.records[0]
    log = first.folder / "metrics.jsonl"
    append_jsonl(log, [{"step": 1, "loss": 2.0}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": 1}])
    log.write_text(log.read_text() + '{"step": 4, "lo')
    write_json(first.folder / "environment.json", {"requested": {"threads": 1}})
    assert [tuple(point) for point in r.curves("loss")] == [("fp32", 0, 1, 2.0), ("fp32", 0, 3, 1.0)]
    assert r.environments() == {first.run_id: {"requested": {"threads": 1}}}


def test_to_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = results(tmp_path, {("RR", "one", 3): "diverged"}).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 32
    assert list(frame.columns[:6]) == ["run_id", "arm", "precision", "environment", "seed", "state"]
    assert frame.groupby("precision")["test_accuracy"].count().to_dict() == {"RR": 15, "fp32": 16}


def test_exit_code(tmp_path: Path) -> None:
    assert results(tmp_path, {("RR", "one", 3): "diverged"}).exit_code == 0
    for state in ("failed", "unreadable", "pending"):
        assert results(tmp_path, {("RR", "one", 3): state}).exit_code == 1


def test_harness_of_several_invocations() -> None:
    one = Harness(runs=2, slots=2, wall=5, slot_seconds=10, train=8, waiting=1, overhead=0.5).to_dict()
    none = Harness(runs=0, slots=2, wall=1, slot_seconds=2, train=0, waiting=0, overhead=0).to_dict()
    rows = [{"event": "run", "harness": one}, {"event": "run", "harness": none}, {"event": "changed"}, {"event": "run"}]
    found = harness_of([*rows, {"event": "run", "harness": one}])
    assert found is not None
    assert (found.runs, found.wall, found.efficiency, found.idle) == (4, 10, 0.8, 1.0)
    assert "80 % of 20.0 slot-seconds" in str(found)
    assert harness_of(rows[1:]) is None


def test_a_metric_that_never_came_is_told_as_such(tmp_path: Path) -> None:
    whole = results(tmp_path, two=False)
    renamed = [
        dataclasses.replace(record, metrics={"accuracy": record.metrics["test_accuracy"]})
        if record.levels["precision"] == "RR" and record.seed < 3
        else record
        for record in whole.records
    ]
    part = Results(whole.spec, renamed, tmp_path)
    for verdict in (part.decide("precision", "fp32", "RR"), part.compare_all()[0].verdict):
        assert "3 further pairs could not be compared: a run did not report test_accuracy." in verdict.sentence
        assert "diverged" not in verdict.sentence
    assert [record.seed for record in part.unreported] == [0, 1, 2]
    assert (part.exit_code, whole.exit_code) == (1, 0)
    mixed = [dataclasses.replace(r, state="failed", metrics={}) if r.seed == 2 else r for r in renamed]
    sentence = Results(whole.spec, mixed, tmp_path).decide("precision", "fp32", "RR").sentence
    assert "1 further pair could not be compared: a run diverged or failed." in sentence
    assert "2 further pairs could not be compared: a run did not report" in sentence


def test_runs_that_did_not_get_their_environment_are_left_out_and_told(tmp_path: Path) -> None:
    for seed in (2, 5):
        folder = tmp_path / f"RRone{seed}"
        folder.mkdir()
        write_json(folder / "environment.json", {"not_realised": ["threads", "mkl_cbwr"]})
    r = results(tmp_path, two=False)
    assert r.unrealised == {"RRone2": ("threads", "mkl_cbwr"), "RRone5": ("threads", "mkl_cbwr")}
    assert sorted(r.values("test_accuracy", "RR")) == [0, 1, 3, 4, 6, 7]
    for verdict in (r.decide("precision", "fp32", "RR"), r.compare_all()[0].verdict):
        assert verdict.n == 6
        assert "diverged" not in verdict.sentence
        assert "2 runs did not get the environment asked for (mkl_cbwr, threads) and are left out." in verdict.sentence
