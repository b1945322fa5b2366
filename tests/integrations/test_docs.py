"""Every example of the user page runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.filterwarnings("ignore")
def test_examples_of_the_page_run(repo: Path, capsys: Any) -> None:
    for package in ("transformers", "accelerate", "lightning"):
        pytest.importorskip(package, reason="needs `pip install 'trivet[huggingface,lightning]'`")
    text = (repo / "docs" / "integrations.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/integrations.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert re.search(r"^8 [1-9]\d*\.0 12$", printed, re.MULTILINE)  # evaluation bits, BitOPs, calls
    assert re.search(r"^8 [1-9]\d*\.0 16$", printed, re.MULTILINE)  # optimizer steps, BitOPs, calls
