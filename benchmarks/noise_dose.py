"""Does noise help? The dose-response of a finished study of noise: verdict, effect and rounding for each dose.

    trivet cp noise-fashion && trivet run noise-fashion.yaml
    python benchmarks/noise_dose.py studies/noise-fashion --write docs/noise.md --figure docs/figures/noise-dose.svg

Doses of rounding are drawn in order of size, other kinds of noise beside them. Not covered: interactions of dose and
schedule, doses that are no level of one factor called `noise`.
"""

import argparse
import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blocks import show_or_put

from trivet.report import summarize
from trivet.report.numbers import decimals_for, interval, number, p_value
from trivet.report.tables import rounding_text
from trivet.study import Results

COLORS = {"different": "#1f63a8", "equivalent": "#0a7358", "undecided": "#b7791f"}
Row = dict[str, Any]


def doses(results: Results) -> dict[str, float | None]:
    """Arm → size of its rounding, None for another kind of noise; the baseline is left out."""
    found: dict[str, float | None] = {}
    for level, patch in results.spec.factors["noise"].items():
        if patch.get("kind", "none") != "none":
            found[level] = 2.0 ** -patch.get("bits", 24) if patch["kind"] == "rounding" else None
    return found


def rows_of(results: Results) -> list[Row]:
    """One row a dose, smallest rounding first, other kinds of noise last."""
    summary = summarize(results)
    sizes = doses(results)
    rows = [{**row, "dose": sizes[row["arm"]]} for row in summary["comparisons"]]
    return sorted(rows, key=lambda row: (row["dose"] is None, row["dose"] or 0.0))


def better(row: Row, *, maximize: bool) -> str:
    """What the verdict says on the question whether noise helps."""
    margin = row["equivalence"]
    if row["label"] == "different":
        return "helps" if (row["effect"] > 0) == maximize else "hurts"
    if row["label"] == "equivalent":
        return "neither, within the margin"
    if margin is None:
        return "unknown"
    ends = (margin["low"], margin["high"]) if maximize else (-margin["high"], -margin["low"])
    return "unknown; no help beyond the margin" if ends[1] < margin["margin"] else "unknown"


