"""Predicted initial parameters in the report: what was predicted, what was not, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trivet.core.runfolder import RunFolder
from trivet.report.build import render
from trivet.report.starts import starts, starts_table
from trivet.report.summary import summarize

Make = Callable[..., Any]
INIT = {
    "method": "tiled",
    "ghn": "fashion-small",
    "tensors": 9,
    "predicted_tensors": 3,
    "parameters": 1000,
    "predicted_parameters": 904,
    "kept": {"no published type is like it": [f"e{i}" for i in range(5)], "the classifier is kept": ["fc.weight"]},
}


def begin(results: Any, arm: str, init: Any) -> None:
    for record in results.records:
        if record.arm == arm and record.state == "finished":
            path = RunFolder(Path(record.folder)).result_path
            path.write_text(json.dumps({**json.loads(path.read_text()), "extra": {"init": init}}))


def test_an_arm_that_was_predicted_is_listed_with_what_it_kept(make: Make) -> None:
    results = make()
    assert starts(results) == []
    assert 'id="starts"' not in render(summarize(results))
    begin(results, "RR", INIT)
    summary = summarize(results)
    assert summary["starts"] == [{"arm": "RR", **INIT}]
    cells = starts_table(summary["starts"]).rows[0]
    assert cells[1:4] == ("fashion-small, tiled", "3 of 9", "90 %")
    assert cells[4] == "e0, e1, e2, e3 and 1 more: no published type is like it; fc.weight: the classifier is kept"
    page = render(summary)
    assert 'id="starts"' in page
    assert "3 of 9" in page


def test_results_written_by_hand_with_something_else_there_are_left_out(make: Make) -> None:
    results = make()
    for content in ("text", None, 3):
        begin(results, "RR", content)
        assert starts(results) == []
