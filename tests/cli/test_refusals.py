"""What is refused before anything starts: exit code 2, one line with file, key, found, allowed and the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BASE = """
name: small
base:
  task: {name: image-classification, data: fashion-mnist, model: resnet8}
  training: {steps: 10, batch_size: 8}
factors:
  precision: {fp32: {}, low: {schedule: RR, q_min: 3, q_max: 8}}
seeds: 2
metric: {name: test_accuracy, margin: 0.01}
"""

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown key": (BASE.replace("steps: 10", "step: 10"), ("base.training.step", "allowed", "did you mean 'steps'")),
    "unknown key at the top": (BASE.replace("seeds:", "sedes:"), ("sedes", "did you mean 'seeds'")),
    "unknown schedule": (
        BASE.replace("RR", "RX"),
        ("factors.precision.low", "'RX'", "CR, LR, ER, RR", "did you mean 'RR'"),
    ),
    "q_min above q_max": (BASE.replace("q_min: 3", "q_min: 9"), ("factors.precision.low", "q_min=9", "q_max=8")),
    "no bits": (BASE.replace("q_min: 3", "q_min: 0"), ("factors.precision.low", "0", "[1, 32]")),
    "too many bits": (BASE.replace("q_max: 8", "q_max: 40"), ("factors.precision.low", "40", "[1, 32]")),
    "a level that is no mapping": (
        BASE.replace("fp32: {}", "fp32: full"),
        ("factors.precision.fp32", "'full'", "a mapping"),
    ),
    "missing data": (
        BASE.replace("data: fashion-mnist", "data: cifar10"),
        ("task.data", "cifar10", "looked in", "on this machine: fashion-mnist", "trivet data fetch cifar10"),
    ),
    "unknown data": (BASE.replace("data: fashion-mnist", "data: fashion"), ("task.data", "fashion-mnist")),
    "unknown model": (BASE.replace("resnet8", "resnet9"), ("task.model", "resnet9", "did you mean 'resnet8'")),
    "no mapping": ("- one\n- two\n", ("a list at the top level", "a mapping")),
    "a bomb": (BOMB, ("aliases", "line 2")),
    "a path for a name": (BASE.replace("name: small", "name: ../small"), ("name", "a path", "--out")),
    "negative seeds": (BASE.replace("seeds: 2", "seeds: -2"), ("seeds", "found -2", "≥ 1")),
    "a negative seed": (BASE.replace("seeds: 2", "seeds: [0, -1]"), ("seeds", "-1", "≥ 0")),
    "too few steps": (BASE.replace("steps: 10", "steps: 5"), ("precision", "num_cycles")),
}


@pytest.mark.parametrize("name", list(CASES))
def test_it_is_refused_with_what_was_found_and_what_is_allowed(name: str, trivet: Any, tmp_path: Path) -> None:
    text, expected = CASES[name]
    (tmp_path / "bad.yaml").write_text(text, encoding="utf-8")
    ended = trivet("run", "bad.yaml")
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert "bad.yaml" in ended.err
    for words in expected:
        assert words in ended.err, ended.err
    assert not (tmp_path / "studies").exists(), "nothing may be written"


def test_all_problems_are_told_at_once(real_trivet: Any, tmp_path: Path) -> None:
    """As a process of its own, like a user's."""
    text = BASE.replace("steps: 10", "step: 10").replace("seeds: 2", "seeds: -1").replace("RR", "RX")
    (tmp_path / "bad.yaml").write_text(text)
    ended = real_trivet("run", "bad.yaml")
    assert (ended.code, ended.out) == (2, "")
    lines = ended.err.splitlines()
    assert sum("error: bad.yaml" in line for line in lines) >= 3


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("training.step=3", ("step", "did you mean 'steps'")),
        ("training.steps", ("--set", "training.steps=100")),
        ("trainning.steps=3", ("--set: trainning.steps", "task, init, training", "did you mean 'training.steps'")),
        ("steps=3", ("--set: steps", "did you mean 'training.steps'")),
        ("sead=3", ("--set: sead", "did you mean 'seeds'")),
        ("base.trainning.steps=3", ("base.trainning", "did you mean 'training'")),
        ("base.training.stepps=3", ("base.training.stepps", "did you mean 'steps'")),
        ("environment.threds=3", ("environment.threds", "did you mean 'threads'")),
        ("environment.device=cpuu", ("environment.device", "did you mean 'cpu'")),
        ("task.name=detecton", ("task.name", "did you mean 'detection'")),
        ("metric.gool=minimize", ("metric.gool", "did you mean 'goal'")),
        ("precision={schedule: custom, profile: cosin, q_min: 3, q_max: 8}", ("did you mean 'cosine'",)),
        ('task={"name":"detection","backbone":"smal","model":""}', ("base.task",)),
        ("resources.minutes=0", ("resources", "`minutes=0`", "[1, 527040]")),
        ("resources.minutes=-3", ("resources", "`minutes=-3`")),
        ("resources.minutes=.nan", ("resources.minutes", "a finite number")),
        ("resources.minutes=1000000000000", ("resources", "minutes=1000000000000")),
        ("training.optimizer.lr=.nan", ("base.training.optimizer.lr", "found nan; allowed: a finite number")),
        ("training.optimizer.weight_decay=-.inf", ("base.training.optimizer.weight_decay", "a finite number")),
        ("precision.exponent=.nan", ("precision.exponent", "a finite number")),
        ("precision.exponent=-1", ("`exponent=-1", "> 0")),
        ("task.augment.shift=1e30", ("base.task.augment.shift", "a whole number")),
        ("task.augment.shift=5000", ("base.task.augment", "[0, 1024]")),
        ("metric.margin=.inf", ("metric.margin", "a finite number")),
        ("task={command: 'python -V', metrics: {test_accuracy: '(x)'}, options: {lr: .nan}}", ("a finite number",)),
        ("resources.memory_gb=0", ("resources", "`memory_gb=0`")),
        ("resources.memory_gb=1e30", ("resources.memory_gb", "a whole number")),
        ("resources.devices=0", ("resources", "`devices=0`")),
        ("resources.nodes=99999", ("resources", "`nodes=99999`")),
        ("resources.slots=true", ("resources.slots", "a whole number")),
        ("resources.options={partition: ''}", ("resources", "must not be empty")),
        ("seeds=-1", ("seeds", "-1")),
        ("precision.schedule=RX", ("RX", "did you mean 'RR'")),
    ],
)
def test_a_bad_set_is_refused(option: str, expected: tuple[str, ...], trivet: Any, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(BASE)
    ended = trivet("run", "good.yaml", "--set", option)
    assert ended.code == 2
    for words in expected:
        assert words in ended.err


def test_a_missing_file_names_a_similar_one(trivet: Any, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(BASE)
    ended = trivet("run", "goof.yaml")
    assert ended.code == 2
    assert "did you mean good.yaml" in ended.err


def test_the_bare_name_of_a_recipe_says_how_to_copy_it(trivet: Any) -> None:
    ended = trivet("run", "demo")
    assert ended.code == 2
    assert "trivet cp demo" in ended.err


def test_a_data_root_that_is_not_there(trivet: Any, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(BASE)
    ended = trivet("run", "good.yaml", "--data-root", "nowhere")
    assert ended.code == 2
    assert "nowhere" in ended.err


def test_a_folder_that_holds_something_else(trivet: Any, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(BASE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    ended = trivet("run", "good.yaml", "--out", "mine")
    assert ended.code == 2
    assert "--out" in ended.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("verb", ["status", "compare", "report"])
def test_a_folder_that_is_no_study(verb: str, trivet: Any, tmp_path: Path) -> None:
    ended = trivet(verb, tmp_path)
    assert ended.code == 2
    assert "study.yaml" in ended.err
    assert ended.out == ""


def test_negative_slots(trivet: Any, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(BASE)
    ended = trivet("run", "good.yaml", "--slots", "-1")
    assert ended.code == 2
    assert "slots" in ended.err


@pytest.mark.parametrize("words", [("--executor", ""), ("--executor=",), ("--out", ""), ("--data-root", " "), ("",)])
def test_an_empty_word_is_no_default(words: tuple[str, ...], trivet: Any, tmp_path: Path) -> None:
    """As a script leaves it whose variable is not set."""
    (tmp_path / "good.yaml").write_text(BASE)
    ended = trivet("run", "good.yaml", *words, "--dry-run")
    assert (ended.code, ended.out) == (2, "")
    assert (f"`{words[0].rstrip('=')}` is given an empty value" if words[0] else "an empty word") in ended.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("range-test", "resnet8", "--plot", "x.gif"), "`--plot x.gif`: must end in .svg, .png, .html, .json"),
        (("range-test", "resnet8", "--plot", "good.yaml/x.svg"), "`--plot good.yaml/x.svg`: nothing can be written to"),
        (("schedule", "--plot", "good.yaml/x.svg"), "`--plot good.yaml/x.svg`: nothing can be written to"),
        (("report", ".", "--out", "good.yaml/x.html"), "`--out good.yaml/x.html`: nothing can be written to"),
        (("cp", "demo", "good.yaml/x.yaml"), "`DEST good.yaml/x.yaml`: nothing can be written to"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_work(
    words: tuple[str, ...], expected: str, trivet: Any, tmp_path: Path
) -> None:
    (tmp_path / "good.yaml").write_text(BASE)
    ended = trivet(*words)
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert expected in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["good.yaml"]


def test_what_the_system_refuses_is_told_with_the_file(
    trivet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "demo.yaml")

    monkeypatch.setattr("trivet.cli.cp.write_bytes", closed)
    ended = trivet("cp", "demo")
    assert (ended.code, ended.err.strip()) == (1, "error: demo.yaml: Permission denied")
