"""The Typer application: which verbs exist, `--version`, and what `trivet` alone prints.

`tests/cli/surface.json` is a snapshot of this surface; a change here shows up there.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import trivet
from trivet.cli import (
    advise,
    audit,
    bisect,
    compare,
    cost,
    cp,
    critical,
    data,
    doctor,
    ghn,
    graph,
    predict,
    range_test,
    report,
    run,
    schedule,
    status,
)
from trivet.cli.console import USAGE

HELP = """Make training a neural network cheaper, and say honestly whether the result really changed.

\b
Examples:
  trivet cp demo && trivet run demo.yaml    copy a study, run it, read the verdict
  trivet schedule --plot                    see the ten precision schedules
  trivet cost resnet20 --schedule RR        what a schedule costs before training

Exit codes: 0 done, 1 some runs failed, 2 usage or configuration, 3 `compare --exit-code`: not established,
130 Ctrl-C. Data goes to standard output, talk to standard error. `trivet VERB --help` says more."""

app = typer.Typer(
    name="trivet",
    help=HELP,
    rich_markup_mode=None,  # plain help: a third of the start-up time, and the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"trivet {trivet.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("run", short_help="Run a study, or what is left of it.")(run.run)
app.command("status", short_help="How far a study is.")(status.status)
app.command("compare", short_help="Verdicts: different, equivalent or undecided.")(compare.compare)
app.command("report", short_help="One HTML file with everything.")(report.report)
app.command("schedule", cls=schedule.ScheduleCommand, short_help="The ten precision schedules.")(schedule.schedule)
app.command("cost", short_help="BitOPs of a model or a study, before training.")(cost.cost)
app.command("range-test", short_help="The fewest bits at which a model learns.")(range_test.range_test)
app.command("advise", short_help="Which precision schedule to take, and why.")(advise.advise)
app.command("graph", short_help="What a model computes with, as a table or drawn.")(graph.graph)
app.command("predict", short_help="Predict a model's parameters from its graph.")(predict.predict)
app.command("critical", short_help="Where the critical learning period ends.")(critical.critical)
app.command("bisect", short_help="Where two trainings part: first step, first tensor.")(bisect.bisect)
app.command("audit", short_help="Is this training what it seems? Checks of seconds.")(audit.audit)
app.command("data", short_help="List, check and fetch data sets.")(data.data)
app.command("cp", short_help="Copy a recipe.")(cp.cp)
app.add_typer(ghn.app, name="ghn", short_help="Networks for graph hypernetworks.")
app.command("doctor", short_help="Check this machine; which settings of it move a training.")(doctor.doctor)


def refuse_empty_words(words: Sequence[str]) -> None:
    """End the command where a word of it is empty: mostly a variable of a shell script that is not set.

    An empty value would be taken for the default, or for the current folder. `--set KEY=` is not empty.

    Examples:
        >>> refuse_empty_words(["run", "study.yaml", "--set", "task.data="])
    """
    for before, word in zip(["", *words], words, strict=False):
        if re.fullmatch(r"\s*|--[\w-]+=\s*", word):
            name = word.rstrip("= ") or (before if before.startswith("-") else "")
            given = f"`{name}` is given an empty value" if name else f"an empty word is given after {before!r}"
            print(f"error: {given}; allowed: a value; is a variable of the shell unset? leave it out", file=sys.stderr)
            sys.exit(USAGE)


def main() -> None:
    """Run the command line on `sys.argv` and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(errors="replace")  # a terminal without × or ─ still gets its table
    refuse_empty_words(sys.argv[1:])
    app(prog_name="trivet")
