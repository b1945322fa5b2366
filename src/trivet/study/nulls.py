"""The null arm of a study: the one that differs from the baseline by rounding alone, and every other arm against it.

A study file names it (`null_arm: {noise: ulp}`), or it is recognized: the arm that is the baseline but for
`noise: {kind: rounding, bits: 24}`, the precision of float32.

Not covered: several null arms of different strength; a dose-response is a study of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trivet.core.errors import Problem, nearest
from trivet.study.arms import arm_name, combinations, patched, sections

if TYPE_CHECKING:
    from trivet.stats import AgainstNull, NullArm
    from trivet.study.results import ArmComparison, Results
    from trivet.study.spec import StudySpec

ROUNDING: Mapping[str, Any] = {"kind": "rounding", "bits": 24, "target": "gradients", "start": 0, "length": 0}
"""The noise by which a null arm is recognized; what a level leaves out is as here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounding:
    """What rounding alone does in a study, and every other arm's effect against it."""

    null: NullArm
    """The null arm."""
    arms: Mapping[str, AgainstNull]
    """Arm → its effect against the null arm's; arms with too few pairs are left out."""


def null_arm_name(spec: StudySpec) -> str:
    """Name of the null arm against the first arm; empty when there is none.

    Examples:
        >>> from trivet.study.spec import MetricSpec, StudySpec
        >>> levels = {"none": {}, "null": {"kind": "rounding"}, "order": {"kind": "order"}}
        >>> null_arm_name(StudySpec(name="s", base={}, factors={"noise": levels}, metric=MetricSpec(name="loss")))
        'null'
    """
    arms = list(combinations(spec.factors))
    first = arms[0]
    if spec.null_arm:
        named = {**first, **{name: level for name, level in spec.null_arm.items() if name in first}}
        return arm_name(named) if named in arms and named != first else ""
    names = sections()
    plain, noise = _split(patched(spec.base, spec.factors, first, names))
    if noise.get("kind", "none") != "none":
        return ""
    for levels in arms[1:]:
        other, noise = _split(patched(spec.base, spec.factors, levels, names))
        if other == plain and noise.get("kind") == "rounding" and {**ROUNDING, **noise} == ROUNDING:
            return arm_name(levels)
    return ""


def _split(config: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """A run's configuration without its noise, and the noise."""
    noise = config.get("noise")
    rest = {name: value for name, value in config.items() if name != "noise"}
    return rest, noise if isinstance(noise, Mapping) else {}


def rounding(results: Results, family: Sequence[ArmComparison]) -> Rounding | None:
    """Hold every comparison with the first arm against the null arm.

    Args:
        results: Records of the study.
        family: What `compare_all` found; its p-values are used.

    Returns:
        None without a null arm, or while it has fewer than 2 pairs.
    """
    from trivet.stats import against_null, null_arm

    name, metric = null_arm_name(results.spec), results.spec.metric
    if not name or not family or family[0].arm_a != results.arms[0]:
        return None
    base = results.values(metric.name, family[0].arm_a)
    values, seeds = _shared(results, base, name)
    if len(seeds) < 2:
        return None
    null = null_arm([base[seed] for seed in seeds], values, name=name, margin=metric.margin)
    found: dict[str, AgainstNull] = {}
    for item in family:
        values, seeds = _shared(results, base, item.arm_b)
        if item.arm_b == name or len(seeds) < 2:
            continue
        made = against_null(
            [base[seed] for seed in seeds],
            values,
            null,
            names=(item.arm_a, item.arm_b),
            metric=metric.name,
            adjusted_p=item.verdict.p,
        )
        if results.looks is not None:
            text = " It is not one of the planned looks, and its error is not held when they have ended the study."
            made = dataclasses.replace(made, sentence=made.sentence + text)
        found[item.arm_b] = made
    return Rounding(null=null, arms=found)


def _shared(results: Results, base: Mapping[int, float], arm: str) -> tuple[list[float], list[int]]:
    """Outcomes of an arm on the seeds that it shares with the baseline, and these seeds."""
    values = results.values(results.spec.metric.name, arm)
    seeds = [seed for seed in results.spec.seed_list if seed in base and seed in values]
    return [values[seed] for seed in seeds], seeds


def null_problems(named: Any, factors: Mapping[str, Mapping[str, Any]], file: str) -> list[Problem]:
    """What is wrong with the `null_arm` of a study file."""
    if not isinstance(named, Mapping):
        return []  # refused with the type
    problems: list[Problem] = []
    for factor, level in named.items():
        if str(factor) not in factors:
            problems.append(_unknown(file, "null_arm", str(factor), factors))
        elif str(level) not in factors[str(factor)]:
            problems.append(_unknown(file, f"null_arm.{factor}", str(level), factors[str(factor)]))
    if named and not problems:
        firsts = {factor: next(iter(levels)) for factor, levels in factors.items()}
        if all(firsts[str(factor)] == str(level) for factor, level in named.items()):
            allowed = "another level than the first, which is the baseline"
            problems.append(Problem(file, "null_arm", arm_name(firsts), allowed))
    return problems


def _unknown(file: str, key: str, found: str, allowed: Mapping[str, Any]) -> Problem:
    close = nearest(found, allowed)
    return Problem(file, key, repr(found), ", ".join(allowed) or "none", f"did you mean {close!r}?" if close else "")
