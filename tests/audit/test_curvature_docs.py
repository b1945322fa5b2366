"""The example of the page on curvature runs, and its study snippet is a section of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trivet.audit.curvature_config import CurvatureConfig
from trivet.core.config import build
from trivet.core.yamlfile import parse_yaml


def test_the_page_runs(repo: Path, capsys: Any) -> None:
    text = (repo / "docs" / "curvature.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "docs/curvature.md", "exec", dont_inherit=True), namespace)
    assert capsys.readouterr().out.splitlines()[-1] == "False"
    for name in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE):
        for part in re.findall(r"`(\w+)`", name):
            assert hasattr(namespace["found"], part)
    [section] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert build(CurvatureConfig, parse_yaml(section)["curvature"]).at == (10, 150)
