"""The looks of a study, kept in its folder: `trivet run --until-decided` runs seeds in planned looks and stops early.

    looks.json    the plan, what it was made for, and every look taken, comparison by comparison

The plan is made once, before the first look, and then fixed: metric, margin, seeds and arms may not change. A look that
is on record is never taken again, so a study that was interrupted, resumed or run again looks no more often than
planned. A comparison that has decided keeps its verdict; the study goes on, all arms alike, until all have decided.

Not covered: looks of a person who reads the folder by hand; arms that stop by themselves.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.core.config import build
from trivet.core.errors import ConfigError, Problem, RunFolderError
from trivet.core.io import write_json
from trivet.study.spec import StudySpec

if TYPE_CHECKING:
    from trivet.stats import Look, LookPlan, Verdict

FILE = "looks.json"

FORMAT = 1

Outcomes = Mapping[int, float]
"""Seed → outcome of the finished runs of an arm."""


@dataclass(slots=True)
class Taken:
    """Looks at one comparison."""

    looks: list[Look] = field(default_factory=list)
    """In order."""
    seeds: list[int] = field(default_factory=list)
    """Seeds seen, in the order in which they were first seen."""

    @property
    def decided(self) -> bool:
        """Whether no further look is to be taken."""
        return bool(self.looks) and self.looks[-1].decided


@dataclass(slots=True)
class LookBook:
    """Plan and looks of one study.

    Examples:
        >>> from trivet.study import MetricSpec
        >>> spec = StudySpec(name="s", base={}, seeds=16, metric=MetricSpec(name="loss", margin=0.1))
        >>> book = LookBook.make(Path("studies/s"), spec, ["fp32", "RR"], looks=4, done_before=0)
        >>> book.plan.pairs, book.next_pairs, book.decided
        ((7, 10, 13, 16), 7, False)
    """

    path: Path
    """The file."""
    plan: LookPlan
    """When to look."""
    made_for: dict[str, Any]
    """Metric, margin, seeds and arms (the first is the baseline) that the plan is for."""
    done_before: int
    """Runs that were done when the plan was made; they may have been looked at unplanned."""
    taken: dict[str, Taken]
    """Arm → looks at its comparison with the baseline."""

    @classmethod
    def make(cls, folder: Path, spec: StudySpec, arms: Sequence[str], looks: int, done_before: int) -> LookBook:
        """A new book for a study.

        Raises:
            ConfigError: The study has one arm only, or too few seeds.
        """
        from trivet.stats import plan_looks

        if len(arms) < 2:
            raise ConfigError([Problem("", "factors", "one arm", "two arms or more", "there is nothing to decide")])
        seeds = spec.seed_list
        try:
            plan = plan_looks(len(seeds), looks, family_size=len(arms) - 1)
        except ValueError as error:
            raise ConfigError([Problem("", "seeds", f"{len(seeds)} seeds, {looks} looks", str(error))]) from None
        taken = {arm: Taken() for arm in arms[1:]}
        return cls(folder / FILE, plan, _made_for(spec, arms), done_before, taken)

    @classmethod
    def load(cls, folder: Path) -> LookBook | None:
        """The book in a study folder; None when there is none.

        Raises:
            ConfigError: It cannot be read.
        """
        path = folder / FILE
        if not path.exists():
            return None
        from trivet.stats import Look
        from trivet.stats.look_plan import read_plan

        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}")
            taken = {
                str(arm): Taken([build(Look, row) for row in entry["looks"]], list(entry["seeds"]))
                for arm, entry in content["comparisons"].items()
            }
            plan, done = read_plan(content["plan"]), int(content["done_before"])
            return cls(path, plan, dict(content["made_for"]), done, taken)
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            fix = "restore it; without it, no verdict can hold its error over the looks already taken"
            found = f"a file that is no record of looks ({error})"
            raise ConfigError([Problem(str(path), "", found, f"format {FORMAT}", fix)]) from None

    def check(self, spec: StudySpec, arms: Sequence[str]) -> None:
        """Refuse a study that is not the one the looks were planned for.

        Raises:
            ConfigError: Metric, margin, seeds or arms have changed.
        """
        now = _made_for(spec, arms)
        fix = "the looks were planned for that; go back to it, or plan anew in another folder with --out"
        problems = [
            Problem(str(self.path), key, str(now[key]), str(self.made_for.get(key)), fix)
            for key in now
            if now[key] != self.made_for.get(key)
        ]
        if problems:
            raise ConfigError(problems)

    def fits(self, spec: StudySpec, baseline: str, arm: str) -> bool:
        """Whether a comparison on the study's metric is one of the planned ones."""
        made = self.made_for
        same = made.get("metric") == spec.metric.name and made.get("margin") == spec.metric.margin
        return same and made.get("arms", [""])[0] == baseline and arm in self.taken

    @property
    def number(self) -> int:
        """Looks taken."""
        return max(len(one.looks) for one in self.taken.values())

    @property
    def decided(self) -> bool:
        """Whether no look is left to take."""
        return all(one.decided for one in self.taken.values())

    @property
    def next_pairs(self) -> int:
        """Seeds that must have come to rest before the next look."""
        return self.plan.pairs[self.number]

    @property
    def seeds_needed(self) -> int:
        """Seeds that the study needs as far as is known: those of the last look once decided, else all."""
        return self.plan.pairs[self.number - 1] if self.decided else self.plan.max_pairs

    def take(self, values: Mapping[str, Outcomes], diverged: Mapping[str, Collection[int]] | None = None) -> list[str]:
        """Take the next look at every comparison that is undecided, and write it down.

        Args:
            values: Arm → outcomes of its finished runs.
            diverged: Arm → seeds whose run diverged: pairs that are lost for good, where a failed run may come back.

        Returns:
            One line a comparison.

        Raises:
            RunFolderError: A comparison has too few pairs because runs are missing (no look is taken), or outcomes of
                an earlier look have changed.
        """
        baseline, number = self.made_for["arms"][0], self.number
        seeds = self.made_for["seeds"][: self.next_pairs]
        ready = {
            arm: _in_order(one.seeds, seeds, values[baseline], values[arm])
            for arm, one in self.taken.items()
            if not one.decided
        }
        for arm, order in ready.items():
            lost = {seed for name in (baseline, arm) for seed in (diverged or {}).get(name, ())}
            _check_enough(self.path, arm, number + 1, order, set(seeds) - set(order) - lost)
        made = {arm: self._look(arm, order, len(seeds), values) for arm, order in ready.items()}
        for arm, seen in made.items():
            self.taken[arm].looks.append(seen)
            self.taken[arm].seeds = ready[arm]
        self.save()
        return [seen.sentence for seen in made.values()]

    def _look(self, arm: str, order: list[int], planned: int, values: Mapping[str, Outcomes]) -> Look:
        from trivet.stats import look

        baseline = self.made_for["arms"][0]
        try:
            return look(
                self.plan,
                [values[baseline][seed] for seed in order],
                [values[arm][seed] for seed in order],
                self.made_for["margin"],
                previous=self.taken[arm].looks,
                lost=planned - len(order),
                names=(baseline, arm),
                metric=self.made_for["metric"],
                when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            )
        except ValueError as error:
            raise RunFolderError(f"{self.path}: {arm}: {error}") from None

    def save(self) -> None:
        """Write the book, atomically."""
        comparisons = {
            arm: {"seeds": one.seeds, "looks": [seen.to_dict() for seen in one.looks]}
            for arm, one in self.taken.items()
        }
        content = {"format": FORMAT, "plan": self.plan.to_dict(), "made_for": self.made_for}
        write_json(self.path, {**content, "done_before": self.done_before, "comparisons": comparisons})

    def verdict(self, arm: str, values: Mapping[str, Outcomes]) -> Verdict:
        """The verdict that the looks have come to, with the numbers of the pairs seen at the last one."""
        from trivet.study.lookverdict import looked_verdict

        baseline, one = self.made_for["arms"][0], self.taken[arm]
        seeds = [seed for seed in one.seeds if seed in values[baseline] and seed in values[arm]]
        a, b = ([values[name][seed] for seed in seeds] for name in (baseline, arm))
        return looked_verdict(self.plan, one.looks, a, b, self.made_for, (baseline, arm))

    def notes(self) -> list[str]:
        """What a reader should know about the looks."""
        arms = len(self.made_for["arms"])
        looks = f"{self.number} of {len(self.plan.pairs)} planned looks taken, {self.plan}"
        if self.decided:
            spared = (self.plan.max_pairs - self.seeds_needed) * arms
            looks = f"run in planned looks: ended at look {self.number} of {len(self.plan.pairs)}, after "
            looks += f"{self.seeds_needed} of {self.plan.max_pairs} seeds"
            looks += f"; {spared} runs were not needed" if spared else ""
        if self.done_before:
            looks += (
                f"; {self.done_before} runs were done before the looks were planned: if their outcomes were looked at "
                "then, the error is not held"
            )
        return [looks]


