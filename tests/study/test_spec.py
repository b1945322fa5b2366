"""Everything that is refused before a process starts, with file, key, found, allowed and nearest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trivet.core.config import dump_yaml, merge, to_plain
from trivet.core.errors import ConfigError, MissingDataError, Problem
from trivet.study import MetricSpec, ResourcesSpec, Study, StudySpec

COMMAND = {"task": {"command": "python train.py --seed {seed}", "metrics": {"loss": "loss: ([0-9.]+)"}}}


def problems(mapping: dict[str, Any], overrides: tuple[str, ...] = ()) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        StudySpec.from_mapping(mapping, file="s.yaml", overrides=overrides)
    assert caught.value.exit_code == 2
    return caught.value.problems


def only(found: list[Problem]) -> Problem:
    assert len(found) == 1, found
    assert found[0].file == "s.yaml"
    return found[0]


REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"sedes": 3}, "sedes", "unknown key", "did you mean 'seeds'?"),
    ({"training": {"steps": 3}}, "training", "unknown key", "under `base:`"),
    ({"base": {"training": {"stepz": 3}}}, "base.training.stepz", "unknown key", "did you mean 'steps'?"),
    ({"base": {"trainig": {}}}, "base.trainig", "unknown key", "did you mean 'training'?"),
    ({"base": {"seed": 3}}, "base.seed", "a seed", "`seeds:` at the top"),
    ({"factors": {"precision": {"RR": {"schedule": "RRR"}}}}, "factors.precision.RR", "RRR", "did you mean 'RR'?"),
    ({"factors": {"precision": {"RR": {"schedule": "RR", "q_min": 9}}}}, "factors.precision.RR", "9", "lower `q_min`"),
    ({"factors": {"precision": {"S": {"schedule": "static", "bits": 0}}}}, "factors.precision.S", "0", "[1, 32]"),
    ({"factors": {"precision": {"S": {"schedule": "static", "bits": 40}}}}, "factors.precision.S", "40", "[1, 32]"),
    ({"factors": {"precision": {"fp32": None}}}, "factors.precision.fp32", "nothing", "write `fp32: {}`"),
    ({"factors": {"precision": {"fp32": "RR"}}}, "factors.precision.fp32", "'RR'", "a mapping"),
    ({"factors": {"precision": ["fp32"]}}, "factors.precision", "a list", "level → patch"),
    ({"factors": {"precision": 3}}, "factors.precision", "3", "level → patch"),
    ({"factors": "precision"}, "factors", "'precision'", "a mapping"),
    ({"factors": {"other": {"a": {"lr": 1}}}}, "factors.other.a.lr", "unknown key", "task, init, training"),
    ({"factors": {"precision": {"a · b": {}}}}, "factors.precision.a · b", "the name", "without '·'"),
    ({"factors": {"precision": {True: {}}}}, "factors.precision.True", "the name True", "quote it"),
    ({"seeds": -1}, "seeds", "-1", "≥ 1"),
    ({"seeds": 0}, "seeds", "0", "there is no run"),
    ({"seeds": []}, "seeds", "empty list", "there is no run"),
    ({"seeds": [1, -2]}, "seeds", "-2", "≥ 0"),
    ({"seeds": [1, 1]}, "seeds", "1 twice", "different"),
    ({"seeds": True}, "seeds", "True", "a number of seeds"),
    ({"seeds": 2.5}, "seeds", "2.5", "a number of seeds"),
    ({"seeds": "eight"}, "seeds", "'eight'", "a number of seeds"),
    ({"seeds": 10**12}, "seeds", "1000000000000", "at most 100,000"),
    ({"seeds": 90_000}, "factors", "180,000 runs", "at most 100,000"),
    ({"name": "../x"}, "name", "'../x', a path", "--out"),
    ({"name": "a/b"}, "name", "a path", "--out"),
    ({"name": ""}, "name", "''", "letters"),
    ({"name": 3}, "name", "3", "letters"),
    ({"metric": {"name": "test_acuracy"}}, "metric.name", "test_acuracy", "did you mean 'test_accuracy'?"),
    ({"metric": {"margin": -1}}, "metric", "-1", "≥ 0"),
    ({"metric": {"goal": "maximise"}}, "metric.goal", "maximise", "did you mean 'maximize'?"),
    ({"metric": "test_accuracy"}, "metric", "test_accuracy", "a mapping"),
    ({"resources": {"slots": -1}}, "resources", "-1", "[0, 4096]"),
    ({"base": {"environment": {"threads": 0}}}, "base.environment", "0", "[1, 1024]"),
]


@pytest.mark.parametrize(("patch", "key", "found", "helps"), REFUSED, ids=[f"{row[1]}-{row[2]}" for row in REFUSED])
def test_refused(mapping: dict[str, Any], patch: dict[str, Any], key: str, found: str, helps: str) -> None:
    if "factors" in patch:
        mapping["factors"] = {}
    problem = only(problems(mapping | patch if "factors" in patch else merge(mapping, patch)))
    assert problem.key == key
    assert found in problem.found
    assert helps in f"{problem.allowed} {problem.fix}"


def test_all_problems_at_once(mapping: dict[str, Any]) -> None:
    bad = merge(mapping, {"seeds": -1, "name": "a/b", "base": {"task": {"widht": 1}}, "foo": 1})
    bad["factors"]["precision"]["x"] = None
    keys = {problem.key for problem in problems(bad)}
    assert keys == {"seeds", "name", "base.task.widht", "foo", "factors.precision.x"}


def test_equal_arms(mapping: dict[str, Any]) -> None:
    mapping["factors"]["precision"]["none"] = {"schedule": "none"}
    problem = only(problems(mapping))
    assert problem.key == "factors.precision"
    assert "'fp32' and 'none'" in problem.found


def test_arms_whose_command_does_not_use_their_options_are_warned_of(tmp_path: Path) -> None:
    def notes(command: str, **options: float) -> list[str]:
        task = {"command": command, "options": {"lr": 0.1}, "metrics": COMMAND["task"]["metrics"]}
        factors = {"rate": {"high": {}, "low": {"task": {"options": options}}}}
        content = {"name": "s", "base": {"task": task}, "factors": factors, "metric": {"name": "loss", "margin": 0.1}}
        return Study(StudySpec.from_mapping(content), tmp_path).status().notes

    command = "python3 -V --seed {seed} --lr {options.lr}"
    (warning,) = notes(command, lrr=0.01)
    assert "'high' and 'low' run the same command, which does not use {options.lrr}" in warning
    assert notes(command, lr=0.01) == notes(f"{command} {{run_dir}}", lrr=0.01) == []


def test_equal_levels_of_two_factors_are_told_a_few_times_only(mapping: dict[str, Any]) -> None:
    mapping["factors"]["environment"] = {str(i): {} for i in range(9)}
    found = problems(mapping)
    assert len(found) == 3
    assert {problem.key for problem in found} == {"factors.environment"}


def test_missing_parts() -> None:
    assert {problem.key for problem in problems({})} == {"name", "base", "metric"}
    assert problems({"name": "x", "base": {}, "metric": {"name": "m"}})[0].key == "base.task"


def test_overrides_reach_base_and_top(mapping: dict[str, Any]) -> None:
    spec = StudySpec.from_mapping(mapping, overrides=["training.steps=99", "seeds=[4, 7]", "metric.margin=0.5"])
    assert spec.base["training"]["steps"] == 99
    assert spec.seed_list == [4, 7]
    assert spec.metric.margin == 0.5
    deep = StudySpec.from_mapping(mapping, overrides=["factors.precision.RR.q_min=4"])
    assert deep.factors["precision"]["RR"]["q_min"] == 4
    assert only(problems(mapping, ("training.stepz=1",))).key == "base.training.stepz"


def test_numbers_name_levels(mapping: dict[str, Any]) -> None:
    mapping["factors"] = {"precision": {4: {"schedule": "static", "bits": 4}, 8: {"schedule": "static", "bits": 8}}}
    assert [arm.name for arm in StudySpec.from_mapping(mapping).arms()] == ["4", "8"]


def test_a_command_without_patterns_may_report_any_metric() -> None:
    base = {"task": {"command": "python x.py {seed}"}}
    StudySpec.from_mapping({"name": "c", "base": base, "metric": {"name": "whatever"}})
    mapping = {"name": "c", "base": COMMAND, "metric": {"name": "los"}}
    assert "did you mean 'loss'?" in only(problems(mapping)).fix


def test_files(tmp_path: Path) -> None:
    bombs = {
        "list.yaml": "- a\n- b\n",
        "text.yaml": "just text",
        "empty.yaml": "",
        "bomb.yaml": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        "twice.yaml": "name: a\nname: b\n",
        "level.yaml": "name: a\nfactors: {precision: {RR: {}, RR: {}}}\n",
    }
    for name, text in bombs.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError) as caught:
            Study.from_yaml(tmp_path / name)
        assert caught.value.problems[0].file == str(tmp_path / name)
        assert caught.value.problems[0].found
    with pytest.raises(ConfigError, match="no file"):
        Study.from_yaml(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError):
        Study.from_yaml(tmp_path)


def test_checks_that_need_the_whole_run(mapping: dict[str, Any], tmp_path: Path) -> None:
    def refused(patch: dict[str, Any]) -> list[Problem]:
        file = tmp_path / "s.yaml"
        file.write_text(dump_yaml(merge(mapping, patch)))
        with pytest.raises(ConfigError) as caught:
            Study.from_yaml(file)
        return caught.value.problems

    found = refused({"base": {"task": {"model": "resnet21"}}})
    assert [problem.key for problem in found] == ["base.task.model"]
    found = refused({"factors": {"precision": {"long": {"schedule": "RR", "num_cycles": 50}}}})
    assert [problem.key for problem in found] == ["factors.precision.long"]


def test_missing_data_is_refused_before_anything_starts(mapping: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(dump_yaml(merge(mapping, {"base": {"task": {"data": "cifar10"}}})))
    with pytest.raises(MissingDataError) as caught:
        Study.from_yaml(file, folder=tmp_path / "out")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_specs_made_in_python(mapping: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a path"):
        StudySpec(name="a/b", base=COMMAND, metric=MetricSpec(name="loss"))
    with pytest.raises(ValueError, match="≥ 1"):
        StudySpec(name="a", base=COMMAND, seeds=0, metric=MetricSpec(name="loss"))
    with pytest.raises(ValueError, match="`margin"):
        MetricSpec(name="loss", margin=float("nan"))
    with pytest.raises(ValueError, match="is empty"):
        MetricSpec(name="")
    with pytest.raises(ValueError, match="4096"):
        ResourcesSpec(slots=5000)
    assert [MetricSpec(name=n).maximize for n in ("test_accuracy", "val_loss", "top1_error")] == [True, False, False]
    assert MetricSpec(name="test_loss", goal="maximize").maximize


def test_a_spec_survives_its_file(mapping: dict[str, Any], tmp_path: Path) -> None:
    mapping["factors"]["environment"] = {"on": {"threads": 1}, "1e3": {"threads": 2}}
    spec = StudySpec.from_mapping(mapping)
    (tmp_path / "s.yaml").write_text(dump_yaml(spec))
    again = StudySpec.from_yaml(tmp_path / "s.yaml")
    assert to_plain(again) == to_plain(spec)
    assert [arm.name for arm in again.arms()] == [arm.name for arm in spec.arms()]


def test_a_seed_in_a_level_is_refused() -> None:
    frame = {"name": "s", "base": COMMAND, "seeds": 2, "metric": {"name": "loss"}}
    with pytest.raises(ConfigError, match=r"factors\.f\.b\.seed: found a seed.*write `seeds:`"):
        StudySpec.from_mapping({**frame, "factors": {"f": {"a": {}, "b": {"seed": 5}}}})
    with pytest.raises(ConfigError) as caught:
        StudySpec.from_mapping({**frame, "factors": {"f": {"a": {}, "b": {"sed": 5}}}})
    assert "seed" not in str(caught.value).replace("seeds", "")
