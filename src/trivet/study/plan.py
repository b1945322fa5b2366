"""From a specification to the list of runs: every arm × seed exactly once.

Order: blocked by seed (all arms of one seed, then the next), random inside a block, so that drift of the machine
falls on all arms alike and an early stop leaves complete pairs. The order inside a block depends
on nothing but the seed and the arms' names, so adding a level or a seed moves no other run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trivet.core.config import digest, to_plain
from trivet.core.seeding import derive

if TYPE_CHECKING:
    from trivet.study.spec import StudySpec


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One run of a study.

    Examples:
        >>> PlannedRun(run_id="ab", arm="RR", levels={"precision": "RR"}, seed=3, block=0, config={}).seed
        3
    """

    run_id: str
    """Twelve hex digits of the resolved configuration, seed included; names the run folder."""
    arm: str
    """Levels joined by " · "."""
    levels: Mapping[str, str]
    """Factor → level."""
    seed: int
    """Seed of the run; runs of different arms with the same seed are a pair."""
    block: int
    """Position of the seed in the study's list; decides the GPU, so that a GPU never stands for an arm."""
    config: Mapping[str, Any]
    """The complete run configuration, plain, seed included."""


def plan(spec: StudySpec) -> list[PlannedRun]:
    r"""Every run of a study in the order in which they are started.

    Args:
        spec: A specification; its arms are resolved here.

    Raises:
        ConfigError: An arm cannot be built.

    Examples:
        >>> from trivet.study.spec import MetricSpec, StudySpec
        >>> spec = StudySpec(
        ...     name="two",
        ...     base={"task": {"command": "python train.py --seed {seed}", "metrics": {"loss": r"loss: (\S+)"}}},
        ...     factors={"environment": {"one": {"threads": 1}, "two": {"threads": 2}}},
        ...     seeds=3,
        ...     metric=MetricSpec(name="loss"),
        ... )
        >>> [run.seed for run in plan(spec)], sorted({run.arm for run in plan(spec)})
        ([0, 0, 1, 1, 2, 2], ['one', 'two'])
    """
    arms = [(arm, to_plain(arm.config)) for arm in spec.arms()]
    runs: list[PlannedRun] = []
    for block, seed in enumerate(spec.seed_list):
        for arm, shared in sorted(arms, key=lambda item, seed=seed: derive(seed, "order", item[0].name)):
            config = {**shared, "seed": seed}
            runs.append(
                PlannedRun(
                    run_id=digest(config, is_plain=True),
                    arm=arm.name,
                    levels=arm.levels,
                    seed=seed,
                    block=block,
                    config=config,
                )
            )
    return runs
