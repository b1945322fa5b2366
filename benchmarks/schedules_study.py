"""Cost against outcome of the precision schedules, from a finished study folder: table, rank correlations, figure.

    trivet cp schedules-fashion && trivet run schedules-fashion.yaml
    python benchmarks/schedules_study.py studies/schedules-fashion [--figure docs/figures/schedules-study.svg]

Cost is counted BitOPs, never seconds. Only seeds that finished in every arm enter the correlations; how many were lost
is said. Not covered: other costs than BitOPs, metrics other than the study's own.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

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


def print_table(rows: list[Row], verdicts: dict[str, Verdict], baseline: str, metric: str) -> None:
    """Print the arms as a Markdown table."""
    reference = next((row for row in rows if row["arm"] == baseline), rows[-1])
    print(
        f"\n| arm | group | BitOPs / {reference['arm']} | {metric}, mean [95 % t-interval] | runs | "
        f"against {baseline} |"
    )
    print("|---|---|---|---|---|---|")
    for row in rows:
        lost = "".join(f", {row[state]} {state}" for state in ("diverged", "failed") if row[state])
        ends = "" if row["low"] is None else f" [{row['low']:.4f}, {row['high']:.4f}]"
        verdict = verdicts.get(str(row["arm"]))
        says = "baseline" if verdict is None else verdict.label
        if verdict is not None and verdict.comparison is not None:
            says += f", {verdict.comparison.effect:+.4f}"
        share = float(str(row["bitops"])) / float(str(reference["bitops"]))
        print(f"| {row['arm']} | {row['group']} | {share:.3f} | {row['mean']:.4f}{ends} | {row['n']}{lost} | {says} |")


def print_correlations(results: Results, rows: list[Row]) -> list[str]:
    """Print both coefficients and the slope, over all arms and over the cyclic schedules alone."""
    metric = results.spec.metric.name
    lines: list[str] = []
    schedules = [row for row in rows if row["group"] != "static"]
    for title, chosen in (("all arms", rows), ("the cyclic schedules alone", schedules)):
        arms = [str(row["arm"]) for row in chosen]
        seeds = complete_seeds(results, arms)
        if len(arms) < 3 or len(seeds) < 2:
            print(f"\n{title}: {len(arms)} arms and {len(seeds)} complete seeds are too few for a correlation")
            continue
        outcomes = [[results.values(metric, arm)[seed] for seed in seeds] for arm in arms]
        cost = [float(str(row["bitops"])) for row in chosen]
        lost = len(results.spec.seed_list) - len(seeds)
        print(f"\n{title} ({len(seeds)} complete seeds{f', {lost} lost' if lost else ''}):")
        for method in ("spearman", "kendall"):
            found = rank_correlation(cost, outcomes, method=method)
            print(f"  {found}")
            if method == "spearman":
                lines.append(
                    f"{title}: rank correlation of cost and outcome within a seed {found.coefficient:+.2f} "
                    f"(95 % {found.low:+.2f} to {found.high:+.2f})"
                )
        slopes = np.polyfit(np.log2(cost), np.array(outcomes), 1)[0]
        print(f"  {metric} per doubling of BitOPs: {estimate(slopes)}")
    return lines


def figure(rows: list[Row], metric: str, lines: list[str], path: Path) -> None:
    """Draw cost against outcome: one point an arm with its interval, colored by group."""
    import altair as alt

    full = max(float(str(row["bitops"])) for row in rows)
    data = [row | {"share": float(str(row["bitops"])) / full, "kind": GROUP_TITLES[str(row["group"])]} for row in rows]
    kinds = [title for group, title in GROUP_TITLES.items() if any(row["group"] == group for row in rows)]
    colors = [color for group, color in COLORS.items() if any(row["group"] == group for row in rows)]
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X(
            "share:Q",
            title="BitOPs of a run, counted, as a share of full precision (logarithmic)",
            scale=alt.Scale(type="log", nice=False, padding=24),
            axis=alt.Axis(format=".1%", values=[0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 1], grid=False),
        ),
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=colors),
            legend=alt.Legend(title=None, orient="top", symbolType="circle"),
        ),
    )
    y = alt.Y("mean:Q", title=f"{metric}, mean and 95 % t-interval", scale=alt.Scale(zero=False, nice=True))
    whiskers = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5, opacity=0.55)
    whiskers = whiskers.encode(y=alt.Y("low:Q", scale=alt.Scale(zero=False)), y2="high:Q")
    points = base.mark_point(filled=True, size=75, opacity=1).encode(y=y)
    labels = [
        base.transform_filter(alt.FieldOneOfPredicate("arm", [row["arm"] for row in data[turn::3]]))
        .mark_text(align="left", dx=7, dy=(0, -12, 12)[turn], fontSize=11, fontWeight=600)
        .encode(y=y, text="arm:N")
        for turn in range(3)
    ]
    title = alt.TitleParams(
        "What a precision schedule costs and what comes out",
        subtitle=lines,
        anchor="start",
        fontSize=18,
        subtitleFontSize=12,
        subtitleColor="#6b7280",
        offset=14,
    )
    chart = alt.layer(whiskers, points, *labels).properties(width=760, height=420, title=title, background="white")
    chart = chart.configure(font="Inter, 'Helvetica Neue', Arial, sans-serif", padding=20).configure_view(stroke=None)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.configure_axis(gridColor="#e5e7eb", domain=False, ticks=False).save(str(path))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the study, print everything, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of a finished study, such as studies/schedules-fashion")
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/schedules-study.svg"))
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
    print(
        f"{results.spec.name}: {states}; margin {results.spec.metric.margin:g}, verdicts corrected as one family (Holm)"
    )
    print_table(rows, verdicts, baseline, metric)
    lines = print_correlations(results, rows)
    figure(rows, metric, lines, options.figure)
    print(f"\nfigure: {options.figure}")


if __name__ == "__main__":
    main()
