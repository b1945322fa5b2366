"""`trivet doctor`: is everything here that a study needs? To be pasted into an issue."""

from __future__ import annotations

from typing import Annotated

import typer

from trivet.cli.console import FAILED, emit_json, talk, verb

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@verb
def doctor(
    no_smoke: Annotated[bool, typer.Option("--no-smoke", help="Leave out the small training.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check this machine: versions, hardware, folders, data, a few seconds of training; exit 1 if something fails."""
    from trivet.cli.checks import Check, all_checks
    from trivet.cli.console import console

    screen = None if json else console()
    found: list[Check] = []
    for check in all_checks(smoke=not no_smoke):
        found.append(check)
        if screen is not None:
            from rich.text import Text

            line = Text.assemble((f"{check.status:<5}", STYLES[check.status]), f"{check.name:<18}", check.found)
            screen.print(line, soft_wrap=True)
            if check.fix:
                screen.print(Text(f"{'':23}→ {check.fix}", style="yellow"), soft_wrap=True)
    failed = sum(check.status == "fail" for check in found)
    warned = sum(check.status == "warn" for check in found)
    if json:
        emit_json({"ok": not failed, "checks": [check.to_dict() for check in found]})
    else:
        talk(f"{len(found)} checks: {failed} failed, {warned} with a warning")
    if failed:
        raise typer.Exit(FAILED)
