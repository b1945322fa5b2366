"""The adviser: published rules, budgets, and the user's own study before all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trivet.precision import StudyArm, advise
from trivet.precision.adviser import DOMAINS, domain_of


@pytest.mark.parametrize(("aim", "group"), [("cost", "small"), ("balance", "medium"), ("quality", "large")])
def test_aim_chooses_the_group_by_compute(aim: str, group: str) -> None:
    for fine_tuning in (False, True):
        advice = advise(aim, fine_tuning=fine_tuning, steps=64_000)
        assert advice.group == group
        assert advice.precision["num_cycles"] == (2 if fine_tuning else 8)
        assert advice.precision["grad_bits"] == advice.precision["q_max"]
        assert advice.build(64_000).build(64_000) is not None


def test_from_scratch_takes_the_gentlest_start_of_its_group() -> None:
    advice = advise("cost", steps=64_000)
    assert advice.precision["schedule"] == "RTH"
    assert advice.early_share < advise("cost", fine_tuning=True, steps=64_000).early_share


def test_large_scale_rules_small_schedules_out() -> None:
    for advice in (advise("cost", large_scale=True), advise("cost", domain="imagenet")):
        assert advice.group == "medium"
        assert "large-scale" in advice.reason


@pytest.mark.parametrize("domain", DOMAINS)
def test_q_min_is_the_published_one_or_that_of_a_range_test(domain: str) -> None:
    assert advise(domain=domain).precision["q_min"] == DOMAINS[domain][0]
    tested = advise(domain=domain, q_min=6)
    assert tested.precision["q_min"] == 6
    assert "your range test" in tested.reason
    assert not any("range test" in text for text in tested.would_change)


def test_domains_by_name() -> None:
    names = {
        "mobilenet_v2": "mobile", "torchvision:resnet50": "imagenet", "resnet74": "vision", "bert-base": "language",
        "python:my.module:GraphSAGE": "graph", "torchvision:fasterrcnn_resnet50_fpn": "detection", "": "vision",
    }  # fmt: skip
    assert {name: domain_of(name) for name in names} == names


@pytest.mark.parametrize("budget", [0.2, 0.3, 0.4, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("aim", ["cost", "balance", "quality"])
def test_a_budget_is_kept_or_said_to_be_out_of_reach(aim: str, budget: float) -> None:
    advice = advise(aim, budget=budget, steps=64_000)
    assert advice.within_budget == (advice.cost_of_static8 <= budget)
    assert advice.within_budget or "nothing allowed here" in advice.reason


def test_seconds_come_from_a_timed_step_only() -> None:
    assert advise(steps=1000).seconds is None
    assert advise(steps=1000, step_seconds=0.5).seconds == 500
    limited = advise(steps=1000, step_seconds=0.5, seconds=100)
    assert (limited.steps, limited.seconds) == (200, 100)
    assert "no schedule makes a step faster" in limited.reason
    with pytest.raises(ValueError, match="needs `step_seconds`"):
        advise(seconds=100)


def test_short_trainings_get_fewer_cycles() -> None:
    for steps in (1, 5, 15, 40, 79, 80):
        advice = advise(steps=steps)
        advice.build(steps)
    assert advise(steps=40).precision["num_cycles"] == 4


def arms() -> list[StudyArm]:
    def arm(name: str, bitops: float, gain: float, label: str) -> StudyArm:
        precision = {"schedule": name, "q_min": 3, "q_max": 8, "num_cycles": 8}
        return StudyArm(
            name=name, precision=precision, bitops=bitops, cost=bitops, gain=gain, margin=0.01, label=label, pairs=8
        )

    return [
        StudyArm(name="fp32", precision={}, bitops=16, cost=16, gain=0, margin=0.01, label="reference"),
        arm("RR", 0.399, -0.05, "different"),
        arm("LR", 0.628, -0.004, "undecided"),
        arm("CR", 0.633, -0.001, "equivalent"),
        arm("ER", 0.822, 0.002, "undecided"),
    ]


@pytest.mark.parametrize(("aim", "name"), [("cost", "CR"), ("balance", "LR"), ("quality", "ER")])
def test_an_own_study_decides_first(aim: str, name: str) -> None:
    advice = advise(aim, study=arms())
    assert advice.precision["schedule"] == name
    assert advice.sources == ("your study",)
    assert name in advice.reason


def test_an_own_study_without_a_qualified_arm_leaves_it_to_the_rules() -> None:
    advice = advise("cost", study=arms(), budget=0.45)
    assert advice.precision["schedule"] == "RTH"
    assert "no arm of the study qualifies" in advice.reason
    worst = [arm for arm in arms() if arm.name in ("fp32", "RR")]
    assert advise("cost", study=worst).precision == {}


def test_advice_is_plain_and_readable() -> None:
    advice = advise("quality", model="resnet20")
    assert json.loads(json.dumps(advice.to_dict()))["precision"]["schedule"] == "ETH"
    assert "why:" in str(advice)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aim": "costs"}, "did you mean 'cost'"),
        ({"domain": "visoin"}, "did you mean 'vision'"),
        ({"q_min": 9}, "`q_min=9`"),
        ({"budget": -1.0}, "`budget=-1.0`"),
        ({"steps": -5}, "`steps=-5`"),
        ({"seconds": float("nan")}, "`seconds=nan`"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        advise(**options)
