"""Which metrics a run is known to report, so that a study on a metric that never comes is refused at once.

What a script logs is known only when it has run; `unreported_text` then says that the study's metric did not come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trivet.core.errors import Problem, nearest
from trivet.study.arms import Arm


def known_metrics(arm: Arm) -> tuple[str, ...]:
    """Names of the metrics that every run of an arm reports; empty when that cannot be known.

    A command without `metrics` may log anything by `trivet.run()`, so nothing is known of it.
    """
    from trivet.audit.curvature_config import CurvatureConfig
    from trivet.tasks.task_config import task_class

    task = arm.config["task"]
    known = task_class(task["name"]).reported or tuple(task.get("metrics", ()))
    at = arm.config.get("curvature", {}).get("at", ())
    return (*known, *CurvatureConfig(at=tuple(at)).reported)


def metric_problems(metric: str, arms: Sequence[Arm], file: str) -> list[Problem]:
    """A problem when some arm is known not to report the study's metric; at most one."""
    for arm in arms:
        names = known_metrics(arm)
        if names and metric not in names:
            close = nearest(metric, names)
            fix = f"did you mean {close!r}?" if close else ""
            found = f"{metric!r}, which the arm {arm.name!r} does not report"
            return [Problem(file, "metric.name", found, ", ".join(names), fix)]
    return []


def unreported_text(metric: str, reported: Iterable[str]) -> str:
    """One line on runs that finished without the study's metric.

    Examples:
        >>> unreported_text("acc", ["accuracy"])
        "the metric acc was not reported; reported: accuracy; did you mean 'accuracy'?"
    """
    names = sorted(set(reported))
    part_of = [name for name in names if metric and (metric.lower() in name.lower() or name.lower() in metric.lower())]
    close = nearest(metric, names) or (part_of[0] if len(part_of) == 1 else None)
    hint = f"; did you mean {close!r}?" if close else ""
    return f"the metric {metric} was not reported; reported: {', '.join(names) or 'none'}{hint}"
