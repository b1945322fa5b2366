from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from trivet.report import summarize
from trivet.report.summary import STATES, finite
from trivet.study import Results

SCHEMA = Path(__file__).with_name("summary_keys.txt")
"""Every key of the public schema. A key that goes away or changes its meaning raises `FORMAT`."""


def keys(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        names = {f"{path}.{name}".lstrip(".") for name in value}
        return names.union(*(keys(item, f"{path}.{name}".lstrip(".")) for name, item in value.items()))
    if isinstance(value, list):
        return set().union(*(keys(item, f"{path}[]") for item in value))
    return set()


def test_the_schema_is_as_published(study: Results) -> None:
    summary = summarize(study)
    assert summary["format"] == 1
    assert sorted(keys(summary)) == SCHEMA.read_text().splitlines()


def test_the_same_records_give_the_same_bytes_and_plain_json(study: Results) -> None:
    first, second = (json.dumps(summarize(study), allow_nan=False) for _ in range(2))
    assert first == second
    assert json.loads(first) == summarize(study)


def test_arm_figures_equal_numpy_and_scipy(study: Results) -> None:
    for row in summarize(study)["arms"]:
        values = np.array(list(study.values("test_accuracy", row["arm"]).values()))
        low, high = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
        found = row["metric"]
        expected = [values.mean(), values.std(ddof=1), low, high]
        assert [found["mean"], found["sd"], found["low"], found["high"]] == pytest.approx(expected, rel=1e-9)
        assert found["n"] == len(values) == row["runs"]["finished"]


def test_comparisons_equal_scipy(study: Results) -> None:
    base = study.values("test_accuracy", "fp32")
    raw = []
    for row in summarize(study)["comparisons"]:
        other = study.values("test_accuracy", row["arm"])
        seeds = sorted(set(base) & set(other))
        differences = np.array([other[seed] - base[seed] for seed in seeds])
        test = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
        assert [row["effect"], row["low"], row["high"]] == pytest.approx([differences.mean(), test.low, test.high])
        assert [point["value"] for point in row["differences"]] == pytest.approx(list(differences))
        assert [point["seed"] for point in row["differences"]] == seeds
        flips = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert row["p"] == pytest.approx(flips.pvalue)
        raw.append(row["p"])
        assert row["n_pairs"] + row["pairs_lost"] == 8
    adjusted = [row["p_adjusted"] for row in summarize(study)["comparisons"]]
    order = np.argsort(raw, kind="stable")
    holm = np.empty(3)
    holm[order] = np.minimum(1.0, np.maximum.accumulate(np.sort(raw) * (3, 2, 1)))
    assert adjusted == pytest.approx(list(holm))


def test_costs_stand_apart_each_with_its_unit(study: Results) -> None:
    rows = {row["arm"]: row for row in summarize(study)["arms"]}
    assert rows["static8"]["bitops"]["unit"] == "BitOPs"
    assert rows["static8"]["bitops"]["relative_to_baseline"] == pytest.approx(64 / 1024)
    assert rows["static8"]["train_seconds"]["unit"] == "s"
    assert rows["static8"]["train_seconds"]["relative_to_baseline"] == pytest.approx(6 / 5)


def test_bad_runs_are_counted_named_and_in_no_mean(study: Results) -> None:
    summary = summarize(study)
    assert summary["study"]["runs"] == {
        "planned": 32, "finished": 30, "diverged": 1, "failed": 1, "running": 0, "pending": 0, "unreadable": 0,
        "unreported": 0,
    }  # fmt: skip
    assert [(row["arm"], row["seed"], row["state"]) for row in sorted(summary["missing"], key=lambda r: r["arm"])] == [
        ("ER", 5, "diverged"),
        ("RR", 6, "failed"),
    ]
    assert {row["reason"] for row in summary["missing"]} == {
        "RuntimeError: out of <memory>",
        "the loss became NaN or infinite",
    }
    text = " ".join(summary["notices"])
    assert "1 run diverged (1 in ER)" in text
    assert "1 run failed" in text
    for curve in summary["curves"]:
        assert {row["n"] for row in curve["bands"] if row["arm"] == "ER"} == {7}
        assert {(row["arm"], row["seed"]) for row in curve["diverged"]} == {("ER", 5)}


def test_curves_begin_with_the_metric_of_the_study(study: Results) -> None:
    assert [curve["metric"] for curve in summarize(study)["curves"]] == ["test_accuracy", "test_loss", "train_loss"]


def test_precision_shows_what_was_logged(study: Results) -> None:
    lines = {line["arm"]: line for line in summarize(study)["precision"]}
    assert lines["fp32"]["points"] == [[10, 32], [400, 32]]
    assert lines["static8"]["mean_bits"] == 8
    assert min(bits for _, bits in lines["RR"]["points"]) == 3
    assert all(line["seeds_agree"] for line in lines.values())


def test_the_question_names_factor_metric_margin_and_baseline(study: Results) -> None:
    question = summarize(study)["question"]
    for word in ("precision", "test_accuracy", "0.005", "fp32", "4 arms", "8 seeds", "paired by seed"):
        assert word in question


def test_an_unfinished_study_says_what_is_missing(make: Any) -> None:
    summary = summarize(make(state=lambda arm, seed: "finished" if seed < 3 else "pending"))
    assert "unfinished: 12 of 32 runs are done" in summary["notices"][0]
    assert summary["study"]["complete"] is False
    assert {row["label"] for row in summary["comparisons"]} == {"undecided"}
    assert len(summary["missing"]) == 20


def test_nothing_finished_is_said_and_gives_no_figures(make: Any) -> None:
    summary = summarize(make(state=lambda arm, seed: "pending"))
    assert summary["notices"][0].startswith("No run has finished")
    assert all(row["metric"]["n"] == 0 and row["bitops"] is None for row in summary["arms"])
    assert all(row["effect"] is None and row["label"] == "undecided" for row in summary["comparisons"])
    assert summary["curves"] == []


def test_an_arm_that_always_diverges_is_no_hole(make: Any) -> None:
    summary = summarize(make(state=lambda arm, seed: "diverged" if arm == "RR" else "finished"))
    row = {row["arm"]: row for row in summary["arms"]}["RR"]
    assert (row["runs"]["diverged"], row["metric"]["n"], row["metric"]["mean"]) == (8, 0, None)
    assert "8 in RR" in " ".join(summary["notices"])


def test_one_arm_has_nothing_to_compare(make: Any) -> None:
    summary = summarize(make(names=("fp32",)))
    assert summary["comparisons"] == []
    assert "nothing to compare" in summary["question"]


def test_two_seeds_are_undecided_but_shown(make: Any) -> None:
    summary = summarize(make(seeds=2))
    assert {row["label"] for row in summary["comparisons"]} == {"undecided"}
    assert all(row["effect"] is not None for row in summary["comparisons"])


def test_notes_of_the_results_reach_the_reader(make: Any) -> None:
    results = make(state=lambda arm, seed: "finished")
    noted = Results(results.spec, results.records, results.folder, notes=["the study was changed"])
    assert summarize(noted)["notices"] == ["The study was changed."]


def test_a_confounded_environment_is_a_notice(make: Any) -> None:
    results = make(state=lambda arm, seed: "finished")
    for record in results.records:
        path = record.folder / "environment.json"
        content = json.loads(path.read_text())
        content["packages"]["torch"] = "9.9" if record.arm == "RR" else "2.14.1"
        path.write_text(json.dumps(content))
    assert "packages.torch" in " ".join(summarize(results)["notices"])


def test_the_commands_are_safe_to_paste(study: Results) -> None:
    odd = Results(study.spec, study.records, Path("my folder; rm -rf x"))
    commands = [row["command"] for row in summarize(odd)["rerun"]]
    assert commands[0] == "trivet run 'my folder; rm -rf x/study.yaml'"
    assert commands[-1] == "trivet report 'my folder; rm -rf x'"


def test_no_runs_at_all_is_refused() -> None:
    from trivet.study import MetricSpec, StudySpec

    spec = StudySpec(name="s", base={}, metric=MetricSpec(name="loss"))
    with pytest.raises(ValueError, match="no runs"):
        summarize(Results(spec, [], Path("nowhere")))


def test_finite_replaces_what_json_lacks() -> None:
    assert finite({"a": [float("nan")], "b": (float("-inf"), True, None)}) == {"a": [None], "b": [None, True, None]}
    assert len(STATES) == 6
