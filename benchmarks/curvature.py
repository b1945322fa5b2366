"""Curvature over environments: every figure of a finished study, paired by seed, with verdicts and the null arm.

    trivet cp curvature-fashion && trivet run curvature-fashion.yaml
    python benchmarks/curvature.py studies/curvature-fashion --write docs/curvature.md

The study's own metric has the study's margin, every other figure one SD over the baseline's seeds. All comparisons are
one family (Holm).
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from blocks import show_or_put
from noise_dose import machine

from trivet.report.numbers import p_value
from trivet.stats import ArmPair, Verdict, against_null, decide, holm, null_arm
from trivet.stats.wording import NumberStyle, plain_number
from trivet.study import Results
from trivet.study.nulls import null_arm_name

FIGURES = {
    "gradient_norm": "gradient norm",
    "hessian_min": "λmin",
    "hessian_max": "λmax",
    "negative_mass": "negative mass",
    "saddle_drop": "drop along λmin",
}
"""Figures that are compared, and how they are called."""


def pairs_of(results: Results, metric: str, arm: str) -> ArmPair:
    """Baseline and arm on the seeds that both have."""
    base, other = results.values(metric, results.arms[0]), results.values(metric, arm)
    seeds = [seed for seed in results.spec.seed_list if seed in base and seed in other]
    return ArmPair(names=(results.arms[0], arm), a=[base[s] for s in seeds], b=[other[s] for s in seeds])


def verdicts(results: Results, metrics: Sequence[str]) -> dict[tuple[str, str], Verdict]:
    """Metric and arm → verdict, corrected as one family; the null arm is compared too."""
    keys = [(metric, arm) for metric in metrics for arm in results.arms[1:]]
    pairs = {key: pairs_of(results, *key) for key in keys}
    margins = {metric: margin_of(results, metric) for metric in metrics}
    first = {key: decide(pair.a, pair.b, margin=margins[key[0]]) for key, pair in pairs.items()}
    adjusted = dict(zip(keys, holm([first[key].p or 1.0 for key in keys]), strict=True))
    return {
        key: decide(
            pair.a, pair.b, margin=margins[key[0]], names=pair.names, metric=key[0], adjusted_p=adjusted[key],
            family_size=len(keys),
        )
        for key, pair in pairs.items()
    }  # fmt: skip


def margin_of(results: Results, metric: str) -> float:
    """The study's margin for its own metric, one SD over the baseline's seeds for another."""
    if metric == results.spec.metric.name:
        return results.spec.metric.margin
    return float(np.std(list(results.values(metric, results.arms[0]).values()), ddof=1))


def table(results: Results) -> str:
    """Every figure, step by step, as Markdown."""
    at = results.spec.base["curvature"]["at"]
    metrics = [f"{name}_at_{step}" for step in at for name in FIGURES]
    metrics = [metric for metric in metrics if any(results.values(metric, results.arms[0]).values())]
    found, null = verdicts(results, metrics), null_arm_name(results.spec)
    base = results.arms[0]
    lines = [
        f"| after | figure | {base}, mean (SD) | arm | difference | 95 % interval | p, Holm | verdict | × rounding |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (metric, arm), verdict in found.items():
        name, _, step = metric.rpartition("_at_")
        values = list(results.values(metric, base).values())
        effect = verdict.comparison
        if effect is None:
            continue
        write = NumberStyle((effect.high - effect.low) / 2, effect.effect)
        mean, spread = (plain_number(float(value)) for value in (np.mean(values), np.std(values, ddof=1)))
        lines.append(
            f"| {step} | {FIGURES[name]} | {mean} ({spread}) | {arm} | {write(effect.effect)} | "
            f"[{write(effect.low)}, {write(effect.high)}] | {p_value(verdict.p)} | {verdict.label} | "
            f"{against(results, metric, arm, null, verdict)} |"
        )
    labels = [verdict.label for verdict in found.values()]
    counts = ", ".join(f"{labels.count(label)} {label}" for label in ("different", "equivalent", "undecided"))
    return "\n".join([*lines, "", f"Of {len(labels)} comparisons: {counts}.", "", *notes(results, at)])


def against(results: Results, metric: str, arm: str, null: str, verdict: Verdict) -> str:
    """What the null arm says of an effect."""
    if not null or arm == null:
        return "the null arm" if null else "–"
    pair, mine = pairs_of(results, metric, null), pairs_of(results, metric, arm)
    found = against_null(mine.a, mine.b, null_arm(pair.a, pair.b, name=null), adjusted_p=verdict.p)
    return found.label if found.ratio is None else f"{found.label}: {found.ratio:.2g}"


def notes(results: Results, at: Sequence[int]) -> list[str]:
    """Saddles counted, n, machine."""
    lines: list[str] = []
    for step in at:
        near = {arm: list(results.values(f"near_saddle_at_{step}", arm).values()) for arm in results.arms}
        said = ", ".join(f"{int(sum(values))} of {len(values)} in {arm}" for arm, values in near.items())
        lines.append(f"Near a saddle after {step} steps: {said}.")
    base = results.arms[0]
    errors = [
        f"{np.max(list(results.values(f'{name}_error_at_{step}', base).values())):.2g} for {FIGURES[name]} after {step}"
        for step in at
        for name in ("hessian_min", "negative_mass")
    ]
    counts = ", ".join(f"{count} {state}" for state, count in results.counts.items())
    sizes = sorted(len(pairs_of(results, results.spec.metric.name, arm).a) for arm in results.arms[1:])
    most = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    own = dataclasses.asdict(results.spec.metric)
    lines += [
        f"Largest error of measurement in {base}: {'; '.join(errors)}.",
        f"Paired by seed, n = {most}; runs: {counts}. Margins: {own['margin']:g} for {own['name']}, one SD over the "
        f"baseline's seeds for the others. {machine(results)}",
    ]
    return ["\n\n".join(lines)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the study; print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of a finished study, such as studies/curvature-fashion")
    parser.add_argument("--write", type=Path, help="document whose marked part is replaced")
    options = parser.parse_args(arguments)
    show_or_put(table(Results.load(options.study)), options.write, "benchmarks/curvature.py")


if __name__ == "__main__":
    main()
