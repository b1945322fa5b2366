"""`trivet cost` and the estimates of `run --dry-run`: counted by the side that trains, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trivet.cli.cost import _precisions
from trivet.cli.costs import answer
from trivet.cli.estimate import basis, expected_seconds
from trivet.cli.options import image_shape
from trivet.precision.schedules import PrecisionSchedule
from trivet.study import Record

TASK = {"name": "image-classification", "data": "fashion-mnist", "model": "resnet8", "width": 4}


def request(**more: Any) -> dict[str, Any]:
    low = {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 4}
    training = {"steps": 40, "batch_size": 16}
    runs = [
        {"name": name, "config": {"task": TASK, "training": training, "precision": precision}}
        for name, precision in (("full", {}), ("low", low))
    ]
    return {"runs": runs, **more}


def test_bitops_follow_from_the_layers_and_the_schedule() -> None:
    found = answer(request())
    full, low = found["runs"]
    macs = {True: 0, False: 0}
    for layer in found["layers"]:
        macs[layer["quantized"]] += layer["macs"]
    schedule = PrecisionSchedule.named("RR", q_min=3, q_max=8, num_cycles=4, total_steps=40)
    at_32 = 3 * 32**2 * 40 * 16
    assert full["bitops"] == (macs[True] + macs[False]) * at_32
    assert low["bitops"] == pytest.approx(macs[True] * at_32 * schedule.relative_cost() + macs[False] * at_32)
    assert low["fp32_bitops"] == full["bitops"]


def test_the_input_changes_the_layers_and_not_their_names() -> None:
    small, large = (answer(request(input=[1, side, side], classes=10)) for side in (14, 28))
    assert [layer["name"] for layer in small["layers"]] == [layer["name"] for layer in large["layers"]]
    assert small["runs"][0]["macs"] < large["runs"][0]["macs"]


def test_the_real_command_counts_a_model_by_layer(trivet: Any) -> None:
    ended = trivet("cost", "resnet8", "--schedule", "RR", "--layers")
    assert ended.code == 0, ended.err
    assert "stage1.0.conv1" in ended.out
    assert [line.split()[0] for line in ended.out.splitlines()[-3:]] == ["fp32", "static", "RR"]
    assert "not seconds" in ended.err


def test_levels_are_counted_and_measured_apart() -> None:
    found = answer(request(input=[1, 8, 8], classes=10, levels=True))["levels"]
    assert [(row["bits"], row["execution"]) for row in found] == [
        (32, "fp32"), (16, "auto"), (8, "auto"), (8, "simulated"),
    ]  # fmt: skip
    assert all(row["seconds"] > 0 and row["repeats"] >= 2 for row in found)
    assert found[2]["bitops"] == found[3]["bitops"] < found[1]["bitops"] < found[0]["bitops"]
    assert found[3]["kernels"].keys() == {"simulated", "fp32"}
    assert sum(found[2]["kernels"].values()) == sum(found[3]["kernels"].values())


def test_a_dry_run_says_bitops_and_time_of_each_arm(trivet: Any, tmp_path: Path) -> None:
    text = json.dumps(
        {
            "name": "two",
            "base": {"task": TASK, "training": {"steps": 40, "batch_size": 16}},
            "factors": {"precision": {"fp32": {}, "RR": {"schedule": "RR", "num_cycles": 4}}},
            "seeds": 2,
            "metric": {"name": "test_accuracy"},
        }
    )
    (tmp_path / "two.yaml").write_text(text)
    content = json.loads(trivet("run", "two.yaml", "--dry-run", "--json").out)
    full, low = content["arms"]
    assert full["bitops_of_fp32"] == 1
    assert 0.02 < low["bitops_of_fp32"] < 0.03
    assert min(full["expected_seconds_per_run"], low["expected_seconds_per_run"]) > 0
    assert "timed steps" in content["estimate"]
    assert not (tmp_path / "studies").exists()


def test_a_study_of_a_command_cannot_be_counted(trivet: Any, study: Any) -> None:
    study()
    ended = trivet("cost", "tiny.yaml")
    assert ended.code == 2
    assert "cannot be seen" in ended.err


def test_an_unknown_model_names_the_nearest(trivet: Any) -> None:
    ended = trivet("cost", "resnet21")
    assert ended.code == 2
    assert "did you mean 'resnet20'" in ended.err


def test_every_schedule_or_one() -> None:
    assert list(_precisions("RR", 3, 8, 8, 0)) == ["fp32", "static 8", "RR"]
    assert list(_precisions("static", 3, 6, 8, 0)) == ["fp32", "static 6"]
    assert len(_precisions("", 3, 8, 8, 0)) == 12


@pytest.mark.parametrize("text", ["3x32", "0x32x32", "3x-1x2", "axbxc"])
def test_a_bad_input_size(text: str) -> None:
    with pytest.raises(ValueError, match="CHANNELSxHEIGHTxWIDTH"):
        image_shape("resnet8", text, 0)


def test_input_sizes() -> None:
    assert image_shape("resnet8", "", 0) == ([3, 32, 32], 10)
    assert image_shape("torchvision:resnet18", "", 0) == ([3, 224, 224], 1000)
    assert image_shape("resnet8", "1x28x28", 5) == ([1, 28, 28], 5)


def record(state: Any, seconds: float) -> Record:
    return Record(run_id="a", arm="a", levels={}, seed=0, state=state, folder=Path("x"), seconds=seconds)


def test_measured_runs_come_before_timed_steps() -> None:
    row = {"step_seconds": 0.5, "overhead_seconds": 2.0}
    config = {"training": {"steps": 10, "evaluate_every": 5}}
    assert expected_seconds(row, [], config) == 10 * 0.5 + 3 * 2.0
    assert expected_seconds(row, [record("finished", 3.0), record("finished", 5.0)], config) == 4.0
    assert expected_seconds({}, [record("failed", 3.0)], config) is None
    assert "1 finished" in basis([], [record("finished", 1.0)])
    assert "timed steps" in basis([row], [])
    assert "nothing" in basis([{}], [])