def _made_for(spec: StudySpec, arms: Sequence[str]) -> dict[str, Any]:
    metric = spec.metric
    return {"metric": metric.name, "margin": metric.margin, "seeds": spec.seed_list, "arms": list(arms)}


def _in_order(seen: Sequence[int], seeds: Sequence[int], left: Outcomes, right: Outcomes) -> list[int]:
    """Seeds with both outcomes, those of earlier looks first; an earlier one that has lost its outcome is a fault."""
    new = [seed for seed in seeds if seed not in seen and seed in left and seed in right]
    gone = [seed for seed in seen if seed not in left or seed not in right]
    if gone:
        raise RunFolderError(f"the outcome of seed {gone[0]} was seen at an earlier look and is gone; restore its runs")
    return [*seen, *new]


def _check_enough(path: Path, arm: str, number: int, order: Sequence[int], missing: Collection[int]) -> None:
    """Refuse a look that runs which may still come would make one; divergence is an outcome and is not waited for."""
    from trivet.stats.power import MIN_PAIRS

    if missing and len(order) < MIN_PAIRS:
        raise RunFolderError(
            f"{path}: look {number} is not taken: {arm} has {len(order)} pairs with outcomes, at least {MIN_PAIRS} "
            f"are needed, and {len(missing)} are missing; see `trivet status` for what went wrong, the same command "
            "goes on"
        )
