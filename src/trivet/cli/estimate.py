"""What a study will cost before it runs: BitOPs of each arm, and the time it will take, labelled with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trivet.cli.child import ask
from trivet.core.environment import EnvironmentConfig

if TYPE_CHECKING:
    from trivet.study import PlannedRun, Record


def count(request: Mapping[str, Any], variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Ask `trivet.cli.costs`, in a process of its own.

    Args:
        request: See that module.
        variables: Environment variables to add, such as thread counts.

    Raises:
        ChildError: The process failed; the message is its last word.
    """
    return ask("trivet.cli.costs", request, "the cost cannot be counted", variables)


def arm_costs(runs: Sequence[PlannedRun], *, measure: bool) -> list[dict[str, Any]]:
    """BitOPs (and the measured time of a few steps) of one run of every arm; commands have neither.

    Returns:
        One mapping an arm in the order of the study file; see `trivet.cli.costs`.
    """
    first: dict[str, PlannedRun] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        first.setdefault(run.arm, run)
    groups: dict[str, list[PlannedRun]] = {}
    for run in first.values():
        if not run.config["task"].get("command"):
            groups.setdefault(json.dumps(run.config["environment"], sort_keys=True), []).append(run)
    found: dict[str, dict[str, Any]] = {arm: {"name": arm} for arm in first}
    for environment, members in groups.items():
        request = {"runs": [{"name": run.arm, "config": run.config} for run in members], "measure": measure}
        variables = EnvironmentConfig(**json.loads(environment)).variables()
        for row in count(request, variables)["runs"]:
            found[row["name"]] = row
    return list(found.values())


def expected_seconds(row: Mapping[str, Any], records: Sequence[Record], config: Mapping[str, Any]) -> float | None:
    """Wall seconds one run of an arm will take: measured runs of the arm first, else the timed steps, else None.

    Args:
        row: The arm's row of `arm_costs`.
        records: Runs of the arm.
        config: Configuration of one of its runs.
    """
    done = [record.seconds for record in records if record.state == "finished"]
    if done:
        return sum(done) / len(done)
    if "step_seconds" not in row:
        return None
    training = config["training"]
    every = training.get("evaluate_every") or 0
    evaluations = 1 + (training["steps"] // every if every else 0)
    return training["steps"] * row["step_seconds"] + evaluations * row["overhead_seconds"]


def basis(rows: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> str:
    """How the expected time was found, in words."""
    done = sum(record.state == "finished" for record in records)
    timed = sum("step_seconds" in row for row in rows)
    if done and timed:
        return f"from {done} finished runs and, where an arm has none, a few timed steps"
    if done:
        return f"from the {done} finished runs of this study"
    if timed:
        return "from a few timed steps of each arm, running alone on this machine"
    return "nothing to estimate it from yet; it is known once a run has finished"
