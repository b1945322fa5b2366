"""`trivet run`: check a study, run what is not done yet, say what came out. The same command resumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import FAILED, console, emit_json, fail, show, table, talk, verb
from trivet.core.errors import ConfigError, MissingDataError, Problem

if TYPE_CHECKING:
    from trivet.study import Results, Study

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a value of the file, such as training.steps=100; repeatable."
    ),
]


@verb
def run(
    study: Annotated[str, typer.Argument(metavar="STUDY.yaml", help="Study file, or the folder of a study.")],
    out: Annotated[Path | None, typer.Option("--out", help="Study folder; studies/NAME by default.")] = None,
    set_: SetOption = None,
    executor: Annotated[
        str, typer.Option("--executor", help="local, slurm or ray; as the file says by default.", show_default=False)
    ] = "",
    slots: Annotated[int, typer.Option("--slots", help="Runs at the same time; 0: as many as fit.")] = 0,
    data_root: Annotated[Path | None, typer.Option("--data-root", help="Folder to look for data in first.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and plan: runs, BitOPs, expected time.")] = False,
    print_commands: Annotated[
        bool, typer.Option("--print-commands", help="Print one shell command a run instead of running.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome (or the plan) as JSON.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not build the report at the end.")] = False,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Stop at a planned look as soon as the data decide.")
    ] = False,
    looks: Annotated[int, typer.Option("--looks", help="With --until-decided: looks of a new plan.")] = 4,
) -> None:
    """Run a study, or what is left of it: everything is checked first, Ctrl-C stops, the same command resumes."""
    from trivet.study import Study

    _check_executor(executor)
    path = study_file(study)
    if data_root is not None:
        _use_data(data_root)
    try:
        made = Study.from_yaml(path, set_ or (), out)
    except MissingDataError as error:
        raise _placed(error, path) from None
    if print_commands:
        for line in made.commands():
            print(line)
        return
    if dry_run:
        _plan(made, slots, json)
        return
    results = _run(made, executor, slots, until_decided=until_decided, looks=looks)
    _conclude(results, json, report=not no_report)
    if results.exit_code:
        raise typer.Exit(results.exit_code)


def study_file(name: str) -> Path:
    """The file that `name` means; a recipe's bare name is refused with the command that copies it."""
    from trivet.cli.recipes import recipes

    path = Path(name)
    if not path.exists() and not path.suffix and name in recipes():
        fix = f"{name!r} is a recipe; copy it first: trivet cp {name}, then: trivet run {Path(name).name}.yaml"
        raise ConfigError([Problem(name, "", "no file", "a study file", fix)])
    if path.is_dir():
        return path / "study.yaml"
    return path


def _check_executor(name: str) -> None:
    from trivet.core.errors import nearest
    from trivet.study.executors.make import EXECUTORS

    if name and name not in EXECUTORS:
        near = nearest(name, EXECUTORS)
        fix = f"did you mean {near!r}?" if near else ""
        raise ConfigError([Problem("--executor", "", repr(name), ", ".join(EXECUTORS), fix)])


def _placed(error: MissingDataError, path: Path) -> MissingDataError:
    """The same error with the file and the key it comes from, and the data sets that are here where one is named."""
    from trivet.tasks.data import describe

    if not str(error).startswith("data set"):
        return MissingDataError(f"{path}: task.data: {error}")
    here = ", ".join(info.name for info in describe() if info.found)
    return MissingDataError(f"{path}: task.data: {error}\n  data sets on this machine: {here}")


def _use_data(folder: Path) -> None:
    """Let this process and every run look for data in `folder` first."""
    from trivet.tasks.data.base import ROOT_VARIABLE

    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise ConfigError([Problem("--data-root", "", f"{str(folder)!r}, {found}", "a folder with data sets")])
    os.environ[ROOT_VARIABLE] = str(folder.resolve())


def _run(study: Study, executor: str, slots: int, *, until_decided: bool, looks: int) -> Results:
    from trivet.cli.live import progress
    from trivet.study import StudyInterrupted, StudyStopped

    status = study.status()
    in_file_order = sorted(study.plan(), key=lambda run: status.arms.index(run.arm))
    shown = progress(in_file_order, status.records)
    try:
        return study.run(executor, slots=slots, progress=shown, until_decided=until_decided, looks=looks)
    except StudyInterrupted as stop:
        talk(str(stop))
        raise typer.Exit(stop.exit_code) from None
    except StudyStopped as stop:
        fail(str(stop), FAILED)


