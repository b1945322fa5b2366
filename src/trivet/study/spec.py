"""The study file: what is compared, over which seeds, by which metric. Checked completely before anything runs.

Every problem is reported at once, each with file, key, what was found, what is allowed and the nearest valid name.
The base and every arm are built as run configurations, so a slip in the last level is found before the first
run starts.

Not covered: whether the data are on this machine (`Study.run` asks that), factors that depend on each other.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trivet.core.config import UNSET_IS_LEFT_OUT, build, describe, set_key
from trivet.core.errors import ConfigError, Problem
from trivet.core.yamlfile import load_yaml
from trivet.study.arms import MAX_RUNS, SEPARATOR, Arm, count_arms, placed_assignment, resolve, sections
from trivet.study.metrics import metric_problems
from trivet.study.nulls import null_problems
from trivet.study.resources import ResourcesSpec, resource_problems

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of studies: they become folders."""

NAME_RULE = "a name of at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricSpec:
    """The number that the study decides on.

    Examples:
        >>> MetricSpec(name="test_accuracy", margin=0.005).maximize
        True
        >>> MetricSpec(name="test_loss").maximize
        False
    """

    name: str
    """Name of a metric that every run reports."""
    margin: float = 0.0
    """Differences smaller than this do not matter, in the metric's own unit; 0 when every difference matters."""
    goal: Literal["auto", "maximize", "minimize"] = "auto"
    """Which way is better; `auto` minimizes what is called a loss, error, perplexity or the like."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("`name` is empty; give the name of a metric, such as test_accuracy")
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise ValueError(f"`margin={self.margin}` must be ≥ 0 and finite; use 0 when every difference matters")

    @property
    def maximize(self) -> bool:
        """Whether more is better."""
        if self.goal != "auto":
            return self.goal == "maximize"
        return not re.search(r"loss|error|perplexity|ppl|nll|mse|mae|rmse", self.name.lower())


@dataclass(frozen=True, kw_only=True, slots=True)
class StudySpec:
    r"""A study: base configuration, factors laid over it, seeds, metric.

    Examples:
        >>> spec = StudySpec(
        ...     name="threads",
        ...     base={"task": {"command": "python train.py {seed}", "metrics": {"loss": r"loss: (\S+)"}}},
        ...     factors={"environment": {"one": {"threads": 1}, "two": {"threads": 2}}},
        ...     seeds=8,
        ...     metric=MetricSpec(name="loss"),
        ... )
        >>> [arm.name for arm in spec.arms()], spec.seed_list
        (['one', 'two'], [0, 1, 2, 3, 4, 5, 6, 7])
    """

    name: str
    """Names the study and its folder."""
    base: dict[str, Any]
    """Sections of a run configuration: task, training, precision, environment."""
    factors: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Factor → level → patch. A factor named like a section patches that section, any other the whole base."""
    seeds: int | list[int] = 8
    """How many seeds (0, 1, …) or which."""
    metric: MetricSpec
    """What is compared."""
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    """How much of a machine or cluster is used; is in no run's name, as it changes no result by more than rounding."""
    executor: Literal["local", "slurm", "ray"] = field(default="local", metadata=UNSET_IS_LEFT_OUT)
    """Where runs go: this machine, a Slurm cluster (`trivet[slurm]`), or a Ray cluster (`trivet[ray]`)."""
    null_arm: dict[str, str] = field(default_factory=dict, metadata=UNSET_IS_LEFT_OUT)
    """Factor → level of the arm that differs from the baseline by rounding alone, the other factors as in the baseline;
    empty: the arm that is the baseline but for `noise: {kind: rounding, bits: 24}`, if there is one."""

    def __post_init__(self) -> None:
        problems = [*_name_problems(self.name, ""), *_seed_problems(self.seeds, "")]
        if problems:
            raise ValueError("; ".join(str(problem) for problem in problems))

    @property
    def seed_list(self) -> list[int]:
        """The seeds, one a block."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    def arms(self, *, file: str = "") -> list[Arm]:
        """Every combination of levels, resolved.

        Raises:
            ConfigError: With every problem of every arm.
        """
        arms, problems = resolve(self.base, self.factors, file=file)
        if problems:
            raise ConfigError(problems)
        return arms

    @classmethod
    def from_yaml(cls, path: Path | str, overrides: Iterable[str] = ()) -> StudySpec:
        """Read and check a study file.

        Args:
            path: The file.
            overrides: `dotted.key=value`, as on the command line; a key that begins with a section's name
                (`training.steps=100`) means that section of `base`.

        Raises:
            ConfigError: With every problem of the file.
        """
        return cls.from_mapping(load_yaml(path), file=str(path), overrides=overrides)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, file: str = "", overrides: Iterable[str] = ()) -> StudySpec:
        """Build and check a specification from plain values; see `from_yaml`."""
        for assignment in overrides:
            mapping = set_key(mapping, placed_assignment(assignment, [item.name for item in dataclasses.fields(cls)]))
        problems: list[Problem] = []
        clean = dict(mapping)
        if "name" in mapping:
            clean["name"] = _checked(mapping["name"], _name_problems(mapping["name"], file), problems, "x")
        if "seeds" in mapping:
            clean["seeds"] = _checked(mapping["seeds"], _seed_problems(mapping["seeds"], file), problems, 1)
        clean["factors"] = factors = _clean_factors(mapping.get("factors", {}), file, problems)
        if isinstance(clean.get("null_arm"), Mapping):
            clean["null_arm"] = {str(factor): str(level) for factor, level in clean["null_arm"].items()}
            problems.extend(null_problems(clean["null_arm"], factors, file))
        spec = None
        try:
            spec = build(cls, clean, file=file)
        except ConfigError as error:
            problems.extend(_under_base(problem) for problem in error.problems)
        arms = _check_arms(clean, factors, file, problems)
        if spec is not None:
            problems.extend(metric_problems(spec.metric.name, arms, file))
            problems.extend(resource_problems(spec.resources, spec.executor, [arm.config for arm in arms], file))
        if problems or spec is None:
            raise ConfigError(problems)
        return spec


def _under_base(problem: Problem) -> Problem:
    """A section that stands at the top level belongs under `base`; say so."""
    if problem.key not in sections():
        return problem
    return dataclasses.replace(problem, fix=f"write `{problem.key}:` under `base:`")


def _checked(value: Any, found: Sequence[Problem], problems: list[Problem], stand_in: Any) -> Any:
    """`value`, or `stand_in` when it has problems, which are collected."""
    problems.extend(found)
    return stand_in if found else value


def _check_arms(
    clean: Mapping[str, Any], factors: dict[str, dict[str, Any]], file: str, problems: list[Problem]
) -> list[Arm]:
    """Resolve every arm, as far as the file's frame allows it."""
    base = clean.get("base")
    if not isinstance(base, Mapping):
        return []
    if "seed" in base:
        allowed = ", ".join(sections())
        problems.append(Problem(file, "base.seed", "a seed", allowed, "write `seeds:` at the top of the file"))
        return []
    seeds = clean.get("seeds", 8)
    count = count_arms(factors) * (seeds if isinstance(seeds, int) else len(seeds))
    if count > MAX_RUNS:
        problems.append(Problem(file, "factors", f"{count:,} runs", f"at most {MAX_RUNS:,} runs"))
        return []
    arms, found = resolve(base, factors, file=file)
    problems.extend(found)
    return arms


