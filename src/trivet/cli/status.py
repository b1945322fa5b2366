"""`trivet status`: how far a study is, run by run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import emit_json, show, table, talk, verb

if TYPE_CHECKING:
    from trivet.study import Record, Results
    from trivet.study.record import State

STATES: tuple[State, ...] = ("finished", "diverged", "failed", "unreadable", "running", "pending")


@verb
def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Study folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print every run as JSON.")] = False,
) -> None:
    """Show how far a study is: runs by arm and state, what failed and why."""
    from trivet.study import Results

    results = Results.load(folder)
    if json:
        emit_json(as_json(results))
        return
    print_status(results)


def as_json(results: Results) -> dict[str, Any]:
    """Every run of a study as plain values."""
    counts = Counter(record.state for record in results.records)
    return {
        "name": results.spec.name,
        "folder": str(results.folder),
        "runs": {state: counts[state] for state in STATES},
        "records": [_record(record, results.folder) for record in results.records],
    }


def _record(record: Record, folder: Path) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "arm": record.arm,
        "levels": dict(record.levels),
        "seed": record.seed,
        "state": record.state,
        "metrics": dict(record.metrics),
        "steps": record.steps,
        "bitops": record.bitops,
        "seconds": record.seconds,
        "train_seconds": record.train_seconds,
        "reason": record.reason,
        "folder": str(record.folder),
    }


def print_status(results: Results) -> None:
    """Runs by arm and state, then what failed and why."""
    by_arm = {arm: Counter(r.state for r in results.records if r.arm == arm) for arm in results.arms}
    used = [state for state in STATES if any(counts[state] for counts in by_arm.values())]
    rows = [
        [arm, *(str(counts[state] or "–") for state in used), str(counts.total())] for arm, counts in by_arm.items()
    ]
    show(table(["arm", *used, "planned"], rows))
    lost = [record for record in results.records if record.state in ("failed", "unreadable", "diverged")]
    if lost:
        print()
        shown = [[r.run_id, r.arm, str(r.seed), r.state, r.reason or "the loss became NaN or infinite"] for r in lost]
        show(table(["run", "arm", "seed", "state", "reason"], shown, left=(0, 1, 3, 4)))
        talk(f"\nthe log of each run: {results.folder}/RUN/log.txt")
    done = sum(record.is_done for record in results.records)
    talk(f"\n{results.spec.name}: {done} of {len(results.records)} runs are done; folder {results.folder}")
    if done < len(results.records):
        talk(f"go on with: trivet run {results.folder / 'study.yaml'} --out {results.folder}")
