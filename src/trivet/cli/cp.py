"""`trivet cp`: copy a recipe, so that it can be read, changed and run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.console import emit_json, fail, show, table, talk, verb
from trivet.cli.options import check_place
from trivet.core.io import write_bytes


@verb
def cp(
    recipe: Annotated[str, typer.Argument(metavar="[RECIPE]", help="Name of the recipe; see --list.")] = "",
    destination: Annotated[
        Path | None, typer.Argument(metavar="[DEST]", help="File or folder to copy to; here by default.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """Copy a recipe (a study file that comes with trivet) to a file of yours."""
    from trivet.cli.recipes import command, find, recipes, summary

    if list_ or not recipe:
        rows = [{"name": name, "summary": summary(path), "path": str(path)} for name, path in recipes().items()]
        if json:
            emit_json(rows)
            return
        show(table(["recipe", "what it asks"], [[row["name"], row["summary"]] for row in rows], left=(0, 1)))
        talk("copy one with: trivet cp NAME")
        return
    source = find(recipe)
    target = destination or Path(source.name)
    if target.is_dir():
        target = target / source.name
    if target.exists() and not force:
        fail(f"{target}: exists already; choose another DEST or overwrite it with --force")
    check_place(target, "DEST")
    write_bytes(target, source.read_bytes())
    talk(f"copied to {target}; run it with: {command(source)} {target}")