def _name_problems(name: Any, file: str) -> list[Problem]:
    if isinstance(name, str) and NAME.fullmatch(name):
        return []
    is_path = isinstance(name, str) and ("/" in name or "\\" in name)
    found = describe(name) + (", a path" if is_path else "")
    fix = "give the folder with --out" if is_path else ""
    return [Problem(file, "name", found, NAME_RULE, fix)]


def _seed_problems(seeds: Any, file: str) -> list[Problem]:
    allowed = "a number of seeds ≥ 1, or a list of different whole numbers ≥ 0"

    def is_whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    if is_whole(seeds):
        if seeds < 1:
            fix = "with no seed there is no run" if seeds == 0 else ""
            return [Problem(file, "seeds", str(seeds), allowed, fix)]
        if seeds > MAX_RUNS:
            return [Problem(file, "seeds", str(seeds), f"at most {MAX_RUNS:,} runs")]
        return []
    if not isinstance(seeds, Sequence) or isinstance(seeds, str):
        return [Problem(file, "seeds", describe(seeds), allowed)]
    if not seeds:
        return [Problem(file, "seeds", "an empty list", allowed, "with no seed there is no run")]
    bad = [seed for seed in seeds if not is_whole(seed) or not 0 <= seed < 2**63]
    if bad:
        return [Problem(file, "seeds", describe(bad[0]), allowed)]
    seen: set[int] = set()
    for seed in seeds:
        if seed in seen:
            return [Problem(file, "seeds", f"{seed} twice", allowed)]
        seen.add(seed)
    return []


def _clean_factors(factors: Any, file: str, problems: list[Problem]) -> dict[str, dict[str, dict[str, Any]]]:
    """The factors that are well-formed, names as text; problems of the others are collected."""
    if not isinstance(factors, Mapping):
        problems.append(Problem(file, "factors", describe(factors), "a mapping of factor → levels"))
        return {}
    clean: dict[str, dict[str, dict[str, Any]]] = {}
    for factor, levels in factors.items():
        key = f"factors.{factor}"
        if not isinstance(levels, Mapping) or not levels:
            allowed = "a mapping of level → patch, with one level or more"
            problems.append(Problem(file, key, describe(levels), allowed))
            continue
        name = _label(factor, key, file, problems)
        inner: dict[str, dict[str, Any]] = {}
        for level, patch in levels.items():
            label = _label(level, f"{key}.{level}", file, problems)
            if label in inner:
                problems.append(Problem(file, f"{key}.{level}", f"the level {label!r} twice", "each level once"))
            elif not isinstance(patch, Mapping):
                fix = f"write `{label}: {{}}` for the base as it is" if patch is None else ""
                problems.append(Problem(file, f"{key}.{level}", describe(patch), "a mapping (a patch on base)", fix))
            else:
                inner[label] = dict(patch)
        if inner:
            clean[name] = inner
    return clean


def _label(label: Any, key: str, file: str, problems: list[Problem]) -> str:
    """Name of a factor or level as text; numbers are written out."""
    if isinstance(label, int | float) and not isinstance(label, bool):
        return str(label)
    text = str(label)
    if not isinstance(label, str) or not text.strip() or SEPARATOR.strip() in text or not text.isprintable():
        allowed = f"a name: printable text without {SEPARATOR.strip()!r}"
        problems.append(Problem(file, key, f"the name {label!r}", allowed, "quote it if it is meant as text"))
    return text