def _conclude(results: Results, json: bool, *, report: bool) -> None:
    from trivet.cli.outcome import print_outcome
    from trivet.report import summarize
    from trivet.report.build import build

    summary = summarize(results)
    harness = results.harness
    if not json:
        print_outcome(summary)
        if harness is not None:
            show(f"\nwhere the time went: {harness}")
    page = None
    if report:
        talk("drawing the report …")
        page = build(results, None)
    if json:
        extra = {"harness": harness.to_dict() if harness else None, "report": str(page) if page else None}
        emit_json({**summary, **extra})
    elif page is not None:
        print(f"report: {page}")


def _plan(study: Study, slots: int, json: bool) -> None:
    from trivet.cli.estimate import arm_costs
    from trivet.study.capacity import measure_capacity

    runs = study.plan()
    built_in = not all(run.config["task"].get("command") for run in runs)
    if built_in:
        talk("counting BitOPs and timing a few steps …")
    status = study.status()
    costs = {row["name"]: row for row in arm_costs(runs, measure=True)}
    rows, records = [costs[arm] for arm in status.arms], status.records
    parallel = measure_capacity(slots or study.spec.resources.slots).parallel(runs)
    content = _plan_content(study, rows, records, parallel)
    if json:
        emit_json(content)
        return
    _print_plan(content)


def _plan_content(study: Study, rows: list[dict[str, Any]], records: list[Any], slots: int) -> dict[str, Any]:
    from trivet.cli.estimate import basis, expected_seconds

    configs = {run.arm: run.config for run in study.plan()}
    arms: list[dict[str, Any]] = []
    for row in rows:
        own = [record for record in records if record.arm == row["name"]]
        seconds = expected_seconds(row, own, configs[row["name"]])
        bitops, full = row.get("bitops"), row.get("fp32_bitops")
        arms.append(
            {
                "arm": row["name"],
                "planned": len(own),
                "done": sum(record.is_done for record in own),
                "mean_bits": row.get("mean_bits"),
                "bitops": bitops,
                "bitops_of_fp32": bitops / full if bitops and full else None,
                "expected_seconds_per_run": seconds,
            }
        )
    left = [(arm["planned"] - arm["done"], arm["expected_seconds_per_run"]) for arm in arms]
    known = [seconds for _, seconds in left if seconds is not None]
    mean = sum(known) / len(known) if known else None
    total = sum(count * (seconds if seconds is not None else mean or 0.0) for count, seconds in left) / max(slots, 1)
    return {
        "name": study.spec.name,
        "folder": str(study.folder),
        "metric": {"name": study.spec.metric.name, "margin": study.spec.metric.margin},
        "seeds": study.spec.seed_list,
        "slots": slots,
        "runs": {"planned": len(records), "done": sum(record.is_done for record in records)},
        "arms": arms,
        "expected_seconds": total if known else None,
        "estimate": basis(rows, records),
        "notes": study.status().notes,
    }


def _print_plan(content: dict[str, Any]) -> None:
    from trivet.cli.timing import duration

    seeds, runs = content["seeds"], content["runs"]
    margin = content["metric"]["margin"]
    show(
        f"{content['name']}: {runs['planned']} runs = {len(content['arms'])} arms × {len(seeds)} seeds "
        f"({', '.join(map(str, seeds[:10]))}{', …' if len(seeds) > 10 else ''}), {runs['done']} done already, "
        f"{content['slots']} at the same time; folder {content['folder']}",
        f"decided on {content['metric']['name']}, margin {margin:g}\n",
    )
    rows = [
        [
            arm["arm"],
            f"{arm['planned']} ({arm['done']} done)" if arm["done"] else str(arm["planned"]),
            f"{arm['mean_bits']:.2f}" if arm["mean_bits"] else "–",
            f"{arm['bitops']:.3g}" if arm["bitops"] else "–",
            f"{arm['bitops_of_fp32']:.2%}" if arm["bitops_of_fp32"] else "–",
            duration(arm["expected_seconds_per_run"]) if arm["expected_seconds_per_run"] is not None else "?",
        ]
        for arm in content["arms"]
    ]
    columns = ["arm", "runs", "mean bits", "BitOPs per run, counted", "/ fp32", "time per run, estimate"]
    show(table(columns, rows))
    expected = content["expected_seconds"]
    if expected is not None:
        show(f"\nexpected time: about {duration(expected)} (an estimate, {content['estimate']})")
    else:
        show(f"\nexpected time: {content['estimate']}")
    for note in content["notes"]:
        show(f"! {note}")
    console().print("nothing was run", style="dim")
