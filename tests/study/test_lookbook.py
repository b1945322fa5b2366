"""Studies that are run until decided: stops, records, resumes, refuses to look more often than planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trivet.core.errors import ConfigError, RunFolderError
from trivet.study import MetricSpec, Results, StudySpec
from trivet.study.lookbook import FILE, LookBook

WIDE = {"seeds": 12, "metric": {"name": "test_accuracy", "margin": 0.9}}
NARROW = {"seeds": 9, "metric": {"name": "test_accuracy", "margin": 0.0001}}


def book_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / FILE).read_text(encoding="utf-8"))


def test_a_study_stops_as_soon_as_its_comparison_is_decided(lab: Any) -> None:
    results = lab.run(WIDE, until_decided=True)
    (comparison,) = results.compare_all()
    assert comparison.verdict.label == "equivalent"
    assert comparison.verdict.n == 7
    assert "Look 1 of 2" in comparison.verdict.sentence
    assert len(lab.counted("done")) == 14
    assert (len(results.records), results.exit_code) == (14, 0)
    assert "10 runs were not needed" in results.notes[-1]
    (entry,) = book_of(lab.folder)["comparisons"].values()
    assert [(row["n"], row["label"]) for row in entry["looks"]] == [(7, "equivalent")]
    assert entry["looks"][0]["when"]
    again = lab.run(WIDE, until_decided=True)
    assert len(lab.counted("start")) == 14
    assert again.compare_all() == results.compare_all() == Results.load(lab.folder).compare_all()


def test_the_rest_may_be_run_and_changes_no_verdict(lab: Any) -> None:
    first = lab.run(WIDE, until_decided=True)
    rest = lab.run(WIDE)
    assert len(rest.records) == 24
    assert rest.compare_all() == first.compare_all()
    assert "not one of the planned looks" in rest.compare_all("RR")[0].verdict.sentence
    assert "not one of the planned looks" in rest.decide("precision", "fp32", "RR").sentence


def test_no_more_looks_than_planned(lab: Any) -> None:
    results = lab.run(NARROW, until_decided=True, looks=2)
    assert results.compare_all()[0].verdict.label == "undecided"
    assert "No look is left" in results.compare_all()[0].verdict.sentence
    before = book_of(lab.folder)
    lab.run(NARROW, until_decided=True, looks=8)
    assert book_of(lab.folder) == before
    with pytest.raises(ConfigError, match="looks were planned"):
        lab.run({**NARROW, "seeds": 16}, until_decided=True)
    with pytest.raises(ConfigError, match="margin"):
        lab.run({**NARROW, "metric": {"name": "test_accuracy", "margin": 0.5}}, until_decided=True)
    assert len(lab.counted("start")) == 18


def test_an_interrupted_study_resumes_without_an_extra_look(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    take = LookBook.take

    def stops_before_the_second(book: LookBook, values: Any, diverged: Any) -> list[str]:
        if book.number == 1:
            raise KeyboardInterrupt
        return take(book, values, diverged)

    with monkeypatch.context() as patch:
        patch.setattr(LookBook, "take", stops_before_the_second)
        with pytest.raises(KeyboardInterrupt):
            lab.run(NARROW, until_decided=True, looks=2)
    (entry,) = book_of(lab.folder)["comparisons"].values()
    assert len(entry["looks"]) == 1
    halfway = Results.load(lab.folder)
    assert "1 of 2 planned looks taken" in halfway.notes[-1]
    assert halfway.compare_all()[0].verdict.more_seeds == 3
    lab.run(NARROW, until_decided=True, looks=2)
    (again,) = book_of(lab.folder)["comparisons"].values()
    assert [row["n"] for row in again["looks"]] == [6, 9]
    assert again["looks"][0] == entry["looks"][0]
    assert len(lab.counted("start")) == 18


def test_runs_that_were_there_before_the_plan_are_told(lab: Any) -> None:
    lab.run({**WIDE, "seeds": 2})
    results = lab.run(WIDE, until_decided=True)
    assert "4 runs were done before the looks were planned" in results.notes[-1]


def test_lost_pairs_and_too_many_of_them(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"0": "diverge", "1": "raise"}))
    with pytest.raises(RunFolderError, match="look 1 is not taken: RR has 5 pairs"):
        lab.run(WIDE, until_decided=True)
    assert book_of(lab.folder)["comparisons"]["RR"]["looks"] == []
    monkeypatch.setenv("FAKE_FAULTS", "{}")
    results = lab.run(WIDE, until_decided=True)
    verdict = results.compare_all()[0].verdict
    assert verdict.n == 6
    assert "1 pair lost" in verdict.sentence


def spec(seeds: int = 12, margin: float = 0.1) -> StudySpec:
    return StudySpec(name="s", base={}, seeds=seeds, metric=MetricSpec(name="loss", margin=margin))


def test_each_comparison_keeps_its_own_verdict(tmp_path: Path) -> None:
    book = LookBook.make(tmp_path, spec(), ["base", "far", "near"], 2, 0)
    noise = [0.3, -0.2, 0.25, -0.35, 0.1, -0.15, 0.2, -0.1, 0.3, -0.3, 0.15, -0.2]
    base = {seed: 1.0 + 0.01 * seed for seed in range(12)}
    far = {seed: base[seed] + 5 + noise[seed] for seed in base}
    near = {seed: base[seed] + noise[seed] for seed in base}
    values = {"base": base, "far": far, "near": near}
    assert book.verdict("far", values).reason == "too few pairs"
    while not book.decided:
        shown = {arm: {s: v for s, v in found.items() if s < book.next_pairs} for arm, found in values.items()}
        book.take(shown)
    again = LookBook.load(tmp_path)
    assert again is not None
    assert again == book
    assert [len(one.looks) for one in again.taken.values()] == [1, 2]
    verdict = again.verdict("far", values)
    assert (verdict.label, verdict.n, verdict.beyond_margin) == ("different", book.plan.pairs[0], True)
    assert verdict.comparison is not None
    assert verdict.comparison.confidence == 0.9
    assert again.verdict("near", values).label == "undecided"


def test_an_arm_that_always_diverges_blocks_no_other_and_gets_no_verdict(tmp_path: Path) -> None:
    book = LookBook.make(tmp_path, spec(), ["base", "broken", "far"], 2, 0)
    base = {seed: 0.01 * seed for seed in range(12)}
    values = {"base": base, "broken": {}, "far": {seed: v + 5 + 0.1 * (-1) ** seed for seed, v in base.items()}}
    while not book.decided:
        book.take(values, {"broken": range(12)})
    assert [len(one.looks) for one in book.taken.values()] == [2, 1]
    verdict = book.verdict("broken", values)
    assert (verdict.label, verdict.reason, verdict.n, verdict.comparison) == ("undecided", "too few pairs", 0, None)
    assert "12 pairs lost" in verdict.sentence
    assert book.verdict("far", values).label == "different"
    with pytest.raises(RunFolderError, match="broken has 0 pairs"):
        LookBook.make(tmp_path, spec(), ["base", "broken"], 2, 0).take(values)


def test_changed_outcomes_are_noticed(tmp_path: Path) -> None:
    book = LookBook.make(tmp_path, spec(margin=0.001), ["a", "b"], 2, 0)
    values = {"a": dict.fromkeys(range(12), 1.0), "b": {s: 1.0 + (-1) ** s * 0.1 for s in range(12)}}
    first = {arm: {s: v for s, v in found.items() if s < book.next_pairs} for arm, found in values.items()}
    book.take(first)
    with pytest.raises(RunFolderError, match="seen at an earlier look and is gone"):
        book.take({**values, "b": {s: v for s, v in values["b"].items() if s != 2}})
    with pytest.raises(RunFolderError, match="unchanged values"):
        book.take({**values, "b": {**values["b"], 2: 3.0}})


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two arms or more"):
        LookBook.make(tmp_path, spec(), ["base"], 4, 0)
    with pytest.raises(ConfigError, match="at least 6"):
        LookBook.make(tmp_path, spec(seeds=5), ["a", "b"], 4, 0)
    with pytest.raises(ConfigError, match="at least 1"):
        LookBook.make(tmp_path, spec(), ["a", "b"], 0, 0)
    assert LookBook.load(tmp_path) is None
    for text in ("", "{}", "[]", '{"format": 1, "comparisons": {}}', '{"format": 2}'):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(ConfigError, match="no record of looks"):
            LookBook.load(tmp_path)
