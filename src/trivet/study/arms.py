"""Arms: every combination of factor levels, laid over the base and resolved to a complete run configuration.

Pure functions of plain values. A problem that shows up in a resolved arm is reported at the key of the study
file that caused it: the level whose patch holds the key, or else the base.

Not covered: partial designs (fractions of the full grid), levels that depend on each other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trivet.core.config import build, canonical_json, field_names, merge, to_plain
from trivet.core.errors import ConfigError, MissingDataError, MissingExtraError, Problem, TrivetError, nearest

SEPARATOR = " · "
"""Stands between the levels in the name of an arm."""

MAX_RUNS = 100_000
"""Largest study; a larger one is almost surely a slip."""

Patch = Mapping[str, Any]
Factors = Mapping[str, Mapping[str, Patch]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One combination of levels.

    Examples:
        >>> Arm(name="RR", levels={"precision": "RR"}, config={}).levels["precision"]
        'RR'
    """

    name: str
    """Levels joined by " · "; "base" when there is no factor."""
    levels: Mapping[str, str]
    """Factor → level."""
    config: Mapping[str, Any]
    """The run configuration, complete and plain, without its seed."""


def sections() -> tuple[str, ...]:
    """Sections of a run configuration, in order."""
    from trivet.tasks.config import RunConfig

    return tuple(item.name for item in dataclasses.fields(RunConfig) if item.name != "seed")


def placed_assignment(assignment: str, tops: Sequence[str]) -> str:
    """`dotted.key=value` of a command line with its place in a study file: a section lies in `base`.

    Args:
        assignment: As it was given.
        tops: Keys at the top of a study file.

    Raises:
        ConfigError: The key begins with neither a section nor a key of the file; says which was meant.

    Examples:
        >>> placed_assignment("training.steps=3", ["base", "seeds"])
        'base.training.steps=3'
        >>> placed_assignment("trainning.steps=3", ["base", "seeds"])
        Traceback (most recent call last):
        ...
        trivet.core.errors.ConfigError: --set: trainning.steps: found an unknown key; ... mean 'training.steps'?
    """
    name, equals, _ = assignment.partition("=")
    first, dot, rest = name.strip().partition(".")
    if first in sections():
        return f"base.{assignment.strip()}"
    if first in tops or not first or not equals:
        return assignment
    from trivet.tasks.config import RunConfig

    close = nearest(first, [*sections(), *tops])
    inside = [f"{section}.{key}" for section in sections() for key in field_names(RunConfig, section)]
    alone = next((key for key in inside if key.partition(".")[2] == first), None)  # its section was forgotten
    meant = alone or (f"{close}{dot}{rest}" if close else None)
    fix = f"did you mean {meant!r}?" if meant else ""
    raise ConfigError([Problem("--set", name.strip(), "an unknown key", ", ".join([*sections(), *tops]), fix)])


def arm_name(levels: Mapping[str, str]) -> str:
    """Name of an arm.

    Examples:
        >>> arm_name({"precision": "RR", "environment": "one-thread"}), arm_name({})
        ('RR · one-thread', 'base')
    """
    return SEPARATOR.join(levels.values()) or "base"


def count_arms(factors: Factors) -> int:
    """Number of combinations, without making them."""
    return math.prod(len(levels) for levels in factors.values())


def combinations(factors: Factors) -> Iterator[dict[str, str]]:
    """Every combination of levels; the last factor changes fastest.

    Examples:
        >>> [arm_name(levels) for levels in combinations({"a": {"x": {}, "y": {}}, "b": {"1": {}}})]
        ['x · 1', 'y · 1']
    """
    for choice in itertools.product(*(levels for levels in factors.values())):
        yield dict(zip(factors, choice, strict=True))


