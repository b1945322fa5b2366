"""`trivet doctor`: is everything here that a study needs, and which settings move the result of a training?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import FAILED, emit_json, show, table, talk, verb

if TYPE_CHECKING:
    from trivet.cli.checks import Check
    from trivet.cli.moving import Row

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@verb
def doctor(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="Your own script, after `--`.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A third of the settings, 30 steps.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every setting, 150 steps; minutes.")] = False,
    no_smoke: Annotated[bool, typer.Option("--no-smoke", help="Leave out the small training of the checks.")] = False,
    no_checks: Annotated[bool, typer.Option("--no-checks", help="Measure the settings only.")] = False,
    no_settings: Annotated[bool, typer.Option("--no-settings", help="Check the machine only.")] = False,
    steps: Annotated[
        int, typer.Option("--steps", min=0, help="Stop COMMAND after so many optimizer steps; 0: let it end.")
    ] = 100,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check this machine, and measure which settings of it move a training; or do that with a COMMAND of yours.

    A small network is trained under each setting, each in a process of its own: threads, vector instructions, library
    branches, layout, order, precision. What must not change a bit is asserted. Exit code 1 if something fails.

    `trivet doctor -- python train.py` runs your script, unmodified, under each setting that can be made from outside.
    """
    if quick and everything:
        raise ValueError("`--quick` and `--all` exclude each other; give one of them")
    group = "quick" if quick else "all" if everything else "usual"
    if command:
        from trivet.cli.doctor_script import examine

        if no_checks or no_settings or no_smoke:
            raise ValueError("`--no-…` options do not apply to a command; leave them out")
        if not examine(command, group=group, steps=steps, json=json):
            raise typer.Exit(FAILED)
        return
    if no_checks and no_settings:
        raise ValueError("`--no-checks --no-settings` leaves nothing to do; give one of them at most")
    checks: list[Check] = [] if no_checks else _checked(smoke=not no_smoke, quiet=json)
    rows: list[Row] = []
    broken: list[str] = []
    if not no_settings:
        from trivet.cli.moving import broken_controls, measured

        rows = measured(group)
        broken = broken_controls(rows)
    failed = [check.name for check in checks if check.status == "fail"]
    if json:
        emit_json(_content(checks, rows, broken))
    elif rows:
        _print(rows, broken)
    if failed or broken or any(row.problem.startswith("failed") for row in rows):
        raise typer.Exit(FAILED)


def _checked(*, smoke: bool, quiet: bool) -> list[Check]:
    """Run the checks, and print each unless `quiet`."""
    from trivet.cli.checks import all_checks
    from trivet.cli.console import console

    screen = None if quiet else console()
    found: list[Check] = []
    for check in all_checks(smoke=smoke):
        found.append(check)
        if screen is not None:
            from rich.text import Text

            line = Text.assemble((f"{check.status:<5}", STYLES[check.status]), f"{check.name:<18}", check.found)
            screen.print(line, soft_wrap=True)
            if check.fix:
                screen.print(Text(f"{'':23}→ {check.fix}", style="yellow"), soft_wrap=True)
    if screen is not None:
        failed, warned = (sum(check.status == status for check in found) for status in ("fail", "warn"))
        talk(f"{len(found)} checks: {failed} failed, {warned} with a warning")
    return found


def _content(checks: Sequence[Check], rows: Sequence[Row], broken: Sequence[str]) -> dict[str, Any]:
    from trivet.cli.moving import readings

    failed = any(check.status == "fail" for check in checks) or any(row.problem.startswith("failed") for row in rows)
    return {
        "ok": not failed and not broken,
        "checks": [check.to_dict() for check in checks],
        "settings": [row.to_dict() for row in rows],
        "broken_controls": list(broken),
        "readings": readings(rows) if rows else [],
    }


def _print(rows: Sequence[Row], broken: Sequence[str]) -> None:
    from trivet.cli.moving import absent, advice, columns, readings

    print()
    show(table(*columns(rows), left=(0, 1)))
    for line in absent(rows):
        print(line)
    print("\nL2: distance of the weights after a step, relative to their size; path: to the way they went in all;")
    print("churn: share of test images put into another class. One training each, on 1 thread unless it says so.\n")
    for line in readings(rows):
        print(f"· {line}")
    print("\nwhat to do about those that move the result:")
    for name, text in advice(rows):
        print(f"  {name}: {text}")
    for line in broken:
        talk(f"\n!!! {line}")
