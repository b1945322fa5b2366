"""The JSON twin of a report: everything it says, as plain values; the one source of the page and the terminal text.

Numbers are computed here once. BitOPs are counted arithmetic and seconds are measured; they stand in separate
entries, each with its unit, and are never converted into each other. Runs that diverged, failed or have not run are
counted beside every mean they are missing from. The summary holds no clock, so the same records give the same bytes.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trivet.report.aggregate import BAND_METHOD, CurveRow, bands, precision_lines, single_lines, spread
from trivet.report.environments import summarize_environments
from trivet.report.gpus import gpu_notices
from trivet.report.numbers import count, listing, number
from trivet.report.pictures import pictures
from trivet.report.starts import starts
from trivet.stats.wording import percent
from trivet.study.metrics import unreported_text
from trivet.study.nulls import rounding

if TYPE_CHECKING:
    from trivet.stats import Verdict
    from trivet.study.nulls import Rounding
    from trivet.study.results import ArmComparison, Record, Results

FORMAT = 1
"""Version of the summary; raised when a key changes its meaning or goes away."""

STATES = ("finished", "diverged", "failed", "running", "pending", "unreadable")
"""States a run can be in, as counted in the summary."""

CURVES = ("test_accuracy", "test_loss", "train_loss")
"""Curves drawn besides the study's own metric, where they were logged."""


def summarize(results: Results) -> dict[str, Any]:
    """Everything a report says about a study, as JSON-able values.

    Args:
        results: Records of the study, complete or not.

    Returns:
        A mapping with the keys `format`, `trivet`, `study`, `question`, `notices`, `comparisons`, `rounding`, `arms`,
        `curves`, `precision`, `pictures`, `starts`, `environment`, `rerun`, `harness` and `missing`; see
        docs/report.md for their content.

    Raises:
        ValueError: The study has no runs at all, planned or done.
    """
    if not results.records:
        raise ValueError(
            f"{results.folder}: the study has no runs; allowed: at least one planned run; see `trivet run`"
        )
    arms = list(results.arms)
    family = _family(results)
    baseline = family[0].arm_a if family else arms[0]
    study = _study(results, baseline)
    rows = [_arm_row(results, arm) for arm in arms]
    _add_relative_cost(rows, baseline)
    against = rounding(results, family)
    comparisons = [_comparison(results, item, against) for item in family]
    states = {(record.arm, record.seed): record.state for record in results.records}
    names = dict.fromkeys([study["metric"]["name"], *CURVES])
    curves = [curve for name in names if (curve := _curve(results, name, states))]
    recorded = results.environments()
    environment = summarize_environments(
        recorded,
        {record.run_id: record.arm for record in results.records},
        is_factor="environment" in study["factors"],
    )
    told = gpu_notices(recorded, {record.run_id: (record.arm, record.seed) for record in results.records}, baseline)
    summary: dict[str, Any] = {
        "format": FORMAT,
        "trivet": _version(),
        "study": study,
        "question": _question(study, len(arms)),
        "notices": _notices(study, rows, environment, _unreported_notice(results), [*told, *results.notes]),
        "comparisons": comparisons,
        "rounding": _rounding(against),
        "arms": rows,
        "curves": curves,
        "precision": precision_lines(_rows(results, "bits"), arms),
        "pictures": pictures(results),
        "starts": starts(results),
        "environment": environment,
        "rerun": _rerun(results),
        "harness": results.harness.to_dict() if results.harness else None,
        "missing": [_missing(record) for record in results.records if record.state != "finished"]
        + [_silent(record, study["metric"]["name"]) for record in results.unreported],
    }
    return finite(summary)


