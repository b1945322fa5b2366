"""benchmarks/schedules_study.py on a study made up here: lost runs are said, the known trend is found."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from trivet.study.record import Record
from trivet.study.results import Results
from trivet.study.spec import MetricSpec, StudySpec

COSTS = {"RR": 1.0, "CR": 2.0, "ER": 3.0, "static8": 4.0}


@pytest.fixture
def script(repo: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    path = repo / "benchmarks" / "schedules_study.py"
    spec = importlib.util.spec_from_file_location("schedules_study", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up() -> Results:
    task = {"command": "python x.py {seed}", "metrics": {"acc": "(.*)"}}
    spec = StudySpec(
        name="s", base={"task": task}, factors={"precision": {arm: {} for arm in COSTS}}, seeds=4,
        metric=MetricSpec(name="acc", margin=0.01),
    )  # fmt: skip
    records = [
        Record(
            run_id=f"{arm}{seed}", arm=arm, levels={"precision": arm}, seed=seed, folder=Path("x"), bitops=cost,
            state="diverged" if (arm, seed) == ("RR", 3) else "finished",
            metrics={"acc": 0.8 + 0.01 * cost + 0.001 * seed},
        )
        for arm, cost in COSTS.items()
        for seed in range(4)
    ]  # fmt: skip
    return Results(spec, records, Path("x"))


def test_table_correlation_and_figure(script: Any, tmp_path: Path) -> None:
    results = made_up()
    rows = script.rows_of(results)
    assert [row["arm"] for row in rows] == list(COSTS)
    assert [row["group"] for row in rows] == ["small", "medium", "large", "static"]
    verdicts = {item.arm_b: item.verdict for item in results.compare_all("static8")}
    items, lines = script.correlations(results, rows)
    printed = "\n".join([*script.table(rows, verdicts, "static8", "acc"), *items])
    assert "| 3, 1 diverged |" in printed
    assert "3 complete seeds, 1 lost" in printed
    assert "Spearman ρ within a seed +1.00" in printed
    assert len(lines) == 2
    script.figure(rows, "acc", lines, "static8", 0.01, tmp_path / "f.svg")
    assert "static8" in (tmp_path / "f.svg").read_text()
