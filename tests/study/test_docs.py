"""The study files on the user page are sound, and its snippet in Python does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from trivet.core.yamlfile import parse_yaml
from trivet.study import StudySpec


def test_study_files_of_the_page(repo: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (repo / "docs/study.md").read_text(), re.DOTALL)
    specs = [StudySpec.from_mapping(parse_yaml(block)) for block in blocks]
    assert [(spec.name, len(spec.arms())) for spec in specs] == [("rr-vs-fp32", 4), ("my-script", 2), ("settings", 3)]


def test_names_in_python(repo: Path) -> None:
    import trivet.study

    text = (repo / "docs/study.md").read_text()
    for name in set(re.findall(r"`(Study\w+|ConfigError)`", text)):
        assert name == "ConfigError" or hasattr(trivet.study, name)
    assert set(trivet.study.__all__) <= set(dir(trivet.study))
