"""`trivet range-test` on a model and on a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

QUICK = ("--windows", "3", "--patience", "1", "--levels", "2,3", "--threshold", "0.2")


def test_a_model_and_a_study_agree(trivet: Any, tmp_path: Path) -> None:
    model = trivet("range-test", "resnet8", "--width", "4", "--batch-size", "16", *QUICK, "--json")
    assert model.code == 0, model.err
    study = tmp_path / "s.yaml"
    study.write_text(
        "name: s\nbase:\n  task: {name: image-classification, model: resnet8, width: 4}\n"
        "  training: {steps: 50, batch_size: 16, optimizer: {name: adam, lr: 0.01}}\n"
        "factors: {precision: {fp32: {}, RR: {schedule: RR}}}\nseeds: 2\nmetric: {name: test_accuracy}\n"
    )
    other = trivet("range-test", str(study), *QUICK, "--json", "--plot", str(tmp_path / "p.svg"))
    assert json.loads(other.out) == json.loads(model.out)
    assert "bits (reference)" in (tmp_path / "p.svg").read_text()
    found = json.loads(model.out)
    assert found["steps"] <= 18
    assert found["sentence"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet21",), "resnet20"),
        (("resnet8", "--levels", "two"), "whole numbers"),
        (("resnet8", "--levels", "9"), "`levels=9`"),
    ],
)
def test_refusals(trivet: Any, arguments: tuple[str, ...], message: str) -> None:
    ended = trivet("range-test", *arguments)
    assert ended.code == 2
    assert message in ended.err