def patched(base: Patch, factors: Factors, levels: Mapping[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    """`base` with the patch of each chosen level over it.

    Args:
        base: Sections of a run configuration, as far as the file gives them.
        factors: Factor → level → patch. A factor named like a section patches that section, any other
            one the whole base.
        levels: Factor → chosen level.
        names: Names of the sections.

    Examples:
        >>> factors = {"training": {"long": {"steps": 9}}}
        >>> patched({"training": {"steps": 5}}, factors, {"training": "long"}, ("training",))
        {'training': {'steps': 9}}
    """
    result = dict(base)
    for factor, level in levels.items():
        result = merge(result, whole_patch(factor, factors[factor][level], names))
    return result


def whole_patch(factor: str, patch: Patch, names: tuple[str, ...]) -> dict[str, Any]:
    """A level's patch written as a patch of the whole base."""
    return {factor: dict(patch)} if factor in names else dict(patch)


def resolve(base: Patch, factors: Factors, *, file: str = "") -> tuple[list[Arm], list[Problem]]:
    """Build the run configuration of every arm.

    Returns:
        The arms that are sound, and every problem found: refused values at the key that caused them, and
        arms that come out equal.
    """
    from trivet.tasks.config import RunConfig

    names = sections()
    arms: list[Arm] = []
    problems: dict[tuple[str, str], Problem] = {}
    for levels in combinations(factors):
        mapping = patched(base, factors, levels, names)
        if "seed" in mapping:
            key = _origin("seed", base, factors, levels, names)
            fix = "write `seeds:` at the top of the file; all arms run the same seeds"
            problems.setdefault((key, "seed"), Problem(file, key, "a seed", ", ".join(names), fix))
            continue
        try:
            config = to_plain(build(RunConfig, {**mapping, "seed": 0}, file=file).pinned())
        except ConfigError as error:
            for problem in error.problems:
                placed = dataclasses.replace(problem, key=_origin(problem.key, base, factors, levels, names))
                if placed.allowed.endswith(", seed"):  # `seed` is a key of a run, not of a study's base or levels
                    fix = "" if placed.fix == "did you mean 'seed'?" else placed.fix
                    placed = dataclasses.replace(placed, allowed=placed.allowed.removesuffix(", seed"), fix=fix)
                problems.setdefault((placed.key, placed.allowed), placed)
            continue
        del config["seed"]
        arms.append(Arm(name=arm_name(levels), levels=levels, config=config))
    return arms, [*problems.values(), *_equal_arms(arms, file)]


def check(arms: Iterable[Arm], base: Patch, factors: Factors, *, file: str = "") -> list[Problem]:
    """Ask each arm's configuration what would keep it from running: unknown models, schedules that do not fit.

    Arms that share task, training and precision are asked once.

    Returns:
        Every problem, at the key that caused it.

    Raises:
        MissingDataError: Data are not on this machine, and there is no other problem.
        MissingExtraError: An optional package is needed, and there is no other problem.
    """
    from trivet.tasks.config import RunConfig

    names = sections()
    asked: set[str] = set()
    problems: dict[tuple[str, str], Problem] = {}
    missing: TrivetError | None = None
    for arm in arms:
        content = {name: value for name, value in arm.config.items() if name != "environment"}
        key = canonical_json(content)
        if key in asked:
            continue
        asked.add(key)
        try:
            build(RunConfig, {**arm.config, "seed": 0}).check(file=file, read_data=True)
        except ConfigError as error:
            for problem in error.problems:
                placed = dataclasses.replace(problem, key=_origin(problem.key, base, factors, arm.levels, names))
                problems.setdefault((placed.key, placed.found), placed)
        except (MissingDataError, MissingExtraError) as error:
            missing = missing or error
    if missing is not None and not problems:
        raise missing
    return list(problems.values())


def _origin(key: str, base: Patch, factors: Factors, levels: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Key in the study file of the value that a resolved configuration has at `key`."""
    parts = key.split(".") if key else []
    for factor, level in reversed(list(levels.items())):
        if parts and _holds(whole_patch(factor, factors[factor][level], names), parts):
            rest = parts[1:] if factor in names else parts
            return ".".join(["factors", factor, level, *rest])
    return ".".join(["base", *parts])


def _holds(patch: Patch, parts: list[str]) -> bool:
    value: Any = patch
    for part in parts:
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return not (isinstance(value, Mapping) and not value)


def _equal_arms(arms: list[Arm], file: str, limit: int = 3) -> list[Problem]:
    first: dict[str, Arm] = {}
    problems: list[Problem] = []
    for arm in arms:
        other = first.setdefault(canonical_json(arm.config), arm)
        if other is not arm and len(problems) < limit:
            found = f"the arms {other.name!r} and {arm.name!r}, which come out as the same configuration"
            fix = "a difference between them could only be noise; change or remove one"
            problems.append(Problem(file, _differing_factor(other, arm), found, "levels that differ", fix))
    return problems


def unused_options(configs: Mapping[str, Patch]) -> list[str]:
    """Warnings about arms that differ only in options that their command does not name, so probably not at all.

    Args:
        configs: Arm → configuration.

    Examples:
        >>> def task(**options):
        ...     return {"task": {"command": "train --lr {options.lr}", "options": {"lr": 0.1, **options}}}
        >>> unused_options({"high": task(), "low": task(lr=0.01)})
        []
        >>> print(unused_options({"high": task(), "low": task(lrr=0.01)})[0])
        the arms 'high' and 'low' run the same command, which does not use {options.lrr}; a difference between them ...
    """
    first: dict[str, str] = {}
    warnings: list[str] = []
    for arm in sorted(configs):
        config = configs[arm]
        other = first.setdefault(canonical_json(_that_counts(config)), arm)
        if other != arm:
            one, two = _options(config), _options(configs[other])
            name = next((name for name in [*one, *two] if one.get(name) != two.get(name)), "")
            warnings.append(
                f"the arms {other!r} and {arm!r} run the same command, which does not use {{options.{name}}}; a "
                "difference between them can only be noise, unless the script reads config.yaml of the run itself"
            )
    return warnings


def _that_counts(config: Patch) -> Patch:
    """A configuration without the options that its command never sees."""
    task = config.get("task")
    if not isinstance(task, Mapping) or not task.get("command") or "{run_dir}" in str(task["command"]):
        return config
    used = {name: value for name, value in _options(config).items() if f"{{options.{name}}}" in str(task["command"])}
    return {**config, "task": {**task, "options": used}}


def _options(config: Patch) -> Patch:
    return config["task"].get("options") or {}


def _differing_factor(one: Arm, other: Arm) -> str:
    differing = [factor for factor, level in one.levels.items() if other.levels[factor] != level]
    return f"factors.{differing[0]}" if len(differing) == 1 else "factors"