def table(results: Results) -> str:
    """The doses as Markdown, with what rounding alone does."""
    rows, metric = rows_of(results), results.spec.metric
    summary = summarize(results)
    lines = [
        f"| noise | effect on {metric.name} | 95 % interval | seed SDs | × rounding | p, Holm | verdict | helps? |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        decimals = decimals_for(None if row["low"] is None else row["high"] - row["low"])
        sds = "–" if row["in_seed_sds"] is None else number(row["in_seed_sds"], 2, signed=True)
        cells = [
            row["arm"], number(row["effect"], decimals, signed=True),
            interval(row["low"], row["high"], decimals, signed=True), sds,
            "the null arm" if row["rounding"] is None else rounding_text(row["rounding"]),
            p_value(row["p_adjusted"]), row["label"], better(row, maximize=metric.maximize),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    base = results.values(metric.name, results.arms[0])
    counts = ", ".join(f"{count} {state}" for state, count in results.counts.items())
    mean = sum(base.values()) / len(base)
    lines += [
        "",
        f"Paired by seed, n = {max(row['n_pairs'] for row in rows)} pairs a row; margin ±{metric.margin:g}; "
        f"runs: {counts}. Without noise: {metric.name} {mean:.4f}. {machine(results)}",
    ]
    if summary["rounding"]:
        lines += ["", summary["rounding"]["sentence"]]
    return "\n".join(lines)


def machine(results: Results) -> str:
    """Where and when the runs were done."""
    content = next(iter(results.environments().values()), {})
    packages, cpu = content.get("packages", {}), content.get("cpu", {})
    day = datetime.datetime.fromtimestamp(
        max(record.folder.stat().st_mtime for record in results.records if record.is_done), datetime.UTC
    )
    isa = "" if any("avx512" in flag for flag in cpu.get("flags", ())) else " without AVX-512"
    model = cpu.get("model", "unknown processor")
    return f"torch {packages.get('torch', '?')}, one thread on two cores of an {model}{isa}, {day:%Y-%m-%d}."


def figure(results: Results, path: Path) -> None:
    """Draw effect, both intervals and the margin over the doses."""
    import altair as alt

    metric, rows = results.spec.metric, rows_of(results)
    data: list[Row] = []
    points: list[Row] = []
    for row in rows:
        inner = row["equivalence"] or {"low": None, "high": None}
        name = row["arm"] if row["dose"] is None else f"2⁻{_superscript(round(-math.log2(row['dose'])))}"
        kind = "rounding of every gradient" if row["dose"] is not None else "other noise"
        common = {"name": name, "kind": kind}
        data.append({
            **common, "effect": row["effect"], "low": row["low"], "high": row["high"], "label": row["label"],
            "inner_low": inner["low"], "inner_high": inner["high"],
        })  # fmt: skip
        points += [{**common, "value": point["value"]} for point in row["differences"]]
    order = [row["name"] for row in data]
    across = alt.X("name:N", sort=order, title=None, axis=alt.Axis(labelAngle=0, labelFontSize=13, labelPadding=8))
    scale = alt.Scale(zero=False, nice=True)
    labels = [label for label in COLORS if any(row["label"] == label for row in data)]
    color = alt.Color(
        "label:N", title=None, legend=alt.Legend(orient="top", symbolType="circle", labelFontSize=12),
        scale=alt.Scale(domain=labels, range=[COLORS[label] for label in labels]),
    )  # fmt: skip
    shown = alt.Chart(alt.Data(values=data))
    title = f"{metric.name}: difference from training without noise"
    layers: list[Any] = []
    axis = alt.Axis(titlePadding=16)
    if metric.margin:
        band = alt.Chart(alt.Data(values=[{"from": -metric.margin, "to": metric.margin}]))
        layers.append(band.mark_rect(color="#0a7358", opacity=0.1).encode(y=alt.Y("from:Q", scale=scale), y2="to:Q"))
    zero = alt.Chart(alt.Data(values=[{"zero": 0}]))
    layers += [
        zero.mark_rule(color="#7b828c", strokeDash=[4, 4]).encode(y="zero:Q"),
        alt.Chart(alt.Data(values=points)).mark_point(size=26, color="#7b828c", opacity=0.55, xOffset=14).encode(
            x=across, y=alt.Y("value:Q", scale=scale)
        ),
        shown.mark_rule(strokeWidth=1.6).encode(
            x=across, y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q", color=color
        ),
        shown.mark_rule(strokeWidth=5, opacity=0.55).encode(x=across, y="inner_low:Q", y2="inner_high:Q", color=color),
        shown.mark_point(filled=True, size=95, opacity=1).encode(x=across, y="effect:Q", color=color),
    ]  # fmt: skip
    chart = alt.layer(*layers).properties(
        width=96 * len(order), height=330,
        title=alt.TitleParams(
            "Does noise help training?",
            subtitle=[
                "Relative rounding noise on every gradient, growing from that of float32; then other kinds of noise.",
                "Thin bar: 95 % interval. Thick: 90 % interval; in the green margin means equivalent. Rings: seeds.",
            ],
            anchor="start", fontSize=18, subtitleFontSize=12, subtitleColor="#6b7280", offset=12,
        ),
        background="white", padding=20,
    )  # fmt: skip
    chart = chart.configure(font="Inter, 'Helvetica Neue', Arial, sans-serif").configure_view(stroke=None)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.configure_axis(gridColor="#e5e7eb", domain=False, ticks=False).save(str(path))


def _superscript(value: int) -> str:
    return str(value).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the study, print or write the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of a finished study, such as studies/noise-fashion")
    parser.add_argument("--write", type=Path, help="document whose marked part is replaced")
    parser.add_argument("--figure", type=Path, help="picture to draw")
    options = parser.parse_args(arguments)
    results = Results.load(options.study)
    if "noise" not in results.spec.factors:
        raise SystemExit(
            f"{options.study}: no factor `noise`; give the folder of a study like recipes/noise-fashion.yaml"
        )
    show_or_put(table(results), options.write, "benchmarks/noise_dose.py")
    if options.figure:
        figure(results, options.figure)


if __name__ == "__main__":
    main()
