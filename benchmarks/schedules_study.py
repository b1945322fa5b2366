"""Cost against outcome of the precision schedules, from a finished study folder: table, rank correlations, figure.

    trivet cp schedules-fashion && trivet run schedules-fashion.yaml
    python benchmarks/schedules_study.py studies/schedules-fashion [--figure docs/figures/schedules-study.svg]
    python benchmarks/schedules_study.py studies/schedules-cora --write docs/tasks/node-classification.md

With `--write`, table and correlations replace the part of the document that is marked with the study's name. Cost is
counted BitOPs, never seconds. Only seeds that finished in every arm enter the correlations; how many were lost is said.
Not covered: other costs than BitOPs, metrics other than the study's own.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from blocks import show_or_put

from trivet.precision import PrecisionSchedule
from trivet.stats import Verdict, estimate, rank_correlation
from trivet.study import Results

COLORS = {"small": "#0c9a76", "medium": "#2b7fc4", "large": "#d4610c", "static": "#7b828c"}
GROUP_TITLES = {"small": "small schedules", "medium": "medium", "large": "large", "static": "static bits, fp32"}
Row = dict[str, object]


def group_of(arm: str) -> str:
    """Group of an arm of that name by compute used; `static` for what is no schedule."""
    if arm not in PrecisionSchedule.names():
        return "static"
    return PrecisionSchedule.named(arm, q_min=3, q_max=8, num_cycles=8, total_steps=800).group


def rows_of(results: Results) -> list[Row]:
    """One row an arm with a finished run: cost, outcome with interval, group; cheapest first."""
    metric = results.spec.metric.name
    rows: list[Row] = []
    for arm in results.arms:
        values, cost = results.values(metric, arm), results.values("bitops", arm)
        states = [record.state for record in results.records if record.arm == arm]
        if not values:
            print(f"{arm}: no finished run ({', '.join(sorted(set(states)))}); left out")
            continue
        found = estimate(list(values.values()))
        rows.append(
            {
                "arm": arm, "group": group_of(arm), "bitops": float(np.mean(list(cost.values()))), "mean": found.mean,
                "low": found.low, "high": found.high, "n": found.n, "diverged": states.count("diverged"),
                "failed": states.count("failed"),
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: (row["bitops"], row["arm"]))


def complete_seeds(results: Results, arms: Sequence[str]) -> list[int]:
    """Seeds that finished in every one of the arms."""
    values = [results.values(results.spec.metric.name, arm) for arm in arms]
    return [seed for seed in results.spec.seed_list if all(seed in found for found in values)]


def table(rows: list[Row], verdicts: dict[str, Verdict], baseline: str, metric: str) -> list[str]:
    """The arms as a Markdown table."""
    reference = next((row for row in rows if row["arm"] == baseline), rows[-1])
    lines = [
        f"| arm | group | BitOPs / {reference['arm']} | {metric}, mean [95 % t-interval] | runs | against {baseline} |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lost = "".join(f", {row[state]} {state}" for state in ("diverged", "failed") if row[state])
        ends = "" if row["low"] is None else f" [{row['low']:.4f}, {row['high']:.4f}]"
        verdict = verdicts.get(str(row["arm"]))
        says = "baseline" if verdict is None else verdict.label
        if verdict is not None and verdict.comparison is not None:
            says += f", {verdict.comparison.effect:+.4f}"
        share = float(str(row["bitops"])) / float(str(reference["bitops"]))
        lines.append(
            f"| {row['arm']} | {row['group']} | {share:.3f} | {row['mean']:.4f}{ends} | {row['n']}{lost} | {says} |"
        )
    return lines


def correlations(results: Results, rows: list[Row]) -> tuple[list[str], list[str]]:
    """Both coefficients and the slope, over all arms and over the cyclic schedules alone: a list, and in short."""
    metric = results.spec.metric.name
    items: list[str] = []
    lines: list[str] = []
    schedules = [row for row in rows if row["group"] != "static"]
    for title, chosen in (("all arms", rows), ("the cyclic schedules alone", schedules)):
        arms = [str(row["arm"]) for row in chosen]
        seeds = complete_seeds(results, arms)
        if len(arms) < 3 or len(seeds) < 2:
            items += [f"{title}: {len(arms)} arms and {len(seeds)} complete seeds are too few for a correlation", ""]
            continue
        outcomes = [[results.values(metric, arm)[seed] for seed in seeds] for arm in arms]
        cost = [float(str(row["bitops"])) for row in chosen]
        lost = len(results.spec.seed_list) - len(seeds)
        items += [f"{title} ({len(seeds)} complete seeds{f', {lost} lost' if lost else ''}):", ""]
        for method in ("spearman", "kendall"):
            found = rank_correlation(cost, outcomes, method=method)
            items.append(f"- {found}")
            if method == "spearman":
                lines.append(
                    f"{title}: rank correlation of cost and outcome within a seed {found.coefficient:+.2f} "
                    f"(95 % {found.low:+.2f} to {found.high:+.2f})"
                )
        slopes = np.polyfit(np.log2(cost), np.array(outcomes), 1)[0]
        items += [f"- {metric} per doubling of BitOPs: {estimate(slopes)}", ""]
    return items, lines


def figure(rows: list[Row], metric: str, lines: list[str], baseline: str, margin: float, path: Path) -> None:
    """Draw the arms in order of cost with their intervals, and beside them cost against outcome."""
    import altair as alt

    reference = next((row for row in rows if row["arm"] == baseline), rows[-1])
    unit, middle = float(str(reference["bitops"])), float(str(reference["mean"]))
    data = [row | {"share": float(str(row["bitops"])) / unit, "kind": GROUP_TITLES[str(row["group"])]} for row in rows]
    for row in data:
        row["label"] = (
            f"{row['arm']}  {row['share']:.2f}×" if row["share"] < 10 else f"{row['arm']}  {row['share']:.0f}×"
        )
    kinds = [title for group, title in GROUP_TITLES.items() if any(row["group"] == group for row in rows)]
    colors = [color for group, color in COLORS.items() if any(row["group"] == group for row in rows)]
    legend = alt.Legend(title=None, orient="top", symbolType="circle")
    color = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=colors), legend=legend)
    scale = alt.Scale(zero=False, nice=True)
    band = alt.Chart(alt.Data(values=[{"from": middle - margin, "to": middle + margin}]))
    base = alt.Chart(alt.Data(values=data)).encode(color=color)
    whiskers = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, opacity=0.6)
    points = base.mark_point(filled=True, size=85, opacity=1)

    name = alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelFontSize=12, labelPadding=8, grid=True))
    across = alt.X("mean:Q", title=f"{metric}, mean and 95 % t-interval", scale=scale)
    left = alt.layer(
        band.mark_rect(color="#7b828c", opacity=0.15).encode(x=alt.X("from:Q", scale=scale), x2="to:Q"),
        whiskers.encode(y=name, x=alt.X("low:Q", scale=scale), x2="high:Q"),
        points.encode(y=name, x=across),
    ).properties(width=430, height=26 * len(rows), title=f"Cheapest first; cost as a multiple of {baseline}")

    near = "datum.share < 2"
    cost = alt.X("share:Q", title=f"BitOPs, counted, as a multiple of {baseline}", scale=scale)
    up = alt.Y("mean:Q", title=metric, axis=alt.Axis(titlePadding=16), scale=scale)
    right = alt.layer(
        band.mark_rect(color="#7b828c", opacity=0.15).encode(y=alt.Y("from:Q", scale=scale), y2="to:Q"),
        whiskers.transform_filter(near).encode(x=cost, y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        points.transform_filter(near).encode(x=cost, y=up),
    ).properties(width=330, height=26 * len(rows), title="Cost against outcome, without full precision")

    title = alt.TitleParams(
        "What a precision schedule costs and what comes out",
        subtitle=[*lines, f"Gray band: within the margin of {margin:g} around {baseline}. BitOPs are not seconds."],
        anchor="start",
        fontSize=18,
        subtitleFontSize=12,
        subtitleColor="#6b7280",
        offset=14,
    )
    chart = alt.hconcat(left, right, spacing=40, title=title, background="white", padding=20)
    chart = chart.configure(font="Inter, 'Helvetica Neue', Arial, sans-serif").configure_view(stroke=None)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.configure_axis(gridColor="#e5e7eb", domain=False, ticks=False).save(str(path))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the study, print everything, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of a finished study, such as studies/schedules-fashion")
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/schedules-study.svg"))
    parser.add_argument("--write", type=Path, help="document whose part called as the study is replaced")
    parser.add_argument("--baseline", default="static8", help="arm that the others are compared with")
    options = parser.parse_args(arguments)
    results = Results.load(options.study)
    rows = rows_of(results)
    if not rows:
        raise SystemExit(f"{options.study}: no finished run; run the study first")
    baseline = options.baseline if options.baseline in results.arms else results.arms[0]
    verdicts = {item.arm_b: item.verdict for item in results.compare_all(baseline)}
    metric = results.spec.metric.name
    states = ", ".join(f"{count} {state}" for state, count in results.counts.items())
    margin = results.spec.metric.margin
    title = f"{results.spec.name}: {states}; margin {margin:g}, verdicts corrected as one family (Holm)."
    items, lines = correlations(results, rows)
    text = "\n".join([title, "", *table(rows, verdicts, baseline, metric), "", *items])
    show_or_put(text, options.write, results.spec.name)
    figure(rows, metric, lines, baseline, margin, options.figure)
    print(f"\nfigure: {options.figure}")


if __name__ == "__main__":
    main()
