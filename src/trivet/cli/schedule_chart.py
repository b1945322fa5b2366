"""The ten schedules as one picture: small multiples of bits over time, cheapest first, one color a cost group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.core.io import replacing

if TYPE_CHECKING:
    import altair as alt

COLORS = {"small": "#0c9a76", "medium": "#2b7fc4", "large": "#d4610c"}
INK, QUIET, GRID = "#1f2430", "#6b7280", "#e5e7eb"
FONT = "Inter, 'Helvetica Neue', Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
PER_ROW = 5


def draw(
    figures: Sequence[Mapping[str, Any]], path: Path, *, q_min: int, q_max: int, steps: int, num_cycles: int
) -> None:
    """Write the picture; the format follows the suffix (.svg, .png or .html, which needs no network).

    Args:
        figures: One mapping a schedule: `name`, `group`, `mean_bits`, `saving`, `changes` ([step, bits] pairs).
        path: File to write.
        q_min: Fewest bits.
        q_max: Most bits.
        steps: Optimizer steps.
        num_cycles: Cycles, for the subtitle.
    """
    chart = picture(figures, q_min=q_min, q_max=q_max, steps=steps, num_cycles=num_cycles)
    more: dict[str, Any] = {".html": {"inline": True}, ".png": {"scale_factor": 2}}.get(path.suffix, {})
    with replacing(path) as beside:
        chart.save(str(beside), **more)


def picture(
    figures: Sequence[Mapping[str, Any]], *, q_min: int, q_max: int, steps: int, num_cycles: int
) -> alt.TopLevelMixin:
    """The picture as an Altair chart; arguments as in `draw`."""
    import altair as alt

    panels = [
        _panel(row, q_min, q_max, steps, left=index % PER_ROW == 0, bottom=index >= len(figures) - PER_ROW)
        for index, row in enumerate(figures)
    ]
    rows = [alt.hconcat(*panels[start : start + PER_ROW], spacing=22) for start in range(0, len(panels), PER_ROW)]
    subtitle = [
        f"Bits of the forward pass, {q_min} to {q_max} in {num_cycles} cycles over {steps:,} steps. "
        f"The percentage is the saving in counted BitOPs against static {q_max} bits;",
        "the color and the last word are the group by compute: small, medium, large. Cheapest first.",
    ]
    title = alt.TitleParams(
        "Precision schedules" if len(figures) > 1 else f"Precision schedule {figures[0]['name']}",
        subtitle=subtitle if len(figures) > 1 else [],
        anchor="start",
        fontSize=22,
        fontWeight=600,
        subtitleFontSize=13,
        subtitlePadding=8,
        subtitleColor=QUIET,
        color=INK,
        offset=22,
    )
    return (
        alt.vconcat(*rows, spacing=30, title=title, background="white", padding=26)
        .configure(font=FONT)
        .configure_view(stroke=None)
        .configure_axis(
            grid=True,
            gridColor=GRID,
            domain=False,
            ticks=False,
            labelColor=QUIET,
            labelFontSize=11,
            labelPadding=6,
            titleColor=QUIET,
            titleFontSize=11,
            titleFontWeight="normal",
        )
    )


def _panel(row: Mapping[str, Any], q_min: int, q_max: int, steps: int, *, left: bool, bottom: bool) -> Any:
    import altair as alt

    changes = [*row["changes"], [steps, row["changes"][-1][1]]]
    data = alt.Data(values=[{"step": step, "bits": bits, "floor": q_min - 0.5} for step, bits in changes])
    color = COLORS.get(row["group"], QUIET)
    x = alt.X(
        "step:Q",
        title="optimizer step" if bottom else None,
        scale=alt.Scale(domain=[0, steps], nice=False),
        axis=alt.Axis(
            values=[0, steps / 2, steps],
            labelExpr="datum.value === 0 ? '0' : format(datum.value, '~s')",
            grid=False,
            labels=bottom,
            labelFlush=True,
        ),
    )
    every = max(1, -(-(q_max - q_min) // 6))
    y = alt.Y(
        "bits:Q",
        title="bits" if left else None,
        scale=alt.Scale(domain=[q_min - 0.5, q_max + 0.3], nice=False),
        axis=alt.Axis(values=list(range(q_min, q_max + 1, every)), format="d", labels=left),
    )
    base = alt.Chart(data).encode(x=x)
    area = base.mark_area(interpolate="step-after", color=color, opacity=0.13).encode(y=y, y2="floor:Q")
    line = base.mark_line(interpolate="step-after", color=color, strokeWidth=1.9, strokeJoin="round").encode(y=y)
    title = alt.TitleParams(
        f"{row['name']}\u2002−{row['saving']:.0%}" if row["saving"] > 0.005 else row["name"],
        subtitle=f"{row['mean_bits']:.2f} bits on average · {row['group']}",
        anchor="start",
        frame="group",
        color=color,
        fontSize=15,
        fontWeight=600,
        subtitleColor=QUIET,
        subtitleFontSize=11,
        offset=8,
    )
    return alt.layer(area, line).properties(width=196, height=118, title=title)
