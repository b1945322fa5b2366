"""The scripts in examples/ run, and say what they should."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

NEEDS = {
    "huggingface_trainer": ("transformers", "accelerate"),
    "accelerate_loop": ("accelerate",),
    "lightning_trainer": ("lightning",),
    "fabric": ("lightning",),
}


# As runpy does not start a new process: the libraries' warnings about small data and unused GPUs.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NEEDS)
def test_example(name: str, repo: Path, capsys: Any) -> None:
    for package in NEEDS[name]:
        pytest.importorskip(package, reason=f"needs the extra that the script {name}.py names")
    runpy.run_path(str(repo / "examples" / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(r"[1-9]\d* products quantized, [\d.]+e\+\d+ BitOPs", printed)
    assert "equal: True" in printed
