"""`trivet compare`: verdicts on a study from the records that are there, without training anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.cli.console import NOT_ESTABLISHED, console, emit_json, verb

if TYPE_CHECKING:
    from trivet.study import Record, Results
    from trivet.study.record import State

WORST_FIRST: tuple[State, ...] = ("failed", "unreadable", "diverged", "pending", "running")
"""What a mean over several runs is when one of them is not finished."""


@verb
def compare(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Study folder.")],
    factor: Annotated[
        str, typer.Option("--factor", help="Compare the levels of this factor, averaged over the others.")
    ] = "",
    baseline: Annotated[str, typer.Option("--baseline", help="Arm (or level) to compare with; the first one.")] = "",
    metric: Annotated[str, typer.Option("--metric", help="Another metric than the study's.")] = "",
    margin: Annotated[
        float | None,
        typer.Option("--margin", help="Smallest difference that matters; the study's, or 0 with --metric."),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 3 unless every comparison is decided (different or equivalent).")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the comparisons as JSON.")] = False,
) -> None:
    """Compare the arms of a study, paired by seed: different, equivalent or undecided, and how many seeds help."""
    from trivet.cli.outcome import arms, notes, print_verdicts
    from trivet.report import summarize

    results = _with_metric(_load(folder), metric, margin)
    if factor:
        results = by_factor(results, factor)
    if len(results.arms) < 2:
        raise ValueError(f"{folder}: there is one arm, {results.arms[0]!r}; a comparison needs two or more")
    summary = summarize(baseline_first(results, baseline))
    if json:
        emit_json({key: summary[key] for key in ("format", "study", "notices", "comparisons", "rounding", "arms")})
    else:
        for notice in summary["notices"]:
            console().print(f"! {notice}", style="yellow")
        print_verdicts(summary)
        print()
        console().print(arms(summary))
        for line in notes(summary):
            console().print(line, style="dim")
    if exit_code and any(row["label"] == "undecided" for row in summary["comparisons"]):
        raise typer.Exit(NOT_ESTABLISHED)


def _load(folder: Path) -> Results:
    from trivet.study import Results

    return Results.load(folder)


def _with_metric(results: Results, metric: str, margin: float | None) -> Results:
    """The same records, judged by another metric or margin."""
    from trivet.core.errors import unknown_name
    from trivet.study import MetricSpec
    from trivet.study import Results as Made

    old = results.spec.metric
    if not metric and margin is None:
        return results
    known = dict.fromkeys([old.name, *(name for record in results.records for name in record.metrics)])
    if metric and metric not in known:
        raise ValueError(unknown_name("metric", metric, known))
    name = metric or old.name
    fallback = old.margin if name == old.name else 0.0
    goal = old.goal if name == old.name else "auto"
    spec = MetricSpec(name=name, margin=fallback if margin is None else margin, goal=goal)
    return Made(dataclasses.replace(results.spec, metric=spec), results.records, results.folder, notes=results.notes)


def by_factor(results: Results, factor: str) -> Results:
    """The study with one factor only: a seed's value is its mean over the combinations of all other factors.

    A seed of a level counts only when every one of those combinations has finished.

    Raises:
        ValueError: There is no such factor.
    """
    from trivet.core.errors import unknown_name
    from trivet.study import Results as Made

    if factor not in results.spec.factors:
        raise ValueError(unknown_name("factor", factor, results.spec.factors))
    records: list[Record] = []
    for level in results.spec.factors[factor]:
        for seed in results.spec.seed_list:
            group = [r for r in results.records if r.levels.get(factor) == level and r.seed == seed]
            if group:
                records.append(_mean_record(group, factor, level))
    spec = dataclasses.replace(results.spec, factors={factor: results.spec.factors[factor]})
    return Made(spec, records, results.folder, notes=results.notes)


def _mean_record(group: list[Record], factor: str, level: str) -> Record:
    states = [record.state for record in group]
    worst = next((state for state in WORST_FIRST if state in states), None)
    count = len(group)
    names = set.intersection(*(set(record.metrics) for record in group))
    return dataclasses.replace(
        group[0],
        arm=level,
        levels={factor: level},
        state=worst or "finished",
        metrics={} if worst else {name: sum(record.metrics[name] for record in group) / count for name in names},
        bitops=sum(record.bitops for record in group) / count,
        seconds=sum(record.seconds for record in group) / count,
        train_seconds=sum(record.train_seconds for record in group) / count,
    )


def baseline_first(results: Results, baseline: str) -> Results:
    """The same results with `baseline` as the first arm, which is the one that the others are compared with.

    Raises:
        ValueError: There is no such arm.
    """
    from trivet.core.errors import unknown_name
    from trivet.study import Results as Made
    from trivet.study.arms import arm_name, combinations

    if not baseline:
        return results
    factors = results.spec.factors
    chosen = {arm_name(levels): levels for levels in combinations(factors)}
    if baseline not in chosen:
        raise ValueError(unknown_name("arm", baseline, chosen))
    first = chosen[baseline]
    ordered = {name: {first[name]: levels[first[name]], **levels} for name, levels in factors.items()}
    return Made(
        dataclasses.replace(results.spec, factors=ordered), results.records, results.folder, notes=results.notes
    )
