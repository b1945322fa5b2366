"""The verbs that read a study: status, compare, report; as tables and as JSON."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trivet.cli.compare import baseline_first, by_factor
from trivet.study import MetricSpec, Record, Results, StudySpec

Finished = tuple[Path, Any]


def made(values: dict[tuple[str, str], list[float]], missing: tuple[str, str, int] | None = None) -> Results:
    """Results of a study with the factors `size` and `speed` from value lists, one a seed."""
    records = []
    for (size, speed), column in values.items():
        for seed, value in enumerate(column):
            lost = missing == (size, speed, seed)
            records.append(
                Record(
                    run_id=f"{size}{speed}{seed}",
                    arm=f"{size} · {speed}",
                    levels={"size": size, "speed": speed},
                    seed=seed,
                    state="failed" if lost else "finished",
                    folder=Path("x"),
                    metrics={} if lost else {"loss": value},
                )
            )
    factors: dict[str, dict[str, dict[str, Any]]] = {"size": {"s": {}, "l": {}}, "speed": {"slow": {}, "fast": {}}}
    seeds = len(next(iter(values.values())))
    spec = StudySpec(name="t", base={}, factors=factors, seeds=seeds, metric=MetricSpec(name="loss"))
    return Results(spec, records, Path("x"))


VALUES = {
    ("s", "slow"): [1.0, 2.0],
    ("s", "fast"): [3.0, 4.0],
    ("l", "slow"): [10.0, 20.0],
    ("l", "fast"): [30.0, 60.0],
}


def test_one_factor_is_averaged_over_the_other_within_each_seed() -> None:
    found = by_factor(made(VALUES), "size")
    assert found.arms == ["s", "l"]
    assert found.values("loss", "s") == {0: 2.0, 1: 3.0}
    assert found.values("loss", "l") == {0: 20.0, 1: 40.0}


def test_averaging_agrees_with_the_study_itself() -> None:
    results = made(VALUES)
    own = by_factor(results, "speed").compare_all()[0].verdict
    theirs = results.decide("speed", "slow", "fast")
    assert own.comparison is not None and theirs.comparison is not None  # noqa: PT018
    assert own.comparison.effect == pytest.approx(theirs.comparison.effect)
    assert own.comparison.p == pytest.approx(theirs.comparison.p)


def test_a_seed_with_a_lost_run_does_not_count() -> None:
    found = by_factor(made(VALUES, missing=("l", "fast", 1)), "size")
    assert found.values("loss", "l") == {0: 20.0}
    assert found.counts == {"finished": 3, "failed": 1}


def test_an_unknown_factor_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'speed'"):
        by_factor(made(VALUES), "sped")


def test_any_arm_can_be_the_baseline() -> None:
    results = baseline_first(made(VALUES), "l · fast")
    assert results.arms[0] == "l · fast"
    assert sorted(results.arms) == sorted(made(VALUES).arms)
    with pytest.raises(ValueError, match="unknown arm"):
        baseline_first(made(VALUES), "l")


def test_status_as_json(finished: Finished, trivet: Any) -> None:
    ended = trivet("status", finished[0], "--json")
    content = json.loads(ended.out)
    assert content["runs"]["finished"] == 6
    assert len(content["records"]) == 6
    assert content["records"][0]["metrics"]["loss"] > 0
    assert ended.err == ""


def test_status_as_a_table(finished: Finished, trivet: Any) -> None:
    ended = trivet("status", finished[0])
    assert ended.out.splitlines()[0].split() == ["arm", "finished", "planned"]
    assert "6 of 6 runs are done" in ended.err


def test_compare_as_json_with_another_baseline_and_margin(finished: Finished, trivet: Any) -> None:
    ended = trivet("compare", finished[0], "--json", "--baseline", "large", "--margin", "0.3")
    content = json.loads(ended.out)
    [row] = content["comparisons"]
    assert (row["baseline"], row["arm"]) == ("large", "small")
    assert row["effect"] == pytest.approx(-0.5)
    assert content["study"]["metric"]["margin"] == 0.3
    assert ended.code == 0


def test_compare_exits_with_three_when_undecided(finished: Finished, trivet: Any) -> None:
    ended = trivet("compare", finished[0], "--factor", "size", "--exit-code")
    assert ended.code == 3
    assert "UNDECIDED" in ended.out


def test_compare_with_an_unknown_metric(finished: Finished, trivet: Any) -> None:
    ended = trivet("compare", finished[0], "--metric", "los")
    assert ended.code == 2
    assert "did you mean 'loss'" in ended.err


def test_report_prints_its_path_and_its_content(finished: Finished, trivet: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = trivet("report", finished[0], "--out", page)
    assert ended.code == 0
    assert Path(ended.out.strip()) == page
    assert page.stat().st_size > 1000
    assert json.loads(trivet("report", finished[0], "--json").out)["study"]["name"] == "tiny"


@pytest.mark.parametrize(("variables", "colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colors_on_a_terminal_unless_not_wanted(
    finished: Finished, variables: dict[str, str], *, colored: bool
) -> None:
    parent, child = pty.openpty()
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-m", "trivet", "compare", str(finished[0])]
    environ = {**kept, "TERM": "xterm-256color", **variables}
    with subprocess.Popen(command, stdout=child, stderr=subprocess.DEVNULL, env=environ) as process:
        os.close(child)
        text = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
    os.close(parent)
    assert process.returncode == 0
    assert b"UNDECIDED" in text
    assert (b"\x1b[1;33m" in text) is colored