def finite(value: Any) -> Any:
    """The same value with NaN and infinity turned into None, and tuples into lists.

    Examples:
        >>> finite({"a": float("nan"), "b": (1, float("inf"))})
        {'a': None, 'b': [1, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trivet")
    except PackageNotFoundError:
        return "unknown"


def _family(results: Results) -> list[ArmComparison]:
    return list(results.compare_all()) if len(results.arms) > 1 else []


def _study(results: Results, baseline: str) -> dict[str, Any]:
    spec = results.spec
    goal = "maximize" if spec.metric.maximize else "minimize"
    counts = {state: sum(record.state == state for record in results.records) for state in STATES}
    return {
        "name": spec.name,
        "folder": str(results.folder),
        "metric": {"name": spec.metric.name, "margin": float(spec.metric.margin), "goal": goal},
        "factors": {name: list(levels) for name, levels in spec.factors.items()},
        "baseline": baseline,
        "seeds": sorted({record.seed for record in results.records}),
        "runs": {"planned": len(results.records), **counts, "unreported": len(results.unreported)},
        "complete": counts["finished"] + counts["diverged"] == len(results.records),
    }


def _question(study: Mapping[str, Any], n_arms: int) -> str:
    metric, seeds = study["metric"], count(len(study["seeds"]), "seed")
    if n_arms < 2:
        return f"What {metric['name']} does the training reach? One arm, {seeds}; there is nothing to compare it with."
    by = f" by {number(metric['margin'])} or more" if metric["margin"] > 0 else ""
    varied = [name for name, levels in study["factors"].items() if len(levels) > 1]
    what = f"{listing(varied)}" if varied else "the arm"
    return (
        f"Does {what} change {metric['name']}{by}? {count(n_arms, 'arm')} × {seeds}, "
        f"each compared with {study['baseline']}, paired by seed."
    )


def _notices(
    study: Mapping[str, Any],
    arms: list[dict[str, Any]],
    environment: Mapping[str, Any],
    unreported: str,
    notes: list[str],
) -> list[str]:
    """Sentences that limit what the numbers mean; what is unfinished comes first (see `tables.split_notices`)."""
    runs = study["runs"]
    waiting, lost = runs["running"] + runs["pending"], runs["failed"] + runs["unreadable"]
    confounded = [row["key"] for row in environment["differences"] if row["confounded"] and row["key"] != "gpu"]
    out: list[str] = []
    if not runs["finished"]:
        out.append("No run has finished, so there is nothing to judge yet.")
    if waiting:
        done = f"{runs['finished'] + runs['diverged']} of {count(runs['planned'], 'run')} are done"
        text = f"This study is unfinished: {done}, {runs['running']} running, {runs['pending']} not started or paused."
        out.append(f"{text} Everything below is preliminary; the missing runs are listed at the end.")
    if unreported:
        out.append(unreported)
    if runs["diverged"]:
        where = listing([f"{row['runs']['diverged']} in {row['arm']}" for row in arms if row["runs"]["diverged"]])
        text = (
            f"{count(runs['diverged'], 'run')} diverged ({where}). Divergence is an outcome of its arm; the arm's mean "
        )
        out.append(f"{text}leaves such runs out and describes only those that did not diverge.")
    if lost:
        failed, bad = runs["failed"], runs["unreadable"]
        parts = [f"{count(failed, 'run')} failed"] * (failed > 0) + [f"{count(bad, 'run')} cannot be read"] * (bad > 0)
        out.append(f"{' and '.join(parts)}: missing data, listed below with the reason.")
    if confounded:
        what = listing(confounded[:4]) + (" and more" if len(confounded) > 4 else "")
        out.append(f"The arms differ in their environment ({what}): a difference between them may come from that.")
    if environment["not_realised"]:
        names = listing([row["setting"] for row in environment["not_realised"]])
        out.append(f"Settings that were asked for and not realised in some runs: {names}.")
    return out + [note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".") for note in notes]


def _unreported_notice(results: Results) -> str:
    """That runs finished without the study's metric, and what to do; empty when there is none."""
    silent = results.unreported
    if not silent:
        return ""
    text = unreported_text(results.spec.metric.name, {name for record in silent for name in record.metrics})
    end = "" if text.endswith("?") else "."
    return (
        f"{count(len(silent), 'run')} finished, but {text}{end} Such runs are in no mean and no comparison: name a "
        "reported metric in `metric.name`, or mend the script and remove their run folders."
    )


def _rounding(found: Rounding | None) -> dict[str, Any] | None:
    """What rounding alone does, as the null arm shows it."""
    if found is None:
        return None
    return {**found.null.to_dict(), "ratio": found.null.ratio, "sentence": str(found.null)}


def _comparison(results: Results, item: ArmComparison, against: Rounding | None) -> dict[str, Any]:
    verdict = item.verdict
    metric = results.spec.metric.name
    a, b = results.values(metric, item.arm_a), results.values(metric, item.arm_b)
    pairs = sorted(set(a) & set(b))
    planned = {record.seed for record in results.records if record.arm in (item.arm_a, item.arm_b)}
    return {
        "baseline": item.arm_a,
        "arm": item.arm_b,
        "label": verdict.label,
        "sentence": verdict.sentence,
        "reason": verdict.reason,
        "sure_difference": verdict.sure_difference,
        "within_margin": verdict.within_margin,
        "beyond_margin": verdict.beyond_margin,
        "more_seeds": verdict.more_seeds,
        "n_pairs": len(pairs),
        "pairs_lost": len(planned) - len(pairs),
        **_statistics(verdict),
        "rounding": against.arms[item.arm_b].to_dict() if against and item.arm_b in against.arms else None,
        "differences": [{"seed": seed, "value": b[seed] - a[seed]} for seed in pairs],
    }


