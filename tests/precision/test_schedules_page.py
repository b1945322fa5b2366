"""The page on schedules: its Python runs, its study files are accepted, its figures are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trivet.core.config import build, parse_yaml
from trivet.precision import PrecisionConfig, PrecisionSchedule
from trivet.precision.profiles import REX_PUBLISHED


def blocks(repo: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (repo / "docs" / "schedules.md").read_text(), re.DOTALL)


def test_python_runs(repo: Path, capsys: Any) -> None:
    namespace: dict[str, Any] = {}
    for block in blocks(repo, "python"):
        exec(compile(block, "docs/schedules.md", "exec"), namespace)
    assert capsys.readouterr().out


def test_study_files_are_accepted(repo: Path) -> None:
    parts = re.split(r"(?m)^(?=precision:)", blocks(repo, "yaml")[0])
    sections = [parse_yaml(part)["precision"] for part in parts if part.strip()]
    assert len(sections) == 3
    for section in sections:
        assert build(PrecisionConfig, section).build(1000) is not None


def test_the_rex_constants_save_what_is_said() -> None:
    for options, saving in (({}, 0.60), ({"rex_constant": REX_PUBLISHED}, 0.45)):
        s = PrecisionSchedule.named("RR", q_min=3, q_max=8, num_cycles=8, total_steps=64_000, **options)
        assert abs(1 - s.relative_cost(8, reference=8) - saving) < 0.005
