"""Examples and word table of the user page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trivet.graph import words
from trivet.graph.rules import BY_FUNCTION


def test_examples_of_the_page_run(repo: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    text = (repo / "docs" / "graphs.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "draw" not in block]
    assert len(blocks) == 2
    namespace: dict[str, Any] = {}
    rules = dict(BY_FUNCTION)
    try:
        for block in blocks:
            exec(compile(block, "docs/graphs.md", "exec", dont_inherit=True), namespace)
        graph = namespace["graph"]
        assert str(graph.edges) in capsys.readouterr().out.splitlines()[-2]
        assert f"# {graph.edges}" in blocks[0]

        class Net(torch.nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return namespace["affine"](x, self.weight, self.bias)

        made = namespace["graph_of"](Net(3, 2), torch.zeros(1, 3))
        assert [node.op for node in made.nodes] == ["input", "conv", "bias"]
    finally:
        BY_FUNCTION.clear()
        BY_FUNCTION.update(rules)


def test_table_has_every_word(repo: Path) -> None:
    text = (repo / "docs" / "graphs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| .*? \| (?:`(\w+)`)? ?\|$", text, re.MULTILINE)
    listed = {name: like for names, like in rows for name in re.findall(r"`(\w+)`", names)}
    expected = {entry.name: entry.like if entry.index >= 15 else "" for entry in words()}
    assert {name: listed.get(name) for name in expected} == expected
