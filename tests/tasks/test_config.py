from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from trivet.core.config import build, dump_yaml, parse_yaml, to_plain
from trivet.core.errors import ConfigError, MissingDataError
from trivet.tasks.command_config import CommandConfig, placeholders
from trivet.tasks.config import RunConfig
from trivet.tasks.image_classification_config import ImageClassificationConfig

IMAGES: dict[str, Any] = {"task": {"model": "resnet8"}, "training": {"steps": 100}}


def _check(mapping: dict[str, Any]) -> None:
    build(RunConfig, mapping, file="s.yaml").check(file="s.yaml")


def test_defaults_are_written_out() -> None:
    plain = to_plain(build(RunConfig, IMAGES))
    assert plain["task"]["name"] == "image-classification"
    assert plain["task"]["data"] == "fashion-mnist"
    assert plain["precision"]["schedule"] == "none"
    assert plain["init"] == {"ghn": "", "head": "predict", "method": "default", "digest": ""}
    assert plain["noise"]["kind"] == "none"
    assert plain["seed"] == 0
    assert list(plain) == ["task", "init", "training", "precision", "environment", "noise", "seed"]


@pytest.mark.parametrize(
    "mapping",
    [
        IMAGES,
        {**IMAGES, "precision": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 8}, "seed": 7},
        {"task": {"command": "python train.py --seed {seed}", "metrics": {"loss": "loss: ([0-9.]+)"}}},
    ],
)
def test_a_resolved_run_reads_back_the_same(mapping: dict[str, Any]) -> None:
    run = build(RunConfig, mapping)
    assert build(RunConfig, parse_yaml(dump_yaml(to_plain(run)))) == run


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"task": {"model": "resnet8", "wdth": 4}}, "task.wdth", "did you mean 'width'"),
        ({"task": {"name": "image-clasification", "model": "resnet8"}}, "task.name", "did you mean 'image-classif"),
        ({"task": {}}, "task", "`model` is missing"),
        ({"task": {"model": "resnet8", "command": "x"}}, "task", "brings its own data and model"),
        ({"task": {"model": "resnet8", "name": "image-classification", "command": "x"}}, "task", "belong to a command"),
        (
            {"task": {"model": "resnet8", "options": {"a": 1}, "name": "image-classification"}},
            "task",
            "belong to a command",
        ),
        ({"task": {"name": 5}}, "task.name", "image-classification, language-model, "),
        ({"task": {"model": "resnet8", "width": 0}}, "task", "width=0"),
        ({"task": {"model": "resnet8", "train_examples": -1}}, "task", "train_examples=-1"),
        ({"task": {"model": "resnet8", "augment": {"shift": -1}}}, "task.augment", "shift=-1"),
        ({"task": {"command": "  "}}, "task", "`model` is missing|`command` is missing"),
        ({"task": {"name": "command"}}, "task", "`command` is missing"),
        ({"task": {"command": "x", "metrics": {"loss": "loss: ("}}}, "task", "no regular expression"),
        ({"task": {"command": "x", "metrics": {"loss": "loss: .*"}}}, "task", "has no group"),
        ({"training": {"steps": 0}}, "training", "steps=0"),
        ({"training": None}, "", "`training` is missing"),
        ({"seed": -1}, "", "seed=-1"),
        ({"precision": {"schedule": "RX"}}, "precision", "did you mean"),
        ({"inits": {}}, "inits", "task, init, training, precision, environment, noise, curvature, seed"),
        ({"training": 5}, "training", "a mapping"),
    ],
)
def test_refused_when_built(patch: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(RunConfig, {**IMAGES, **patch}, file="s.yaml")
    assert any(problem.key == key and problem.file == "s.yaml" for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("mapping", "key", "words"),
    [
        ({**IMAGES, "task": {"model": "resnet9"}}, "task.model", "did you mean 'resnet"),
        (
            {**IMAGES, "task": {"model": "resnet8", "data": "fashion-mnits"}},
            "task.data",
            "did you mean 'fashion-mnist'",
        ),
        ({**IMAGES, "task": {"model": "resnet8", "train_examples": 64}}, "training.batch_size", "train_examples=64"),
        ({**IMAGES, "training": {"steps": 4}, "precision": {"schedule": "RR"}}, "precision", "cycle"),
        ({"task": {"command": "true --q {precision.q_mn}"}}, "task.command", r"did you mean \{precision.q_min\}"),
        ({"task": {"command": "no-such-program"}}, "task.command", "not on the PATH"),
        ({"task": {"command": "python no_such_script.py --seed {seed}"}}, "task.command", "no_such_script.py"),
        ({"task": {"command": "sh -c 'awk {print}'"}}, "task.command", r"write \{\{ or \}\}"),
        ({"task": {"command": "train 'half"}}, "task.command", "quot"),
    ],
)
def test_refused_by_check(mapping: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        _check(mapping)
    assert [problem.key for problem in caught.value.problems] == [key]
    assert caught.value.problems[0].file == "s.yaml"


@pytest.mark.parametrize("task", [{"model": "resnet9"}, {"model": "resnet8", "data": "fashion-mnits"}])
def test_a_refused_name_is_told_once(task: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        _check({**IMAGES, "task": task})
    message = str(caught.value)
    assert message.count("allowed:") == 1
    assert message.count("resnet9" if "data" not in task else "fashion-mnits") == 1


@pytest.mark.parametrize("command", ["", "  "])
@pytest.mark.parametrize("name", ["", "command"])
@pytest.mark.parametrize("more", [{"metrics": {"loss": "loss: (.*)"}}, {"options": {"lr": 1}}])
def test_an_empty_command_is_called_empty(command: str, name: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="`command` is missing or empty; give the command line"):
        build(RunConfig, {"task": {"name": name, "command": command, **more}})


@pytest.mark.parametrize(
    ("task", "training", "key", "words"),
    [
        ({}, {"batch_size": 10_001}, "training.batch_size", "found 10001; allowed: at most 10000 .*lower it"),
        ({"data": "fashion-mnist"}, {"batch_size": 10**6}, "training.batch_size", "allowed: at most 10000"),
        ({"train_examples": 10_001}, {}, "task.train_examples", "at most 10000"),
        ({"width": 4097}, {}, "task", r"`width=4097` must lie in \[1, 4096\]"),
        ({}, {"steps": 10**9 + 1}, "training", "must be ≤ 1000000000; lower"),
        ({}, {"steps": 10**30}, "training", "must be ≤ 1000000000; lower"),
    ],
)
def test_absurd_sizes_are_refused(task: dict[str, Any], training: dict[str, Any], key: str, words: str) -> None:
    mapping = {"task": {**IMAGES["task"], **task}, "training": {**IMAGES["training"], **training}}
    with pytest.raises(ConfigError, match=words) as caught:
        _check(mapping)
    assert [problem.key for problem in caught.value.problems] == [key]


def test_the_largest_sizes_pass() -> None:
    _check({"task": {**IMAGES["task"], "width": 4096}, "training": {"steps": 10**9, "batch_size": 10_000}})


def test_every_problem_at_once() -> None:
    task = {"model": "resnet9", "data": "nothing", "train_examples": 3}
    with pytest.raises(ConfigError) as caught:
        _check({"task": task, "training": {"steps": 4}, "precision": {"schedule": "RR"}})
    assert {problem.key for problem in caught.value.problems} == {
        "task.model",
        "task.data",
        "training.batch_size",
        "precision",
    }


def test_missing_data_are_refused() -> None:
    with pytest.raises(MissingDataError, match="cifar100"):
        _check({**IMAGES, "task": {"model": "resnet8", "data": "cifar100"}})


def test_sound_runs_pass() -> None:
    _check(IMAGES)
    _check(
        {
            "task": {"command": "sh -c 'echo ${{HOME}} ${HOME} {{x}} {seed} {precision.schedule} {training.steps}'"},
            **{"training": {"steps": 3}},
        }
    )


def test_placeholders_name_every_key() -> None:
    run = build(RunConfig, {**IMAGES, "seed": 9, "precision": {"schedule": "RR", "q_min": 4}})
    values = placeholders(run, run_dir="/r")
    assert values["seed"] == "9"
    assert values["run_dir"] == "/r"
    assert values["precision.q_min"] == "4"
    assert values["training.optimizer.lr"] == "0.1"
    assert values["precision.profile"] == "none"
    assert values["environment.deterministic"] == "false"


def test_a_command_is_recognised() -> None:
    assert CommandConfig(command="x").is_command
    assert not ImageClassificationConfig(model="resnet8").is_command


def test_checking_loads_no_torch() -> None:
    code = (
        "import sys; from trivet.core.config import build; from trivet.tasks.config import RunConfig;"
        f"build(RunConfig, {IMAGES!r}).check(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
