"""Which arm is the null arm, and what the report says of the others against it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.core.config import dump_yaml, to_plain
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunResult
from trivet.core.yamlfile import parse_yaml
from trivet.report import build, summarize, to_markdown
from trivet.study import Results, StudySpec
from trivet.study.nulls import null_arm_name
from trivet.study.plan import plan
from trivet.study.store import Store

BASE = {"task": {"name": "image-classification", "model": "resnet8"}, "training": {"steps": 4}}
NOISE: dict[str, Any] = {
    "none": {},
    "8 bits": {"kind": "rounding", "bits": 8},
    "null": {"kind": "rounding", "bits": 24},
    "order": {"kind": "order"},
}
EFFECTS = {"none": 0.0, "8 bits": 0.0, "null": 0.0, "order": 0.05}


def spec_of(**more: Any) -> StudySpec:
    content = {"name": "s", "base": BASE, "factors": {"noise": NOISE}, "metric": {"name": "test_accuracy"}}
    return StudySpec.from_mapping({**content, "seeds": 8, **more}, file="s.yaml")


def written(folder: Path, spec: StudySpec, pending: str = "") -> Results:
    store = Store(folder)
    store.save_spec(spec)
    for run in plan(spec):
        if run.arm == pending:
            continue
        seed = 0.02 * np.random.default_rng(run.seed).normal()
        noise = np.random.default_rng([run.seed, len(run.arm)]).normal()
        rounded = {"none": 0.0, "null": 1e-3}.get(run.arm, 4e-4) * noise
        value = 0.8 + seed + rounded + EFFECTS.get(run.arm, 0.0)
        costs = {"seconds": 1.0, "train_seconds": 1.0, "bitops": 0.0, "steps": 4}
        store.prepare(run).write_result(RunResult(outcome="finished", metrics={"test_accuracy": value}, **costs))
    return Results.load(folder)


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ({"noise": NOISE}, "null"),
        ({"noise": {"none": {"kind": "none"}, "r": {"kind": "rounding"}}}, "r"),
        ({"noise": {"none": {}, "late": {"kind": "rounding", "start": 5}}}, ""),
        ({"noise": {"none": {}, "weak": {"kind": "rounding", "bits": 26}}}, ""),
        ({"noise": {"null": NOISE["null"], "none": {}}}, ""),
        ({"any": {"none": {}, "r": {"noise": {"kind": "rounding"}}}}, "r"),
        ({"any": {"none": {}, "r": {"noise": {"kind": "rounding"}, "training": {"steps": 5}}}}, ""),
        ({"environment": {"one": {}, "two": {"threads": 2}}, "noise": NOISE}, "one · null"),
        ({}, ""),
    ],
)
def test_the_null_arm_is_recognized(factors: dict[str, Any], expected: str) -> None:
    assert null_arm_name(spec_of(factors=factors)) == expected


def test_the_null_arm_can_be_named() -> None:
    assert null_arm_name(spec_of(null_arm={"noise": "order"})) == "order"
    numbers = {"training": {1: {"steps": 4}, 2: {"steps": 5}}}
    assert null_arm_name(spec_of(factors=numbers, null_arm={"training": 2})) == "2"


@pytest.mark.parametrize(
    ("named", "key", "text"),
    [
        ({"nois": "null"}, "null_arm", "did you mean 'noise'?"),
        ({"noise": "nul"}, "null_arm.noise", "did you mean 'null'?"),
        ({"noise": "none"}, "null_arm", "another level than the first"),
        ("null", "null_arm", "mapping"),
    ],
)
def test_slips_are_refused(named: Any, key: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        spec_of(null_arm=named)
    [problem] = caught.value.problems
    assert problem.key == key
    assert text in str(problem)


def test_a_study_without_a_named_null_arm_is_written_as_before() -> None:
    assert "null_arm" not in to_plain(spec_of())
    named = spec_of(null_arm={"noise": "order"})
    assert to_plain(named)["null_arm"] == {"noise": "order"}
    assert "null_arm:" in dump_yaml(named)
    assert [run.run_id for run in plan(named)] == [run.run_id for run in plan(spec_of())]


def test_every_effect_is_held_against_rounding(tmp_path: Path) -> None:
    results = written(tmp_path / "s", spec_of())
    found = results.rounding()
    assert found is not None
    assert found.null.name == "null"
    assert set(found.arms) == {"8 bits", "order"}
    assert found.arms["8 bits"].label == "no larger"
    assert found.arms["order"].label == "larger"
    assert results.rounding("order") is None  # there is no null arm against another baseline


def test_the_report_says_so(tmp_path: Path) -> None:
    results = written(tmp_path / "s", spec_of())
    summary = summarize(results)
    rows = {row["arm"]: row for row in summary["comparisons"]}
    assert summary["rounding"]["name"] == "null"
    assert rows["null"]["rounding"] is None
    assert rows["order"]["rounding"]["label"] == "larger"
    seeds = list(results.values("test_accuracy", "none").values())
    assert rows["order"]["in_seed_sds"] == pytest.approx(rows["order"]["effect"] / np.std(seeds, ddof=1))
    page = build(results).read_text(encoding="utf-8")
    for text in (page, to_markdown(summary)):
        assert "larger than rounding can explain" in text
        assert "Rounding alone (null arm null" in text
        assert "seed SDs" in text


def test_while_the_null_arm_is_missing_nothing_is_said(tmp_path: Path) -> None:
    summary = summarize(written(tmp_path / "s", spec_of(), pending="null"))
    assert summary["rounding"] is None
    assert all(row["rounding"] is None for row in summary["comparisons"])
    assert "× rounding" not in to_markdown(summary)


def test_one_factor_of_several_keeps_its_null_arm(tmp_path: Path) -> None:
    from trivet.cli.compare import by_factor

    factors = {"environment": {"one": {}, "two": {"threads": 2}}, "noise": NOISE}
    results = by_factor(written(tmp_path / "s", spec_of(factors=factors, null_arm={"noise": "order"})), "noise")
    found = results.rounding()
    assert found is not None
    assert found.null.name == "order"
    assert by_factor(results, "noise").rounding() is not None


def test_the_page_runs(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (repo / "docs" / "null-arm.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(block, "docs/null-arm.md", "exec", dont_inherit=True), {"__name__": "page"})
    assert capsys.readouterr().out.splitlines()[-1] == "larger"
    [factors] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert null_arm_name(spec_of(**parse_yaml(factors))) == "2^-24"