def _statistics(verdict: Verdict) -> dict[str, Any]:
    """Effect, interval and p-values of a verdict; all None where there are too few pairs for them."""
    found, margin_test = verdict.comparison, verdict.equivalence
    if found is None:
        empty = dict.fromkeys(
            ("effect", "in_seed_sds", "low", "high", "p", "p_adjusted", "smallest_detectable", "equivalence")
        )
        return {**empty, "interval_method": "", "p_method": ""}
    return {
        "effect": found.effect,
        "in_seed_sds": found.effect / found.sd_a if found.sd_a > 0 else None,
        "low": found.low,
        "high": found.high,
        "interval_method": f"{percent(found.confidence)} {found.method} on paired differences",
        "p": found.p,
        "p_method": found.p_method,
        "p_adjusted": verdict.p,
        "smallest_detectable": found.smallest_detectable,
        "equivalence": None if margin_test is None else margin_test.to_dict(),
    }


def _arm_row(results: Results, arm: str) -> dict[str, Any]:
    records = [record for record in results.records if record.arm == arm]
    values = results.values(results.spec.metric.name, arm)
    finished = [record for record in records if record.state == "finished"]
    return {
        "arm": arm,
        "levels": dict(records[0].levels) if records else {},
        "runs": {"planned": len(records), **{state: sum(r.state == state for r in records) for state in STATES}},
        "metric": _estimate(list(values.values())),
        "bitops": _cost([record.bitops for record in finished], "BitOPs", "counted from layer sizes and bits"),
        "train_seconds": _cost([record.train_seconds for record in finished], "s", "measured wall time of training"),
        "points": [
            {"seed": r.seed, "value": values[r.seed], "bitops": r.bitops, "train_seconds": r.train_seconds}
            for r in finished
            if r.seed in values
        ],
    }


def _estimate(values: list[float]) -> dict[str, Any]:
    from trivet.stats.estimate import estimate

    if not values:
        return {"n": 0, "mean": None, "sd": None, "low": None, "high": None, "method": "no finished run"}
    made = estimate(values)
    return {"n": made.n, "mean": made.mean, "sd": made.sd, "low": made.low, "high": made.high, "method": made.method}


def _cost(values: list[float], unit: str, how: str) -> dict[str, Any] | None:
    known = [value for value in values if math.isfinite(value) and value > 0]
    cost = spread(known)
    return None if cost is None else {**cost, "unit": unit, "how": how}


def _add_relative_cost(rows: list[dict[str, Any]], baseline: str) -> None:
    """Mean cost over the baseline's mean cost, for each kind of cost by itself."""
    reference = next((row for row in rows if row["arm"] == baseline), None)
    for row in rows:
        for kind in ("bitops", "train_seconds"):
            if row[kind] is not None:
                base = reference[kind] if reference else None
                row[kind]["relative_to_baseline"] = row[kind]["mean"] / base["mean"] if base else None


def _rows(results: Results, name: str) -> list[CurveRow]:
    return [CurveRow(*point) for point in results.curves(name)]


def _curve(results: Results, name: str, states: Mapping[tuple[str, int], str]) -> dict[str, Any] | None:
    rows = _rows(results, name)
    done = bands([row for row in rows if states.get((row.arm, row.seed)) == "finished"], list(results.arms))
    lost = single_lines(row for row in rows if states.get((row.arm, row.seed)) == "diverged")
    if len({row["step"] for row in [*done, *lost]}) < 2:
        return None
    return {"metric": name, "method": BAND_METHOD, "bands": done, "diverged": lost}


def _rerun(results: Results) -> list[dict[str, str]]:
    """Commands that continue or repeat the study, each with what it does."""
    folder = shlex.quote(str(results.folder))
    study = shlex.quote(str(results.folder / "study.yaml"))
    again = shlex.quote(f"{results.folder}-again")
    first = results.records[0]
    return [
        {"does": "continue this study: only what is not done runs", "command": f"trivet run {study}"},
        {"does": "repeat everything in a new folder", "command": f"trivet run {study} --out {again}"},
        {
            "does": f"one run by itself ({first.arm}, seed {first.seed})",
            "command": f"python -m trivet.tasks {shlex.quote(str(first.folder))}",
        },
        {"does": "make this report again", "command": f"trivet report {folder}"},
    ]


_WHY = {
    "diverged": "the loss became NaN or infinite",
    "running": "still running",
    "pending": "not started",
    "failed": "crashed; see log.txt in its folder",
    "unreadable": "its folder cannot be read",
}


def _silent(record: Record, metric: str) -> dict[str, Any]:
    return {**_missing(record), "reason": unreported_text(metric, record.metrics)}


def _missing(record: Record) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "arm": record.arm,
        "seed": record.seed,
        "state": record.state,
        "reason": record.reason or _WHY.get(record.state, ""),
        "folder": record.folder.name,
    }
