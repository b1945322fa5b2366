"""The claims board says what the pages say, leaves out no claim, and names recipes that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
CLAIMS = [*(f"A{n}" for n in range(1, 8)), *(f"B{n}" for n in range(1, 10)), *(f"C{n}" for n in range(1, 7))]


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    page = (REPOSITORY / "docs" / "claims.md").read_text(encoding="utf-8")
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| [ABC]\d", line)]
    return {name: rest for name, *rest in cells}


def test_the_page_is_what_the_benchmark_writes() -> None:
    command = [sys.executable, "benchmarks/claims.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + "run `python benchmarks/claims.py`"


def test_no_claim_is_left_out_and_each_has_a_figure_or_a_reason(rows: dict[str, list[str]]) -> None:
    assert list(rows) == CLAIMS
    for name, (_, found, verdict, *_) in rows.items():
        assert re.search(r"\d|not run: \w+|`trivet", found) or ".md)" in found, name
        assert ("not run: " in found) == (verdict == "**open**"), name


def test_recipes_and_pages_exist(rows: dict[str, list[str]]) -> None:
    commands = "\n".join(" ".join(cells) for cells in rows.values())
    recipes = {path.relative_to(REPOSITORY / "recipes").with_suffix("").as_posix()
               for path in (REPOSITORY / "recipes").rglob("*.yaml")}  # fmt: skip
    named = {
        word for cells in rows.values() for word in re.findall(r"`((?:full/)?[a-z][\w-]*-[\w-]+)`", cells[3] + cells[4])
    }
    assert named
    assert named <= recipes, named - recipes
    for page in re.findall(r"\]\(([\w/-]+\.md)\)", commands):
        assert (REPOSITORY / "docs" / page).exists(), page
