"""Pictures of runs in the report: one seed, each picture once, in the page as it lies in the folder."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trivet.core.runfolder import RunFolder
from trivet.report.build import render
from trivet.report.pictures import SIGNATURE, pictures
from trivet.report.summary import summarize

Make = Callable[..., Any]


def leave(results: Any, arm: str, seed: int, name: str, content: bytes) -> None:
    folder = next(r.folder for r in results.records if (r.arm, r.seed) == (arm, seed))
    path = RunFolder(Path(folder)).pictures_path
    path.mkdir(exist_ok=True)
    (path / f"{name}.png").write_bytes(SIGNATURE + content)


def test_pictures_of_the_seed_that_most_arms_have(make: Make) -> None:
    results = make()
    assert pictures(results) == []
    leave(results, "fp32", 0, "1 shown", b"odd")
    for arm in results.arms:
        leave(results, arm, 1, "1 shown", b"same")
        leave(results, arm, 1, "2 predicted", arm.encode())
    leave(results, "RR", 1, "3 large", b"x" * 200_001)
    rows = pictures(results)
    assert [(row["label"], row["arms"]) for row in rows] == [
        ("shown", results.arms),
        *(("predicted", [arm]) for arm in results.arms),
    ]
    assert {row["seed"] for row in rows} == {1}
    assert base64.b64decode(rows[0]["png"]) == SIGNATURE + b"same"
    page = render(summarize(results))
    assert page.count("data:image/png;base64,") == 5
    assert "all arms" in page


def test_a_study_without_pictures_has_no_such_section(make: Make) -> None:
    assert 'id="pictures"' not in render(summarize(make()))
