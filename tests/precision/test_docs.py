"""Every example of the user page runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_examples_of_the_page_run(repo: Path, capsys: Any) -> None:
    text = (repo / "docs" / "precision.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 6
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/precision.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "BitOPs" in printed
    ctl = namespace["ctl"]
    assert ctl.last_step == 16


def test_table_of_savings_is_right(repo: Path) -> None:
    from trivet.precision import PrecisionSchedule

    rows = re.findall(
        r"^\| ([A-Z, ]+) \| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) % \|$",
        (repo / "docs" / "precision.md").read_text(),
        re.MULTILINE,
    )
    seen = []
    for names, group, mean, cost, saved in rows:
        for name in names.split(", "):
            s = PrecisionSchedule.named(name, q_min=3, q_max=8, num_cycles=8, total_steps=64_000)
            relative = s.relative_cost(8, reference=8)
            assert s.group == group
            assert abs(s.mean_bits - float(mean)) <= 0.0051, name
            assert abs(relative - float(cost)) <= 0.00051, name
            assert abs(100 * (1 - relative) - float(saved)) <= 0.051, name
            seen.append(name)
    assert sorted(seen) == sorted(PrecisionSchedule.names())


def test_example_of_the_native_page_runs(repo: Path) -> None:
    text = (repo / "docs" / "native-precision.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(block, "docs/native-precision.md", "exec"), namespace)
    assert sum(level.steps for level in namespace["ctl"].seconds.values()) == 39
