"""What the callback for the Trainer refuses, and what it says without its libraries."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from trivet.core.errors import MissingExtraError
from trivet.precision import PrecisionConfig, PrecisionSchedule

pytest.importorskip("transformers", reason="needs `pip install 'trivet[huggingface]'`")
pytest.importorskip("accelerate", reason="needs `pip install 'trivet[huggingface]'`")

from trivet.integrations.huggingface import PrecisionCallback


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (("RR",), TypeError, r"got str\. For example PrecisionConfig\(schedule='RR'"),
        (({},), TypeError, "got dict"),
        (
            (PrecisionConfig(schedule="RR"), {"grad_bits": 8}),
            ValueError,
            r"PrecisionConfig\(\.\.\., grad_bits=\.\.\.\)",
        ),
        ((PrecisionConfig(schedule="RR"), {"grad_bits": 40}), ValueError, r"`grad_bits=40` must lie in \[0, 32\]"),
        ((PrecisionConfig(schedule="RR"), {"evaluate_bits": 2.5}), TypeError, "whole number"),
        ((PrecisionConfig(schedule="RR"), {"total_steps": -1}), ValueError, "must be ≥ 0"),
        (
            (PrecisionSchedule.static(8, total_steps=9), {"total_steps": 8}),
            ValueError,
            "must be that of the schedule, 9",
        ),
        ((PrecisionSchedule.static(8, total_steps=9), {"quantizer": "publised"}), ValueError, "did you mean"),
    ],
)
def test_wrong_arguments(given: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PrecisionCallback(given[0], **(given[1] if len(given) > 1 else {}))


@pytest.mark.parametrize("missing", ["transformers", "accelerate"])
def test_without_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "trivet.integrations.huggingface")
    with pytest.raises(MissingExtraError, match=rf"'{missing}'.*pip install 'trivet\[huggingface\]'"):
        importlib.import_module("trivet.integrations.huggingface")
