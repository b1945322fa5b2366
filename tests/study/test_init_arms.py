"""A hypernetwork that changes under its name is another run."""

from __future__ import annotations

import json
from pathlib import Path

from trivet.ghn.config import GHNConfig
from trivet.study.arms import resolve

BASE = {"task": {"model": "resnet8"}, "training": {"steps": 2}}


def test_the_weights_of_a_hypernetwork_are_part_of_the_run(tmp_path: Path) -> None:
    content = {"format": 1, "kind": "ghn", **GHNConfig.named("ghn2").to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "model.safetensors").write_bytes(b"one")
    factors = {"init": {"random": {}, "ghn": {"ghn": str(tmp_path)}}}
    before, problems = resolve(BASE, factors)
    assert not problems
    (tmp_path / "model.safetensors").write_bytes(b"two")
    after, _ = resolve(BASE, factors)
    assert before[0].config == after[0].config
    assert before[1].config["init"]["digest"] != after[1].config["init"]["digest"]
    assert before[1].config["init"]["digest"]
