"""`trivet report`: one HTML file that says what was asked, what came out, and how to run it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.console import emit_json, talk, verb
from trivet.cli.options import check_place


@verb
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Study folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="HTML file to write; DIR/report.html by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report's content as JSON instead.")] = False,
) -> None:
    """Build the report of a study: one HTML file that needs no network, and its JSON twin."""
    from trivet.study import Results

    if out is not None:
        check_place(out)
    results = Results.load(folder)
    if json:
        from trivet.report import summarize

        emit_json(summarize(results))
        return
    from trivet.report.build import build

    talk("drawing the report …")
    print(build(results, out))
