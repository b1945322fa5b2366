"""The surface of the command line: verbs, options, help, start-up."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main

import trivet as package
from trivet.cli.app import app

SNAPSHOT = Path(__file__).with_name("surface.json")
HEAVY = ("torch", "scipy", "pandas", "altair", "pydantic", "numpy")


def surface() -> dict[str, Any]:
    """Verb (of a group: group and verb) → its arguments and options, as a user types them."""
    group: Any = typer.main.get_command(app)
    verbs = {
        f"{name} {inner}".strip(): command
        for name, item in group.commands.items()
        for inner, command in getattr(item, "commands", {"": item}).items()
    }
    return {
        verb: {
            "arguments": [item.name for item in command.params if item.param_type_name == "argument"],
            "options": sorted(
                word for item in command.params if item.param_type_name == "option" for word in item.opts
            ),
        }
        for verb, command in verbs.items()
    }


def test_the_surface_is_the_one_on_record() -> None:
    """After a wanted change: python tests/cli/test_app.py writes the snapshot anew."""
    assert surface() == json.loads(SNAPSHOT.read_text())


def test_the_verbs_of_the_design_are_there() -> None:
    assert list(surface()) == [
        "run", "status", "compare", "report", "schedule", "cost", "range-test", "advise", "graph", "predict",
        "critical", "bisect", "audit", "data", "cp", "doctor", "ghn stats", "ghn train", "ghn eval", "ghn rank",
        "ghn diagnose",
    ]  # fmt: skip


def test_every_reading_verb_has_json() -> None:
    assert all("--json" in entry["options"] for verb, entry in surface().items())


def test_no_arguments_print_help_with_three_examples(real_trivet: Any, trivet: Any) -> None:
    ended = real_trivet()
    assert ended.code == 0
    assert ended.err == ""
    assert sum(line.startswith("    trivet ") for line in ended.out.splitlines()) == 3
    assert all(verb.split()[0] in ended.out for verb in surface())
    assert trivet("--help").out == ended.out


def test_the_version(trivet: Any) -> None:
    assert trivet("--version").out == f"trivet {package.__version__}\n"


def test_an_unknown_verb_gets_the_nearest(trivet: Any) -> None:
    ended = trivet("statos", "x")
    assert ended.code == 2
    assert "'status'" in ended.err
    assert ended.out == ""


def test_an_unknown_option_gets_the_nearest(trivet: Any) -> None:
    ended = trivet("run", "x.yaml", "--slost", "2")
    assert ended.code == 2
    assert "--slots" in ended.err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['trivet', '--help']\n"
        "from trivet.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_help_takes_little_more_than_its_libraries() -> None:
    """A ratio of medians, measured in turns, so that a busy machine slows both alike."""

    def seconds(*command: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        return time.perf_counter() - start

    rounds = [(seconds("-m", "trivet", "--help"), seconds("-c", "import typer, rich")) for _ in range(5)]
    ours, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
    assert ours / theirs < 3


@pytest.mark.parametrize("verb", list(surface()))
def test_every_verb_explains_itself(verb: str, trivet: Any) -> None:
    ended = trivet(*verb.split(), "--help")
    assert ended.code == 0
    assert f"trivet {verb}" in ended.out


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(surface(), indent=2) + "\n")
