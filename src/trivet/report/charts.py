"""Charts as Vega-Lite specifications, made with Altair from the plain rows of the summary.

Four kinds: paired differences with the margin, learning curves with bands over seeds, cost against outcome, precision
over time. Every interval drawn is one that trivet computed; Altair's own error bands (a bootstrap, too narrow for few
seeds) are never used. Charts carry no legend of their own: the page writes one that wraps on a phone, and
`styles.arm_styles` gives each arm the same look everywhere. Names of users only ever enter as data values and
titles, never as field names or expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet.report import drawing as d
from trivet.report.drawing import Rows, Styles
from trivet.report.numbers import common_exponent, power_of_ten


def differences_chart(comparisons: Rows, styles: Styles, *, metric: str, margin: float) -> dict[str, Any]:
    """Paired differences per seed against the baseline: one line an arm, mean and intervals above the single seeds.

    The thin bar is the interval of the mean difference, the thick one the interval that the equivalence test looks at.

    Args:
        comparisons: `comparisons` of the summary; those without pairs are left out.
        styles: Look of each arm.
        metric: Name of the outcome, for the axis.
        margin: Differences within ± this do not matter to the user; drawn as a band when above 0.
    """
    import altair as alt

    shown = [row for row in comparisons if row["effect"] is not None]
    arms = [row["arm"] for row in shown]
    means = [d.effect_row(row) for row in shown]
    seeds = [{"arm": row["arm"], **point} for row in shown for point in row["differences"]]
    scale = alt.Scale(zero=True, nice=True)
    x = alt.X("value:Q", title=f"difference in {metric}", scale=scale, axis=alt.Axis(tickCount=6))
    y = alt.Y("arm:N", sort=None, axis=None, scale=alt.Scale(domain=arms))
    color = d.color(arms, styles)
    tip_mean = [d.tip("arm:N", "arm"), d.tip("value:Q", "mean difference"), d.tip("low:Q", "95 % from")]
    tip_mean += [d.tip("high:Q", "to"), d.tip("n:Q", "pairs")]
    layers: list[Any] = []
    if margin > 0:
        band = alt.Chart(alt.NamedData("margin"))
        layers.append(band.mark_rect(color=d.BAND, opacity=0.16).encode(x=alt.X("from:Q"), x2="to:Q"))
    layers.append(alt.Chart(alt.NamedData("zero")).mark_rule(color=d.INK, opacity=0.75).encode(x=x))
    points = alt.Chart(alt.NamedData("seeds")).mark_point(size=34, opacity=0.75, yOffset=17, strokeWidth=1.3)
    layers.append(
        points.encode(
            x=x,
            y=y,
            color=color,
            tooltip=[d.tip("arm:N", "arm"), d.tip("seed:O", "seed"), d.tip("value:Q", "difference")],
        )
    )
    base = alt.Chart(alt.NamedData("means"))
    for low, high, width in (("low", "high", 2), ("inner_low", "inner_high", 6)):
        if any(row[low] is not None for row in means):
            bar = base.transform_filter(f"isValid(datum.{low})").mark_rule(strokeWidth=width, strokeCap="round")
            layers.append(bar.encode(x=alt.X(f"{low}:Q"), x2=f"{high}:Q", y=y, color=color, tooltip=tip_mean))
    layers.append(base.mark_point(size=130, filled=True, opacity=1).encode(x=x, y=y, color=color, tooltip=tip_mean))
    layers.append(
        base.mark_text(align="left", baseline="bottom", yOffset=-11, fontWeight=600, limit=300).encode(
            x=alt.value(4), y=y, text="arm:N"
        )
    )
    tables: dict[str, Rows] = {"means": means, "seeds": seeds, "zero": [{"value": 0}]}
    tables |= {"margin": [{"from": -margin, "to": margin}]} if margin > 0 else {}
    return d.finish(alt.layer(*layers), 66 * max(1, len(arms)), f"Paired differences in {metric} per seed", **tables)


def learning_chart(curve: Mapping[str, Any], styles: Styles) -> dict[str, Any]:
    """Learning curves: mean over seeds with its band; runs that diverged as thin single lines that end in a cross.

    Args:
        curve: One entry of `curves` of the summary: `metric`, `bands`, `diverged`.
        styles: Look of each arm.
    """
    import altair as alt

    bands, domain = curve["bands"], d.domain(curve)
    lost = d.within(curve["diverged"], domain)
    arms = list(dict.fromkeys(row["arm"] for row in [*bands, *lost]))
    scale = alt.Scale(domain=domain, nice=False, zero=False)
    last = d.last_step(curve)
    steps = alt.Scale(domain=[0, last], nice=False)
    x = alt.X("step:Q", title="optimizer step", scale=steps, axis=d.step_axis(last, tickCount=6))
    color = d.color(arms, styles)
    base = alt.Chart(alt.NamedData("bands"))
    y = alt.Y("mean:Q", title=curve["metric"], scale=scale)
    layers: list[Any] = []
    if any(row["low"] is not None for row in bands):
        area = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.17, clip=True)
        layers.append(area.encode(x=x, y=alt.Y("low:Q", title=curve["metric"], scale=scale), y2="high:Q", color=color))
    if bands:
        layers.append(
            base.mark_line(strokeWidth=2, clip=True).encode(x=x, y=y, color=color, strokeDash=d.dash(arms, styles))
        )
        tips = [
            d.tip("arm:N", "arm"),
            d.tip("step:Q", "step", ""),
            d.tip("mean:Q", "mean"),
            d.tip("low:Q", "95 % from"),
        ]
        tips += [d.tip("high:Q", "to"), d.tip("n:Q", "seeds")]
        layers.append(base.mark_circle(size=60, opacity=0, clip=True).encode(x=x, y=y, tooltip=tips))
    if lost:
        lines = alt.Chart(alt.NamedData("lost"))
        tips = [d.tip("arm:N", "arm"), d.tip("seed:O", "diverged, seed"), d.tip("step:Q", "step", "")]
        value = alt.Y("value:Q", title=curve["metric"], scale=scale)
        layers.append(
            lines.mark_line(strokeWidth=1, opacity=0.8, clip=True).encode(x=x, y=value, color=color, detail="seed:N")
        )
        cross = lines.transform_filter("datum.last").mark_point(shape=d.CROSS, size=90, strokeWidth=2, opacity=1)
        layers.append(cross.encode(x=x, y=value, color=color, tooltip=tips))
    description = f"Learning curves: {curve['metric']} over optimizer steps"
    return d.finish(alt.layer(*layers), 300, description, bands=bands, lost=lost)


def cost_chart(arms: Rows, styles: Styles, *, metric: str, cost: str) -> dict[str, Any]:
    """Cost on x against the outcome on y: mean and interval of each arm, its single runs behind, its name beside.

    Args:
        arms: `arms` of the summary; those without finished runs are left out.
        styles: Look of each arm.
        metric: Name of the outcome.
        cost: `"bitops"` (counted) or `"train_seconds"` (measured); never mixed in one chart.
    """
    import altair as alt

    if cost not in ("bitops", "train_seconds"):
        raise ValueError(f"`cost={cost!r}` must be 'bitops' or 'train_seconds'")
    shown = [row for row in arms if row["metric"]["n"] and row[cost]]
    unit, title = (1.0, "measured training seconds per run")
    if cost == "bitops":
        exponent = common_exponent([row[cost]["mean"] for row in shown])
        unit, title = 10.0**exponent, "BitOPs per run, counted"
        title += f" (× {power_of_ten(exponent)})" if exponent else ""
    means = [d.cost_row(row, cost, unit) for row in shown]
    log_scale = d.is_log([row["x"] for row in means])
    seeds = [
        {"arm": row["arm"], "seed": point["seed"], "x": point[cost] / unit, "value": point["value"]}
        for row in shown
        for point in row["points"]
        if point[cost] > 0
    ]
    d.place_labels(means, seeds, log_scale=log_scale)
    names = [row["arm"] for row in means]
    color = d.color(names, styles)
    x = alt.X("x:Q", title=title + (", log scale" if log_scale else ""), scale=d.cost_scale(means, seeds, log_scale))
    y = alt.Y("value:Q", title=metric, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=6))
    label = "BitOPs" if cost == "bitops" else "seconds"
    tips = [d.tip("arm:N", "arm"), d.tip("x:Q", label), d.tip("value:Q", f"mean {metric}"), d.tip("low:Q", "95 % from")]
    tips += [d.tip("high:Q", "to"), d.tip("n:Q", "runs")]
    base = alt.Chart(alt.NamedData("means"))
    single = alt.Chart(alt.NamedData("seeds")).mark_circle(size=18, opacity=0.35)
    single = single.encode(
        x=x,
        y=y,
        color=color,
        tooltip=[d.tip("arm:N", "arm"), d.tip("seed:O", "seed"), d.tip("x:Q", label), d.tip("value:Q", metric)],
    )
    valid = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2.5)
    low = alt.Y("low:Q", title=metric)
    has_bars = any(row["low"] is not None for row in means)
    bars = [valid.encode(x=x, y=low, y2="high:Q", color=color, tooltip=tips)] if has_bars else []
    dots = base.mark_point(size=110, filled=True, opacity=1).encode(
        x=x, y=y, color=color, shape=d.shape(names, styles), tooltip=tips
    )
    labels = [
        base.transform_filter(f"datum.side === '{side}' && datum.lift === {lift}")
        .mark_text(align=side, dx=9 if side == "left" else -9, dy=-lift, fontWeight=600, limit=150)
        .encode(x=x, y=y, text="arm:N")
        for side, lift in sorted({(row["side"], row["lift"]) for row in means if row["side"]})
    ]
    layers = [single, *bars, dots, *labels]
    return d.finish(alt.layer(*layers), 300, f"{metric} against {title}", means=means, seeds=seeds)


def precision_chart(line: Mapping[str, Any], styles: Styles, *, top: float, last_step: int) -> dict[str, Any]:
    """Bits over time of one arm as a step line.

    Args:
        line: One entry of `precision` of the summary.
        styles: Look of each arm.
        top: Most bits of any arm drawn on the same scale.
        last_step: Last step of any arm.
    """
    import altair as alt

    rows = [{"step": step, "bits": bits} for step, bits in line["points"]]
    ticks = [bits for bits in (2, 4, 8, 16, 32) if bits <= top] or [1]
    y = alt.Y(
        "bits:Q",
        title="bits",
        scale=alt.Scale(type="log", base=2, domain=[min(2, *(row["bits"] for row in rows)), max(top, 4)], nice=False),
        axis=alt.Axis(values=ticks, format="d"),
    )
    x = alt.X(
        "step:Q",
        title="optimizer step",
        scale=alt.Scale(domain=[0, last_step], nice=False),
        axis=d.step_axis(last_step, tickCount=4),
    )
    mark = alt.Chart(alt.NamedData("rows")).mark_line(
        interpolate="step-after", strokeWidth=1.8, color=styles[line["arm"]].color, strokeJoin="miter"
    )
    chart = mark.encode(x=x, y=y, tooltip=[d.tip("step:Q", "from step", ""), d.tip("bits:Q", "bits")])
    return d.finish(chart, 96, f"Bits over time of {line['arm']}", rows=rows)
