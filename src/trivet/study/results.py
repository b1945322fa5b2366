"""The records of a study, and what can be concluded from them.

Arms are compared paired by seed. A run that diverged, failed, finished without the metric or did not get the settings
that its environment asked for takes its pair out of the comparison; how many pairs were lost, and to what, is said in
every verdict, and the counts stand beside every mean. Nothing is dropped silently.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trivet.core.errors import TrivetError, unknown_name
from trivet.core.runfolder import RunFolder
from trivet.study.accounting import Harness, harness_of
from trivet.study.arms import arm_name, combinations, unused_options
from trivet.study.lookbook import LookBook
from trivet.study.nulls import Rounding, rounding
from trivet.study.plan import plan
from trivet.study.record import Record
from trivet.study.spec import StudySpec
from trivet.study.store import Store

if TYPE_CHECKING:
    import pandas

    from trivet.stats import ArmPair, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmComparison:
    """Two arms and the verdict on them, corrected for the family it belongs to."""

    arm_a: str
    """The baseline."""
    arm_b: str
    """What is compared with it."""
    verdict: Verdict
    """Effect: mean of `arm_b` − `arm_a` over pairs of equal seed."""


class CurvePoint(NamedTuple):
    """One logged value of one run."""

    arm: str
    seed: int
    step: int
    value: float


class Results:
    """Every run of a study, done or not.

    Examples:
        >>> from trivet.study.spec import MetricSpec
        >>> spec = StudySpec(name="s", base={}, seeds=2, metric=MetricSpec(name="loss"))
        >>> Results(spec, [], Path("studies/s")).arms
        ['base']
    """

    def __init__(
        self,
        spec: StudySpec,
        records: Sequence[Record],
        folder: Path,
        *,
        notes: Sequence[str] = (),
        looks: LookBook | None = None,
    ) -> None:
        self.spec = spec
        """What was asked."""
        self.records = _needed(spec, records, looks)
        """One a planned run, in the order of the plan; runs that planned looks have made needless are left out."""
        self.looks = looks
        """The planned looks, when the study is run until decided."""
        self.folder = folder
        """The study folder."""
        self.notes = [*notes, *(looks.notes() if looks else [])]
        """What a reader should know: folders outside the plan, changes of the study."""

    @classmethod
    def load(cls, folder: Path | str) -> Results:
        """Read a study folder, changing nothing in it.

        Raises:
            ConfigError: It is no study folder, or its study.yaml cannot be read.
        """
        store = Store(Path(folder))
        spec = store.load_spec()
        runs = plan(spec)
        notes, looks = folder_notes(store, runs), LookBook.load(store.folder)
        return cls(spec, store.records(runs), store.folder, notes=notes, looks=looks)

    @property
    def arms(self) -> list[str]:
        """Names of the arms, in the order of the study file; the first is the baseline."""
        return [arm_name(levels) for levels in combinations(self.spec.factors)]

    @property
    def counts(self) -> dict[str, int]:
        """State → number of runs, states that occur only."""
        return dict(Counter(str(record.state) for record in self.records))

    @property
    def exit_code(self) -> int:
        """0 when every run has an outcome and every finished one reports the study's metric, else 1."""
        return 0 if all(record.is_done for record in self.records) and not self.unreported else 1

    @property
    def unreported(self) -> list[Record]:
        """Runs that finished without the study's metric: they are in no mean and no comparison."""
        name = self.spec.metric.name
        return [record for record in self.records if record.state == "finished" and _value(record, name) is None]

    @property
    def harness(self) -> Harness | None:
        """Where the time of all invocations went; None when none was recorded."""
        return harness_of(Store(self.folder).history())

    @cached_property
    def unrealised(self) -> dict[str, tuple[str, ...]]:
        """Finished run → settings that it asked for and did not get: such runs are in no mean and no comparison."""
        found: dict[str, tuple[str, ...]] = {}
        for record in self.records:
            names = RunFolder(record.folder).read_environment().get("not_realised") if record.is_done else None
            if isinstance(names, list) and names:
                found[record.run_id] = tuple(map(str, names))
        return found

    def values(self, metric: str, arm: str) -> dict[int, float]:
        """Seed → final value of a metric, over the finished runs of an arm that report it and got their settings.

        Args:
            metric: Name of a metric, or `bitops`, `seconds`, `train_seconds`.
            arm: Name of an arm.

        Raises:
            ValueError: There is no such arm.
        """
        if arm not in self.arms:
            raise ValueError(unknown_name("arm", arm, self.arms))
        found: dict[int, float] = {}
        for record in self.records:
            if record.arm == arm and record.state == "finished" and record.run_id not in self.unrealised:
                value = _value(record, metric)
                if value is not None:
                    found[record.seed] = value
        return found

    def decide(self, factor: str, a: str, b: str, metric: str | None = None, margin: float | None = None) -> Verdict:
        """Decide between two levels of one factor, paired by seed.

        With other factors, a seed's value is the mean over their combinations; a seed counts only when both
        levels have finished in every one of them.

        Args:
            factor: Name of a factor.
            a: The level compared with.
            b: The level that is compared.
            metric: The study's metric when left out.
            margin: The study's margin when left out (0 with another metric).

        Raises:
            ValueError: There is no such factor, level or metric.
        """
        from trivet.stats import decide

        if factor not in self.spec.factors:
            raise ValueError(unknown_name("factor", factor, self.spec.factors))
        for level in (a, b):
            if level not in self.spec.factors[factor]:
                raise ValueError(unknown_name(f"level of {factor}", level, self.spec.factors[factor]))
        name = metric or self.spec.metric.name
        self._check_metric(name)
        if margin is None:
            margin = self.spec.metric.margin if name == self.spec.metric.name else 0.0
        combos = [levels for levels in combinations(self.spec.factors) if levels[factor] == a]
        left = [self.values(name, arm_name(levels)) for levels in combos]
        right = [self.values(name, arm_name({**levels, factor: b})) for levels in combos]
        seeds = [s for s in self.spec.seed_list if all(s in values for values in (*left, *right))]
        arms = [arm_name({**levels, factor: level}) for levels in combos for level in (a, b)]
        verdict = decide(
            [_mean([values[seed] for values in left]) for seed in seeds],
            [_mean([values[seed] for values in right]) for seed in seeds],
            margin=margin,
            names=(a, b),
            metric=name,
            lost=self._lost(arms, seeds),
        )
        return self._told(self._unplanned(verdict), arms, seeds, name)

    def compare_all(self, baseline: str | None = None) -> list[ArmComparison]:
        """Compare every arm with the baseline on the study's metric, as one family (Holm).

        In a study that is run until decided, the verdicts are those of its planned looks.

        Args:
            baseline: Name of an arm; the first one when left out.

        Raises:
            ValueError: There is no such arm.
        """
        from trivet.stats import decide_pairs

        first = baseline if baseline is not None else self.arms[0]
        if first not in self.arms:
            raise ValueError(unknown_name("arm", first, self.arms))
        others = [arm for arm in self.arms if arm != first]
        pairs = [self._pair(first, arm) for arm in others]
        metric = self.spec.metric
        verdicts = decide_pairs(pairs, margin=metric.margin, metric=metric.name) if pairs else []
        found: list[ArmComparison] = []
        for arm, verdict in zip(others, verdicts, strict=True):
            if self.looks and self.looks.fits(self.spec, first, arm):
                outcomes = {name: self.values(metric.name, name) for name in (first, arm)}
                planned = self.looks.verdict(arm, outcomes)
                found.append(ArmComparison(arm_a=first, arm_b=arm, verdict=planned))
                continue
            verdict = self._unplanned(verdict)
            both = self.values(metric.name, first).keys() & self.values(metric.name, arm).keys()
            told = self._told(verdict, [first, arm], sorted(both), metric.name)
            found.append(ArmComparison(arm_a=first, arm_b=arm, verdict=told))
        return found

    def rounding(self, baseline: str | None = None) -> Rounding | None:
        """Every arm's effect on the study's metric against what rounding alone does, as the null arm shows it.

        Args:
            baseline: As in `compare_all`; there is a null arm against the first one only.

        Returns:
            None when the study has no null arm, or while it has fewer than 2 pairs.
        """
        return rounding(self, self.compare_all(baseline))

    def curves(self, metric: str) -> list[CurvePoint]:
        """Every logged value of a metric, run by run, in order of steps."""
        points: list[CurvePoint] = []
        for record in self.records:
            if record.state in ("unreadable", "pending"):
                continue
            for row in RunFolder(record.folder).read_metrics():
                step, value = row.get("step"), row.get(metric)
                if isinstance(step, int) and isinstance(value, int | float) and not isinstance(value, bool):
                    points.append(CurvePoint(record.arm, record.seed, step, float(value)))
        return points

    def environments(self) -> dict[str, dict[str, Any]]:
        """Run → content of its environment.json, where there is one."""
        found: dict[str, dict[str, Any]] = {}
        for record in self.records:
            content = RunFolder(record.folder).read_environment() if record.state != "unreadable" else {}
            if content:
                found[record.run_id] = content
        return found

    def to_frame(self) -> pandas.DataFrame:
        """One row a run: id, arm, a column for each factor, seed, state, costs, a column for each metric.

        Raises:
            TrivetError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise TrivetError("to_frame() needs the package 'pandas'; install it with: pip install pandas") from None
        return pandas.DataFrame([_row(record) for record in self.records])

    def _pair(self, a: str, b: str) -> ArmPair:
        from trivet.stats import ArmPair

        left, right = (self.values(self.spec.metric.name, arm) for arm in (a, b))
        seeds = [seed for seed in self.spec.seed_list if seed in left and seed in right]
        return ArmPair(
            names=(a, b),
            a=[left[seed] for seed in seeds],
            b=[right[seed] for seed in seeds],
            lost=self._lost([a, b], seeds),
        )

    def _lost(self, arms: Sequence[str], used: Sequence[int]) -> int:
        """Seeds that some run of the arms took out by diverging or failing; seeds still to come are not lost."""
        return len(self._bad(arms) - set(used))

    def _bad(self, arms: Sequence[str]) -> set[int]:
        return {r.seed for r in self.records if r.arm in arms and r.state in ("diverged", "failed", "unreadable")}

    def _told(self, verdict: Verdict, arms: Sequence[str], used: Sequence[int], metric: str) -> Verdict:
        """The verdict, its sentence saying how many pairs were lost because a run finished without the metric."""
        from trivet.stats.sentences import unreported

        silent = {r.seed for r in self.records if r.arm in arms and r.state == "finished" and _value(r, metric) is None}
        text = unreported(len(silent - self._bad(arms) - set(used)), metric) + self._left_out(arms)
        return dataclasses.replace(verdict, sentence=verdict.sentence + text) if text else verdict

    def _left_out(self, arms: Sequence[str]) -> str:
        """Which runs were left out because they did not get the settings that they asked for."""
        out = [r for r in self.records if r.arm in arms and r.run_id in self.unrealised]
        if not out:
            return ""
        names = sorted({name for record in out for name in self.unrealised[record.run_id]})
        runs = f"{len(out)} runs did" if len(out) != 1 else "1 run did"
        left = "are left out" if len(out) != 1 else "is left out"
        return f" {runs} not get the environment asked for ({', '.join(names)}) and {left}."

    def _unplanned(self, verdict: Verdict) -> Verdict:
        """The verdict, saying that it is none of the planned looks when there are such."""
        if self.looks is None:
            return verdict
        text = (
            " This comparison is not one of the planned looks: when it was made after one of them, its error is not "
            "held."
        )
        return dataclasses.replace(verdict, sentence=verdict.sentence + text)

    def _check_metric(self, metric: str) -> None:
        names = {name: None for record in self.records for name in record.metrics} | dict.fromkeys(_COSTS)
        if any(record.metrics for record in self.records) and metric not in names:
            raise ValueError(unknown_name("metric", metric, names))


_COSTS = ("bitops", "seconds", "train_seconds")


def _value(record: Record, metric: str) -> float | None:
    if metric in record.metrics:
        return record.metrics[metric]
    return float(getattr(record, metric)) if metric in _COSTS else None


def _needed(spec: StudySpec, records: Sequence[Record], looks: LookBook | None) -> list[Record]:
    """The records without runs that never started because the looks had decided before."""
    if looks is None or not looks.decided:
        return list(records)
    seeds = set(spec.seed_list[: looks.seeds_needed])
    return [record for record in records if record.seed in seeds or record.state != "pending"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _row(record: Record) -> dict[str, Any]:
    costs = {"steps": record.steps, "bitops": record.bitops, "seconds": record.seconds}
    return {
        "run_id": record.run_id,
        "arm": record.arm,
        **record.levels,
        "seed": record.seed,
        "state": record.state,
        **costs,
        "train_seconds": record.train_seconds,
        **record.metrics,
    }


def folder_notes(store: Store, runs: Sequence[Any]) -> list[str]:
    """What lies in a study folder beside its planned runs, how the study was changed, and arms that may be the same."""
    notes = unused_options({run.arm: {**run.config, "seed": 0} for run in runs})[:3]
    extra = store.unplanned(runs)
    if extra:
        shown = ", ".join(path.name for path in extra[:3]) + (", …" if len(extra) > 3 else "")
        notes.append(f"{len(extra)} run folder(s) belong to no planned run and are kept: {shown}")
    changed = [row for row in store.history() if row.get("event") == "changed" and isinstance(row.get("changes"), list)]
    return notes + [
        f"the study was changed on {row.get('time', '?')}: {'; '.join(map(str, row['changes']))}" for row in changed
    ]
