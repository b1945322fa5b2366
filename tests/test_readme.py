"""Every snippet of the README runs, as a reader would type it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trivet.core.config import load_yaml, parse_yaml

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_no_block_escapes_these_tests() -> None:
    languages = re.findall(r"^```(\w*)\n", README, flags=re.M)
    assert {language for language in languages if language} == {"sh", "python", "yaml", "text"}


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python(number: int, tmp_path: Path) -> None:
    done = run([sys.executable, "-W", "error", "-c", blocks("python")[number]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_make_targets_exist() -> None:
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.M)
    assert targets == ["demo", "test"]
    for target in targets:
        done = run(["make", "--dry-run", target], ROOT)
        assert done.returncode == 0, done.stderr


def test_the_study_of_the_examples_is_the_one_shown() -> None:
    [shown] = blocks("yaml")
    assert parse_yaml(shown) == load_yaml(ROOT / "examples" / "study.yaml")


def test_the_commands_of_the_study_run(tmp_path: Path) -> None:
    [shown] = blocks("yaml")
    (tmp_path / "study.yaml").write_text(shown.replace("seeds: 8", "seeds: 2"))
    shutil.copy(ROOT / "examples" / "train.py", tmp_path / "train.py")
    commands = [line.partition("#")[0].split() for line in blocks("sh")[1].splitlines()]
    assert [command[:2] for command in commands] == [["trivet", "run"], ["trivet", "run"], ["trivet", "report"]]
    for command in commands:
        done = run([sys.executable, "-m", *command], tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "studies" / "learning-rate" / "report.html").is_file()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target
