"""`trivet audit`: is this training what it seems? Checks of seconds, before any statistics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.cli.child import ask
from trivet.cli.console import FAILED, emit_json, show, table, talk, verb
from trivet.cli.options import StudySetOption

VERDICT = {True: "ok", False: "FOUND", None: "not done"}


@verb
def audit(
    target: Annotated[
        str, typer.Argument(metavar="STUDY.yaml|CONFIG.yaml", help="A study, a run folder, or a run's config.yaml.")
    ],
    arm: Annotated[str, typer.Option("--arm", help="Arm of the study; the first by default.")] = "",
    steps: Annotated[int, typer.Option("--steps", min=2, help="Steps that each audit trains.")] = 6,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the run; the first by default.")] = None,
    set_: StudySetOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Audit the first steps of a run: aliased tensors, gradient, repeat, resume, order of the data.

    Exit code 1 when something is found. In a script of your own: `with trivet.audit.alias() as a: …`.
    """
    from trivet.core.config import build
    from trivet.tasks.config import RunConfig

    name, config = _configuration(target, arm, set_ or [])
    if seed is not None:
        config = config | {"seed": seed}
    run = build(RunConfig, config, file=target)
    if run.task.is_command:
        raise ValueError(
            f"{target}: the task is a command, whose tensors trivet cannot see; put `with trivet.audit.alias() as a:` "
            "around forward and backward in the script"
        )
    run.check(file=target)
    talk(f"auditing {name}, seed {run.seed} …")
    request = {"config": config, "steps": steps}
    answer = ask("trivet.cli.audits", request, "the run cannot be audited", run.environment.variables())
    found = [finding for check in answer["checks"] for finding in check["findings"]]
    content = {"run": name, "seed": run.seed, **answer, "found": len(found)}
    if json:
        emit_json(content)
    else:
        _print(content)
    if found:
        raise typer.Exit(FAILED)


def _configuration(target: str, arm: str, changes: list[str]) -> tuple[str, dict[str, Any]]:
    """What is audited, in words, and the run's configuration."""
    from trivet.cli.run import study_file
    from trivet.core.config import load_yaml, set_key
    from trivet.core.errors import unknown_name
    from trivet.study.plan import plan
    from trivet.study.spec import StudySpec

    path = study_file(target)
    if Path(target).is_dir() and not path.exists():
        path = Path(target) / "config.yaml"
    content = load_yaml(path)
    if "base" not in content and "task" in content:
        if arm:
            raise ValueError(f"`--arm {arm}`: {path} is a run, which has no arms; give a study file")
        for assignment in changes:
            content = set_key(content, assignment)
        return str(path), content
    spec = StudySpec.from_yaml(path, changes)
    known = [one.name for one in spec.arms()]
    if arm and arm not in known:
        raise ValueError(unknown_name("arm", arm, known))
    chosen = arm or known[0]
    first = next(run for run in plan(spec) if run.arm == chosen and run.seed == spec.seed_list[0])
    return f"{path}, arm {chosen!r}", dict(first.config)


def _print(content: Mapping[str, Any]) -> None:
    rows = [
        [check["check"], VERDICT[check["ok"]], check["summary"], f"{check['seconds']:.1f} s"]
        for check in content["checks"]
    ]
    show(table(["audit", "", "what was seen", "took"], rows, left=(0, 1, 2)))
    for check in content["checks"]:
        for note in check["notes"]:
            print(f"note: {check['check']}: {note}")
    for check in content["checks"]:
        for finding in check["findings"]:
            print(f"\n{check['check']}: {finding['what']}")
            print(f"  where: {finding['where']}\n  size: {finding['size']}\n  do: {finding['advice']}")
    if not content["found"]:
        talk("\nnothing found; how to audit a loop of your own: docs/audit.md")
