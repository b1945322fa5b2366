"""Charts as Vega-Lite specifications, made with Altair from the plain rows of the summary.

Four kinds: paired differences with the margin, learning curves with bands over seeds, cost against outcome, precision
over time. Every interval drawn is one that trivet computed; Altair's own error bands (a bootstrap, too narrow for few
seeds) are never used. Charts carry no legend of their own: the page writes one that wraps on a phone, and
`styles.arm_styles` gives each arm the same look everywhere. Names of users only ever enter as data values and
titles, never as field names or expressions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trivet.report.numbers import common_exponent, power_of_ten
from trivet.report.styles import ArmStyle

if TYPE_CHECKING:
    import altair as alt

Rows = list[dict[str, Any]]
Styles = Mapping[str, ArmStyle]

LOG_SCALE_FROM = 6.0
"""Ratio of largest to smallest cost from which the cost axis is logarithmic."""
_NARROW = 250.0
"""Width in pixels that labels are laid out for: the plot area on a phone."""


def differences_chart(comparisons: Rows, styles: Styles, *, metric: str, margin: float) -> dict[str, Any]:
    """Paired differences per seed against the baseline: one line an arm, mean and interval above the single seeds.

    Args:
        comparisons: `comparisons` of the summary; those without pairs are left out.
        styles: Look of each arm.
        metric: Name of the outcome, for the axis.
        margin: Differences within ± this do not matter to the user; drawn as a band when above 0.
    """
    import altair as alt

    shown = [row for row in comparisons if row["differences"]]
    arms = [row["arm"] for row in shown]
    means = [
        {"arm": row["arm"], "value": row["effect"], "low": row["low"], "high": row["high"], "n": row["n_pairs"]}
        for row in shown
    ]
    seeds = [{"arm": row["arm"], **point} for row in shown for point in row["differences"]]
    x = alt.X("value:Q", title=f"difference in {metric}", scale=alt.Scale(zero=True, nice=True))
    y = alt.Y("arm:N", sort=None, axis=None, scale=alt.Scale(domain=arms))
    color = _color(arms, styles)
    tip_mean = [_tip("arm:N", "arm"), _tip("value:Q", "mean difference"), _tip("low:Q", "95 % from")]
    tip_mean += [_tip("high:Q", "to"), _tip("n:Q", "pairs")]
    layers: list[Any] = []
    if margin > 0:
        band = alt.Chart(_data([{"from": -margin, "to": margin}]))
        layers.append(band.mark_rect(color=_BAND, opacity=0.16).encode(x=alt.X("from:Q"), x2="to:Q"))
    layers.append(alt.Chart(_data([{"value": 0}])).mark_rule(color=_INK, opacity=0.75).encode(x=x))
    points = alt.Chart(_data(seeds)).mark_point(size=34, opacity=0.75, yOffset=17, strokeWidth=1.3)
    layers.append(
        points.encode(x=x, y=y, color=color, tooltip=[_tip("arm:N", "arm"), _tip("seed:O", "seed"), _tip("value:Q", "difference")])
    )
    base = alt.Chart(_data(means))
    layers.append(
        base.mark_rule(strokeWidth=3, strokeCap="round").encode(
            x=alt.X("low:Q"), x2="high:Q", y=y, color=color, tooltip=tip_mean
        )
    )
    layers.append(base.mark_point(size=95, filled=True, opacity=1).encode(x=x, y=y, color=color, tooltip=tip_mean))
    layers.append(
        base.mark_text(align="left", baseline="bottom", yOffset=-11, fontWeight=600, limit=300).encode(
            x=alt.value(4), y=y, text="arm:N"
        )
    )
    return _finish(alt.layer(*layers), 66 * max(1, len(arms)), f"Paired differences in {metric} per seed")


def learning_chart(curve: Mapping[str, Any], styles: Styles) -> dict[str, Any]:
    """Learning curves: mean over seeds with its band; runs that diverged as thin single lines that end in a cross.

    Args:
        curve: One entry of `curves` of the summary: `metric`, `bands`, `diverged`.
        styles: Look of each arm.
    """
    import altair as alt

    bands, lost = curve["bands"], curve["diverged"]
    arms = list(dict.fromkeys(row["arm"] for row in [*bands, *lost]))
    scale = alt.Scale(domain=_domain(bands, lost), zero=False, nice=True)
    x = alt.X("step:Q", title="optimizer step", axis=alt.Axis(format="~s"))
    color = _color(arms, styles)
    base = alt.Chart(_data(bands))
    y = alt.Y("mean:Q", title=curve["metric"], scale=scale)
    layers: list[Any] = []
    if any(row["low"] is not None for row in bands):
        area = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.17, clip=True)
        layers.append(area.encode(x=x, y=alt.Y("low:Q", title=curve["metric"], scale=scale), y2="high:Q", color=color))
    if bands:
        layers.append(
            base.mark_line(strokeWidth=2, clip=True).encode(x=x, y=y, color=color, strokeDash=_dash(arms, styles))
        )
        tips = [_tip("arm:N", "arm"), _tip("step:Q", "step", ""), _tip("mean:Q", "mean"), _tip("low:Q", "95 % from")]
        tips += [_tip("high:Q", "to"), _tip("n:Q", "seeds")]
        layers.append(base.mark_circle(size=60, opacity=0, clip=True).encode(x=x, y=y, tooltip=tips))
    if lost:
        lines = alt.Chart(_data(lost))
        tips = [_tip("arm:N", "arm"), _tip("seed:O", "diverged, seed"), _tip("step:Q", "step", ""), _tip("value:Q", "value")]
        value = alt.Y("value:Q", title=curve["metric"], scale=scale)
        layers.append(
            lines.mark_line(strokeWidth=1, opacity=0.8, clip=True).encode(x=x, y=value, color=color, detail="seed:N")
        )
        ends = lines.transform_filter("datum.last")
        cross = ends.mark_point(shape="M-1,-1L1,1M-1,1L1,-1", size=90, strokeWidth=2, opacity=1)
        # The end may lie outside the axis: it is drawn at the edge, where the line leaves the picture.
        low, high = scale.to_dict()["domain"]
        clamped = alt.Y("shown:Q", title=curve["metric"], scale=scale)
        cross = cross.transform_calculate(shown=f"clamp(datum.value, {low!r}, {high!r})")
        layers.append(cross.encode(x=x, y=clamped, color=color, tooltip=tips))
    return _finish(alt.layer(*layers), 300, f"Learning curves: {curve['metric']} over optimizer steps")


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
    means = [_cost_row(row, cost, unit) for row in shown]
    log_scale = _is_log([row["x"] for row in means])
    seeds = [
        {"arm": row["arm"], "seed": point["seed"], "x": point[cost] / unit, "value": point["value"]}
        for row in shown
        for point in row["points"]
    ]
    _place_labels(means, log_scale=log_scale)
    names = [row["arm"] for row in means]
    color = _color(names, styles)
    x = alt.X("x:Q", title=title + (", log scale" if log_scale else ""), scale=_cost_scale(means, seeds, log_scale))
    y = alt.Y("value:Q", title=metric, scale=alt.Scale(zero=False, nice=True))
    label = "BitOPs" if cost == "bitops" else "seconds"
    tips = [_tip("arm:N", "arm"), _tip("x:Q", label), _tip("value:Q", f"mean {metric}"), _tip("low:Q", "95 % from")]
    tips += [_tip("high:Q", "to"), _tip("n:Q", "runs")]
    base = alt.Chart(_data(means))
    single = alt.Chart(_data(seeds)).mark_circle(size=18, opacity=0.35)
    single = single.encode(x=x, y=y, color=color, tooltip=[_tip("arm:N", "arm"), _tip("seed:O", "seed"), _tip("x:Q", label), _tip("value:Q", metric)])
    bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2.5)
    bars = bars.encode(x=x, y=alt.Y("low:Q", title=metric), y2="high:Q", color=color, tooltip=tips)
    dots = base.mark_point(size=110, filled=True, opacity=1).encode(
        x=x, y=y, color=color, shape=_shape(names, styles), tooltip=tips
    )
    labels = [
        base.transform_filter(f"datum.side === '{side}' && datum.lift === {lift}")
        .mark_text(align=side, dx=9 if side == "left" else -9, dy=-lift, fontWeight=600, limit=150)
        .encode(x=x, y=y, text="arm:N")
        for side, lift in sorted({(row["side"], row["lift"]) for row in means})
    ]
    return _finish(alt.layer(single, bars, dots, *labels), 300, f"{metric} against {title}")


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
    x = alt.X("step:Q", title="optimizer step", scale=alt.Scale(domain=[0, last_step], nice=False), axis=alt.Axis(format="~s", tickCount=4))
    mark = alt.Chart(_data(rows)).mark_line(
        interpolate="step-after", strokeWidth=1.8, color=styles[line["arm"]].color, strokeJoin="miter"
    )
    chart = mark.encode(x=x, y=y, tooltip=[_tip("step:Q", "from step", ""), _tip("bits:Q", "bits")])
    return _finish(chart, 96, f"Bits over time of {line['arm']}")


_INK = "#3a4048"
_BAND = "#2f9e6e"


def _data(rows: Rows) -> alt.Data:
    import altair as alt

    return alt.Data(values=rows)


def _tip(field: str, title: str, format: str = ".4~g") -> alt.Tooltip:
    import altair as alt

    if field.endswith(":Q") and format:
        return alt.Tooltip(field, title=title, format=format)
    return alt.Tooltip(field, title=title)


def _color(arms: list[str], styles: Styles) -> alt.Color:
    import altair as alt

    scale = alt.Scale(domain=arms, range=[styles[arm].color for arm in arms])
    return alt.Color("arm:N", scale=scale, legend=None)


def _dash(arms: list[str], styles: Styles) -> alt.StrokeDash:
    import altair as alt

    scale = alt.Scale(domain=arms, range=[list(styles[arm].dash) or [1, 0] for arm in arms])
    return alt.StrokeDash("arm:N", scale=scale, legend=None)


def _shape(arms: list[str], styles: Styles) -> alt.Shape:
    import altair as alt

    scale = alt.Scale(domain=arms, range=[styles[arm].shape for arm in arms])
    return alt.Shape("arm:N", scale=scale, legend=None)


def _domain(bands: Rows, lost: Rows) -> list[float]:
    """Ends of the y axis: all means, and of the bands what lies within half the means' own range around them."""
    means = [row["mean"] for row in bands] or sorted(row["value"] for row in lost)[: max(1, len(lost) * 9 // 10)]
    low, high = min(means), max(means)
    room = (high - low) / 2 or abs(high) * 0.05 or 1.0
    low_band = min((row["low"] for row in bands if row["low"] is not None), default=low)
    high_band = max((row["high"] for row in bands if row["high"] is not None), default=high)
    low, high = max(min(low, low_band), low - room), min(max(high, high_band), high + room)
    pad = (high - low) * 0.02 or room
    return [low - pad, high + pad]


def _cost_row(row: Mapping[str, Any], cost: str, unit: float) -> dict[str, Any]:
    metric = row["metric"]
    return {
        "arm": row["arm"],
        "x": row[cost]["mean"] / unit,
        "value": metric["mean"],
        "low": metric["low"],
        "high": metric["high"],
        "n": metric["n"],
    }


def _is_log(values: list[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= LOG_SCALE_FROM


def _cost_scale(means: Rows, seeds: Rows, log_scale: bool) -> alt.Scale:
    import altair as alt

    values = [row["x"] for row in [*means, *seeds]]
    if log_scale:
        return alt.Scale(type="log", domain=[min(values) / 1.3, max(values) * 1.3], nice=False)
    top = max(values, default=1.0) or 1.0
    return alt.Scale(domain=[0, top * 1.08], nice=False)


def _place_labels(rows: Rows, *, log_scale: bool, height: float = 270.0) -> None:
    """Set `side` and `lift` (pixels upwards) of each name so that no two overlap, even on a phone."""
    if not rows:
        return
    xs = [math.log(row["x"]) if log_scale else row["x"] for row in rows]
    x_low, x_high = (min(xs), max(xs)) if log_scale else (0.0, max(xs))
    x_span = (x_high - x_low) or 1.0
    ends = [end for row in rows for end in (row["low"], row["high"], row["value"]) if end is not None]
    y_span = (max(ends) - min(ends)) or 1.0
    taken: list[tuple[float, float, float]] = []
    for index in sorted(range(len(rows)), key=lambda i: -rows[i]["value"]):
        row = rows[index]
        center = (xs[index] - x_low) / x_span * _NARROW
        row["side"] = "left" if center < _NARROW / 2 else "right"
        width = 9 + min(150.0, 7.0 * len(row["arm"]))
        left, right = (center, center + width) if row["side"] == "left" else (center - width, center)
        level = (row["value"] - min(ends)) / y_span * height
        row["lift"] = 0
        for step in (0, 16, -16, 32, -32, 48, -48, 64, -64):
            spot = level + step
            if all(right < a or left > b or abs(spot - y) >= 15 for a, b, y in taken):
                row["lift"] = step
                break
        taken.append((left, right, level + row["lift"]))


def _finish(chart: Any, height: int, description: str) -> dict[str, Any]:
    """The specification with the size, the quiet look and the spoken description that all charts share."""
    axis = {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "titleLimit": 280,
        "grid": True,
        "gridOpacity": 0.5,
        "tickSize": 4,
        "labelOverlap": "greedy",
        "domain": False,
    }
    spec = chart.properties(width="container", height=height, description=description, background="transparent")
    font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
    done = spec.configure(font=font, padding=4).configure_view(stroke=None).configure_axis(**axis)
    return done.to_dict()
