"""Parts that the charts share: looks, axes, what lies inside the picture, where names go.

Nothing here knows what a chart says; see `charts` for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trivet.report.styles import ArmStyle

if TYPE_CHECKING:
    import altair as alt

Rows = list[dict[str, Any]]
Styles = Mapping[str, ArmStyle]

LOG_SCALE_FROM = 6.0
"""Ratio of largest to smallest cost from which the cost axis is logarithmic."""
NARROW = 250.0
"""Width in pixels that labels are laid out for: the plot area on a phone."""
INK = "#3a4048"
BAND = "#2f9e6e"
CROSS = "M-1,-1L1,1M-1,1L1,-1"


def tip(field: str, title: str, format: str = ".4~g") -> alt.Tooltip:
    """A line of a tooltip; numbers with four digits unless `format` is empty."""
    import altair as alt

    if field.endswith(":Q") and format:
        return alt.Tooltip(field, title=title, format=format)
    return alt.Tooltip(field, title=title)


def color(arms: list[str], styles: Styles) -> alt.Color:
    """Color by arm."""
    import altair as alt

    scale = alt.Scale(domain=arms, range=[styles[arm].color for arm in arms])
    return alt.Color("arm:N", scale=scale, legend=None)


def dash(arms: list[str], styles: Styles) -> alt.StrokeDash:
    """Dash pattern by arm."""
    import altair as alt

    scale = alt.Scale(domain=arms, range=[list(styles[arm].dash) or [1, 0] for arm in arms])
    return alt.StrokeDash("arm:N", scale=scale, legend=None)


def shape(arms: list[str], styles: Styles) -> alt.Shape:
    """Point shape by arm."""
    import altair as alt

    scale = alt.Scale(domain=arms, range=[styles[arm].shape for arm in arms])
    return alt.Shape("arm:N", scale=scale, legend=None)


def domain(curve: Mapping[str, Any]) -> list[float]:
    """Ends of the y axis, so that what happens after the first fifth of the training can be seen.

    They hold all means from there on, and of the bands what lies within half the means' own range around them;
    the steep beginning and what diverges may leave the picture.
    """
    bands, lost, last = curve["bands"], curve["diverged"], last_step(curve)
    late = [row for row in bands if row["step"] >= last / 5] or bands
    means = [row["mean"] for row in late] or sorted(row["value"] for row in lost)[: max(1, len(lost) * 9 // 10)]
    low, high = min(means), max(means)
    room = (high - low) / 2 or abs(high) * 0.05 or 1.0
    low_band = min((row["low"] for row in late if row["low"] is not None), default=low)
    high_band = max((row["high"] for row in late if row["high"] is not None), default=high)
    low, high = max(min(low, low_band), low - room), min(max(high, high_band), high + room)
    pad = (high - low) * 0.04 or room
    return [low - pad, high + pad]


def last_step(curve: Mapping[str, Any]) -> int:
    """Last step that anything was logged at."""
    return max(row["step"] for row in [*curve["bands"], *curve["diverged"]])


def within(lost: Rows, domain: list[float]) -> Rows:
    """Single lines cut where they leave the picture for good; the cut end is put on the edge and is the last."""
    low, high = domain
    runs: dict[tuple[str, int], Rows] = {}
    for row in lost:
        runs.setdefault((row["arm"], row["seed"]), []).append(row)
    out: Rows = []
    for rows in runs.values():
        inside = [i for i, row in enumerate(rows) if low <= row["value"] <= high]
        end = min((inside[-1] if inside else -1) + 1, len(rows) - 1)
        out += [
            {**row, "value": min(max(row["value"], low), high) if i == end else row["value"], "last": i == end}
            for i, row in enumerate(rows[: end + 1])
        ]
    return out


def step_axis(last: float, **more: Any) -> alt.Axis:
    """Axis of optimizer steps: whole numbers, in thousands where they are long."""
    import altair as alt

    return alt.Axis(format="~s" if last >= 20_000 else ",d", tickMinStep=1, **more)


def effect_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the differences chart draws of one comparison."""
    inner = row["equivalence"] or {}
    return {
        "arm": row["arm"],
        "value": row["effect"],
        "low": row["low"],
        "high": row["high"],
        "inner_low": inner.get("low"),
        "inner_high": inner.get("high"),
        "n": row["n_pairs"],
    }


