"""State as JSON and back; needs none of the libraries."""

from __future__ import annotations

import json

import torch

from trivet.integrations.plainstate import from_json, to_json


def test_state_survives_json() -> None:
    state = {
        "a": [torch.tensor([0.1, float("inf")]), torch.tensor(3, dtype=torch.int64)],
        "b": {"c": True, "d": (1, 2)},
    }
    back = from_json(json.loads(json.dumps(to_json(state))))
    assert torch.equal(back["a"][0], state["a"][0])
    assert back["a"][1].dtype == torch.int64
    assert back["b"] == {"c": True, "d": [1, 2]}
