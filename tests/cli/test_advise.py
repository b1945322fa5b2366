"""`trivet advise`: rules, budgets, a finished study of one's own."""

from __future__ import annotations

import json
from typing import Any

import pytest


def test_advice_is_said_with_its_reason(trivet: Any) -> None:
    ended = trivet("advise", "cost", "--model", "resnet20", "--steps", "64000")
    assert ended.code == 0
    assert "schedule: RTH" in ended.out
    assert "39.9% of static 8 bits" in ended.out
    assert "no step was timed" in ended.out
    assert "arXiv 2403.02243" in ended.err


def test_json_and_seconds(trivet: Any) -> None:
    ended = trivet("advise", "quality", "--steps", "100", "--step-seconds", "0.5", "--json")
    found = json.loads(ended.out)
    assert found["seconds"] == 50
    assert found["precision"]["schedule"] == "ETH"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("costs",), "did you mean 'cost'"),
        (("cost", "--seconds", "10"), "needs `step_seconds`"),
        (("cost", "--from", "nowhere"), "nowhere"),
    ],
)
def test_refusals(trivet: Any, arguments: tuple[str, ...], message: str) -> None:
    ended = trivet("advise", *arguments)
    assert ended.code == 2
    assert message in ended.err