def cost_row(row: Mapping[str, Any], cost: str, unit: float) -> dict[str, Any]:
    """What the cost chart draws of one arm."""
    metric = row["metric"]
    return {
        "arm": row["arm"],
        "x": row[cost]["mean"] / unit,
        "value": metric["mean"],
        "low": metric["low"],
        "high": metric["high"],
        "n": metric["n"],
    }


def is_log(values: list[float]) -> bool:
    """Whether costs lie so far apart that the axis is logarithmic."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= LOG_SCALE_FROM


def cost_scale(means: Rows, seeds: Rows, log_scale: bool) -> alt.Scale:
    """Scale of the cost axis; from 0 unless logarithmic."""
    import altair as alt

    values = [row["x"] for row in [*means, *seeds]]
    if log_scale:
        return alt.Scale(type="log", domain=[min(values) / 1.3, max(values) * 1.3], nice=False)
    top = max(values, default=1.0) or 1.0
    return alt.Scale(domain=[0, top * 1.08], nice=False)


def place_labels(rows: Rows, seeds: Rows, *, log_scale: bool, height: float = 230.0) -> None:
    """Set `side` and `lift` (pixels upwards) of each name so that none overlaps another, even on a phone.

    A place near the mark and off other arms' bars is taken first; a name that finds no place gets the side "".

    Args:
        rows: What `cost_row` gives; changed in place.
        seeds: Single runs with their `value`; they stretch the axis.
        log_scale: Whether the cost axis is logarithmic.
        height: Pixels between the lowest and the highest thing drawn; a little less than the plot's own height, because
            the axis ends at round numbers.
    """
    if not rows:
        return
    xs = [math.log(row["x"]) if log_scale else row["x"] for row in rows]
    x_low, x_high = (min(xs), max(xs)) if log_scale else (0.0, max(xs))
    ends = [end for row in rows for end in (row["low"], row["high"], row["value"]) if end is not None]
    ends += [row["value"] for row in seeds]
    y_low, y_span = min(ends), (max(ends) - min(ends)) or 1.0

    def level(value: float) -> float:
        return (value - y_low) / y_span * height

    centers = [(x - x_low) / ((x_high - x_low) or 1.0) * NARROW for x in xs]
    bars: list[Box] = []
    for center, row in zip(centers, rows, strict=True):
        low, high = (row["value"] if end is None else end for end in (row["low"], row["high"]))
        bars.append((center - 6, center + 6, level(low) - 6, level(high) + 6))
    taken: list[Box] = []
    for index in sorted(range(len(rows)), key=lambda i: -rows[i]["value"]):
        row, others = rows[index], [bar for i, bar in enumerate(bars) if i != index]
        places = _places(row["arm"], centers[index], level(row["value"]))
        free = [place for place in places if not any(_overlap(place[2], box) for box in taken)]
        costs = [abs(lift) + 20 * any(_overlap(box, bar) for bar in others) for _, lift, box in free]
        row["side"], row["lift"], box = free[costs.index(min(costs))] if free else ("", 0, None)
        taken += [box] if box else []


Box = tuple[float, float, float, float]
"""Left, right, bottom, top, in pixels."""


def _places(name: str, center: float, level: float) -> list[tuple[str, int, Box]]:
    """Places for a name beside its mark, the best first: towards the middle of the plot, then moved up and down."""
    width = 9 + min(150.0, 7.0 * len(name))
    sides = ("left", "right") if center < NARROW / 2 else ("right", "left")
    places: list[tuple[str, int, Box]] = []
    for lift in (0, 16, -16, 32, -32, 48, -48):
        for side in sides:
            left, right = (center + 7, center + width) if side == "left" else (center - width, center - 7)
            if side == sides[0] or (left >= 0 and right <= NARROW):
                places.append((side, lift, (left, right, level + lift - 7.5, level + lift + 7.5)))
    return places


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def finish(chart: Any, height: int, description: str, **tables: Rows) -> dict[str, Any]:
    """The specification with the size, the quiet look and the spoken description that all charts share.

    Args:
        chart: An Altair chart whose data are named.
        height: Pixels of the plot; the width follows the box.
        description: What a screen reader says.
        tables: Rows of each named data set; each is written once, however many layers use it.
    """
    axis = {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "titleLimit": 280,
        "grid": True,
        "gridOpacity": 0.5,
        "tickSize": 4,
        "labelOverlap": "parity",
        "labelSeparation": 5,
        "domain": False,
    }
    spec = chart.properties(width="container", height=height, description=description, background="transparent")
    font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
    done = spec.configure(font=font, padding=4).configure_view(stroke=None).configure_axis(**axis)
    return {**done.to_dict(), "datasets": tables}
