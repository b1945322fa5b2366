"""`trivet critical`: from study folders to the end of the critical period; recipes that plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trivet.cli.recipes import recipes
from trivet.study.plan import plan
from trivet.study.spec import StudySpec

SCRIPT = """
import sys
seed, position = int(sys.argv[1]), sys.argv[2]
x = 0.0 if position == "none" else float(position)
print("accuracy:", 0.9 + 0.001 * ((seed * 7) % 5) - 0.0001 * x + 0.0001 * ((seed * int(x + 3)) % 3))
"""


def study(folder: Path, lengths: tuple[int, ...]) -> Path:
    (folder / "train.py").write_text(SCRIPT)
    levels = "".join(
        f"    R{length}: {{precision: {{deficit: {{length: {length}, bits: 3}}}}, "
        f"task: {{command: 'python train.py {{seed}} {length}'}}}}\n"
        for length in lengths
    )
    file = folder / "s.yaml"
    file.write_text(
        "name: s\nbase:\n"
        "  task: {command: 'python train.py {seed} none', metrics: {accuracy: 'accuracy: (.*)'}}\n"
        f"  precision: {{schedule: static, bits: 8}}\nfactors:\n  deficit:\n    none: {{}}\n{levels}"
        "seeds: 4\nmetric: {name: accuracy, margin: 0.02}\n"
    )
    return file


def test_a_length_sweep(trivet: Any, tmp_path: Path) -> None:
    assert trivet("run", study(tmp_path, (100, 180, 260, 400)), "--out", "out", "--no-report").code == 0
    found = json.loads(trivet("critical", "out", "--json").out)
    assert found["kind"] == "length"
    assert found["estimate"] == pytest.approx(200, abs=5)
    assert (found["low"], found["high"], found["seeds_lost"]) == (180, 260, 0)
    ended = trivet("critical", "out", "--margin", "0.5")
    assert ended.code == 0
    assert "at any length tried" in ended.out


def test_other_studies_are_refused(trivet: Any, tmp_path: Path) -> None:
    file = study(tmp_path, (1,))
    assert trivet("run", file, "--out", "out", "--no-report").code == 0
    ended = trivet("critical", "out")
    assert ended.code == 2
    assert "1 arm(s) without and 1 with one deficit" in ended.err


@pytest.mark.parametrize("name", sorted(name for name in recipes() if name != "demo" and "ghn-train" not in name))
def test_recipes_plan_and_their_rates_follow_the_deficit(name: str) -> None:
    runs = plan(StudySpec.from_yaml(recipes()[name]))
    assert runs
    plain = next((run for run in runs if run.config["precision"]["deficit"] is None), runs[0])
    shares = plain.config["training"]["schedule"]["milestones"]
    for run in runs:
        deficit, training = run.config["precision"]["deficit"], run.config["training"]
        if deficit is None:
            continue
        normal = training["steps"] - deficit["length"]
        assert normal == plain.config["training"]["steps"]
        if training["schedule"]["name"] == "plateau":
            assert training["schedule"]["hold_steps"] == deficit["length"]
            continue
        for milestone, share in zip(training["schedule"]["milestones"], shares, strict=True):
            assert abs(round(milestone * training["steps"]) - deficit["length"] - share * normal) <= 1
