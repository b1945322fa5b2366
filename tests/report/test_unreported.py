"""Runs that finished without the study's metric, and what the counts beside a mean say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from trivet.cli.outcome import print_outcome
from trivet.report.build import render
from trivet.report.summary import summarize
from trivet.report.tables import to_markdown, to_text
from trivet.study import MetricSpec, Results

Make = Callable[..., Results]


def silent_runs(made: Results, lost: int) -> dict[str, Any]:
    """The summary when the first runs of the arm fp32 report `accuracy` alone."""
    records = [
        dataclasses.replace(record, metrics={"accuracy": 0.9})
        if record.arm == "fp32" and record.seed < lost
        else record
        for record in made.records
    ]
    spec = dataclasses.replace(made.spec, metric=MetricSpec(name="test_accuracy", margin=0.005))
    return summarize(Results(spec, records, made.folder))


def test_they_are_told_with_the_nearest_name(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    summary = silent_runs(make(state=lambda arm, seed: "finished"), 3)
    said = "the metric test_accuracy was not reported; reported: accuracy; did you mean 'accuracy'?"
    assert summary["notices"][0].startswith(f"3 runs finished, but {said}")
    assert [(row["arm"], row["reason"]) for row in summary["missing"]] == [("fp32", said)] * 3
    assert "diverged or failed" not in str(summary["comparisons"])
    print_outcome(summary)
    printed = " ".join(capsys.readouterr().out.split())
    for text in (printed, " ".join(to_text(summary).split()), render(summary).replace("&#39;", "'")):
        assert said in text


def test_n_is_the_number_of_values(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    summary = silent_runs(make(state=lambda arm, seed: "finished"), 3)
    [fp32, other, *_] = summary["arms"]
    assert (fp32["runs"]["finished"], fp32["metric"]["n"], other["metric"]["n"]) == (8, 5, 8)
    print_outcome(summary)
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("fp32  ")]
    assert line.split()[1:5] == ["8", "of", "8", "5"]
    assert "| fp32 | 8 of 8 | 5 |" in to_markdown(summary)
    assert '<td class="num">5</td>' in render(summary)
    assert "| n |" not in to_markdown(silent_runs(make(state=lambda arm, seed: "finished"), 0))


def test_the_header_names_each_state(make: Make) -> None:
    made = make()
    bad = [dataclasses.replace(r, state="unreadable", metrics={}) if r.seed == 0 else r for r in made.records]
    page = render(summarize(Results(made.spec, bad, made.folder)))
    assert "<b>4</b> cannot be read</li>" in page
    assert "<b>1</b> failed</li>" in page
