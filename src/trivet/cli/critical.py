"""`trivet critical`: where the critical learning period ends, from a finished study of deficits or probing windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import emit_json, show, table, talk, verb

if TYPE_CHECKING:
    from trivet.stats import CriticalPeriod
    from trivet.study import Results


@verb
def critical(
    study: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a study whose arms differ in a deficit.")],
    margin: Annotated[float, typer.Option("--margin", help="Largest damage that does not matter; the study's.")] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Estimate how long low precision early in training does no damage that matters, with an interval."""
    from trivet.study import Results

    results = Results.load(study)
    found, lost = analyse(results, margin)
    if json:
        emit_json({**found.to_dict(), "sentence": found.sentence, "seeds_lost": lost})
        return
    _print(found, lost, results.spec.metric.name)


def analyse(results: Results, margin: float = 0.0) -> tuple[CriticalPeriod, int]:
    """The critical period of a study, and how many seeds were left out because a run did not finish.

    The arms are read from their configuration: exactly one arm has no deficit; the others have one stretch each, either
    all from step 0 (length sweep) or all of one length (sliding window).

    Raises:
        ValueError: The arms are something else, or too few runs have finished.
    """
    from trivet.stats import critical_period
    from trivet.study.plan import plan

    where = results.folder
    stretches = {run.arm: _stretch(run.config["precision"]) for run in plan(results.spec)}
    plain = [arm for arm in results.arms if stretches[arm] is None]
    marked = {arm: found for arm in results.arms if (found := stretches[arm]) is not None}
    if len(plain) != 1 or len(marked) < 2:
        raise ValueError(
            f"{where}: {len(plain)} arm(s) without and {len(marked)} with one deficit or window; allowed: exactly 1 "
            "without and at least 2 with. Copy a recipe: trivet cp --list"
        )
    starts, lengths = ({found[i] for found in marked.values()} for i in (0, 1))
    if starts == {0}:
        kind, x = "length", {arm: length for arm, (_, length) in marked.items()}
    elif len(lengths) == 1:
        kind, x = "start", {arm: start for arm, (start, _) in marked.items()}
    else:
        raise ValueError(f"{where}: the deficits neither all start at step 0 nor all have one length; split the study")
    metric = results.spec.metric
    values = {arm: results.values(metric.name, arm) for arm in results.arms}
    seeds = [seed for seed in results.spec.seed_list if all(seed in found for found in values.values())]
    found = critical_period(
        [float(position) for position in x.values()],
        [[values[arm][seed] for seed in seeds] for arm in x],
        [values[plain[0]][seed] for seed in seeds],
        margin=margin or metric.margin,
        kind=kind,
        maximize=metric.maximize,
    )
    return found, len(results.spec.seed_list) - len(seeds)


def _stretch(precision: dict[str, Any]) -> tuple[int, int] | None:
    """Start and length of the one deficit or window of a run; none where there is none, or several."""
    found = [item for item in [precision.get("deficit"), *(precision.get("windows") or ())] if item]
    return (found[0]["start"], found[0]["length"]) if len(found) == 1 else None


def _print(found: CriticalPeriod, lost: int, metric: str) -> None:
    rows = [
        [f"{item.x:,.0f}", f"{item.mean:+.4f}", f"{item.low:+.4f}", f"{item.high:+.4f}", f"{item.fitted:+.4f}"]
        for item in found.damages
    ]
    name = "deficit length, steps" if found.kind == "length" else "start of the window, step"
    columns = [name, f"damage in {metric}", "lower limit", "upper limit", "made monotone"]
    show(table(columns, rows), "", found.sentence)
    if lost:
        talk(f"{lost} seed(s) left out: a run of theirs has not finished")
