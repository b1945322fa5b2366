"""Every example of the user page runs, and its output is the one that the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_examples_of_the_page_run(repo: Path, capsys: Any) -> None:
    text = (repo / "docs" / "audit.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/audit.md", "exec", dont_inherit=True), namespace)
    printed = capsys.readouterr().out
    shown = " ".join(re.findall(r"^> (.*)$", text, re.MULTILINE))
    for line in printed.splitlines():
        if "mat1" in line:
            assert line.strip().partition(", saved")[0] in shown
            break
    size = re.search(r"mat1.*\n  (size: .*)\n", printed)
    assert size is not None
    assert size[1] in shown
    assert "tensors: 4 like this (float32 [1, 8]) in 1 block of memory" in shown
    assert "tensors: 4 like this (float32 [1, 8]) in 1 block of memory" in printed
    assert "workers: the loader has none" in printed


def test_the_figures_of_the_page(repo: Path) -> None:
    text = (repo / "docs" / "audit.md").read_text(encoding="utf-8")
    tests = (repo / "tests" / "audit" / "test_alias_ordinary.py").read_text(encoding="utf-8")
    loops = re.search(r"ORDINARY = \[(.*?)\]", tests, re.DOTALL)
    assert loops is not None
    assert f"In {len(re.findall(r'[a-z_]+,', loops[1]))} ordinary loops" in text
    assert "range(50)" in (repo / "tests" / "audit" / "test_alias.py").read_text(encoding="utf-8")
