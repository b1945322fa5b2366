"""Write the report of a study: one self-contained HTML page and its JSON twin.

The page carries its style, its charts and the drawing library inside, works from `file://` with the network off (its
content security policy allows no request at all), and follows the reader's light or dark setting. All names
that a user can choose are escaped, in the page and in the charts' JSON alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.core.io import write_json, write_text
from trivet.report import tables
from trivet.report.bundle import javascript
from trivet.report.charts import cost_chart, differences_chart, learning_chart, precision_chart
from trivet.report.numbers import count, listing, number
from trivet.report.starts import starts_table
from trivet.report.styles import ArmStyle, arm_styles
from trivet.report.summary import summarize

if TYPE_CHECKING:
    from trivet.study.results import Results

Summary = Mapping[str, Any]


def build(results: Results, out: Path | None = None) -> Path:
    """Write `report.html` and `report.json`, atomically.

    Args:
        results: Records of the study, complete or not; what is missing is said in the report.
        out: Folder to write into, or the path of the HTML file (ending in `.html`); the study folder by default.

    Returns:
        Path of the HTML file; the JSON file lies beside it with the ending `.json`.

    Raises:
        ValueError: The study has no runs at all.
        OSError: The folder cannot be written; older reports stay as they were.
    """
    target = Path(out) if out is not None else Path(results.folder)
    page = target if target.suffix == ".html" else target / "report.html"
    summary = summarize(results)
    html = render(summary)
    write_json(page.with_suffix(".json"), summary)
    write_text(page, html)
    return page


def render(summary: Summary) -> str:
    """The HTML page of a summary, as one string."""
    from jinja2 import Environment

    files = resources.files("trivet.report")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["glue"] = glue
    template = environment.from_string(files.joinpath("template.html.j2").read_text(encoding="utf-8"))
    arms = [row["arm"] for row in summary["arms"]]
    first_notices, later_notices = tables.split_notices(summary)
    styles = arm_styles(arms, summary["study"]["baseline"] if len(arms) > 1 else "")
    chips = {arm: chip(styles[arm]) for arm in arms}
    precision, specs = _precision(summary, styles)
    curves = [{**curve, "id": f"curve-{i}"} for i, curve in enumerate(summary["curves"])]
    specs |= {curve["id"]: learning_chart(curve, styles) for curve in curves}
    specs |= _outcome_charts(summary, styles)
    drawn = {row["arm"] for curve in summary["curves"] for row in (*curve["bands"], *curve["diverged"])}
    return template.render(
        s=summary,
        style=files.joinpath("page.css").read_text(encoding="utf-8"),
        script=files.joinpath("page.js").read_text(encoding="utf-8"),
        bundle=javascript(),
        specs=specs,
        specs_json=json_for_script(specs),
        chips=chips,
        first_notices=first_notices,
        later_notices=later_notices,
        legend=[arm for arm in arms if arm in drawn],
        curves=curves,
        environment_line=f"{count(summary['environment']['runs'], 'run')} recorded an environment; they all agree.",
        any_lost=any(curve["diverged"] for curve in curves),
        precision=precision,
        margin=number(summary["study"]["metric"]["margin"]),
        arms_table=tables.arms_table(summary, chips).to_html(),
        comparisons_table=tables.comparisons_table(summary, chips).to_html(),
        missing_table=tables.missing_table(summary, chips).to_html(),
        starts_table=starts_table(summary["starts"], chips).to_html(),
        differences_table=tables.differences_table(summary).to_html(),
        show=tables.value_text,
        harness=harness_text(summary["harness"]),
    )


def glue(text: str) -> str:
    r"""Keep `n = 8`, `p < 0.05` and `95 %` on one line.

    Examples:
        >>> glue("n = 8 pairs, 95 %") == "n\u00a0=\u00a08 pairs, 95\u00a0%"
        True
    """
    return re.sub(r"\b([np]) ([=<]) (?=\d)", "\\1\u00a0\\2\u00a0", text).replace(" %", "\u00a0%")


def json_for_script(value: Any) -> str:
    r"""JSON that can stand inside a `<script>` element whatever its strings hold.

    Examples:
        >>> json_for_script("</script><!--")
        '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def harness_text(harness: Mapping[str, float] | None) -> str:
    """How much of the slots' time was training, and where the rest went; empty when it was not recorded.

    Examples:
        >>> harness_text({"slot_seconds": 20, "train": 16, "waiting": 2, "overhead": 2, "idle": 0})
        '80 % of 20.0 slot-seconds was training, 10 % waiting for the warm server, 10 % overhead of runs, \
0 % empty slots'
    """
    if not harness or not harness["slot_seconds"]:
        return ""
    total = harness["slot_seconds"]
    names = {"train": "was training", "waiting": "waiting for the warm server", "overhead": "overhead of runs"}
    names["idle"] = "empty slots"
    first, *rest = [f"{100 * harness[key] / total:.0f} % {{of}}{text}" for key, text in names.items()]
    return ", ".join([first.format(of=f"of {total:.1f} slot-seconds "), *(part.format(of="") for part in rest)])


def chip(style: ArmStyle) -> str:
    """The arm's line and point as a small inline picture; no text of the user's is in it."""
    dash = f' stroke-dasharray="{" ".join(map(str, style.dash))}"' if style.dash else ""
    return (
        '<svg class="chip" viewBox="0 0 26 14" aria-hidden="true">'
        f'<path d="M1 7H25" stroke="{style.color}" stroke-width="2.4"{dash} fill="none"/>'
        f'<path d="{_SHAPES[style.shape]}" fill="{style.color}"/></svg>'
    )


_SHAPES = {
    "circle": "M9 7a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "square": "M9.3 3.3h7.4v7.4h-7.4Z",
    "triangle-up": "M13 2.2l4.8 8.6h-9.6Z",
    "triangle-down": "M13 11.8l4.8 -8.6h-9.6Z",
    "triangle-right": "M17.5 7l-8.6 -4.8v9.6Z",
    "diamond": "M13 1.6l4 5.4l-4 5.4l-4 -5.4Z",
    "cross": "M11.4 2.6h3.2v2.8h2.8v3.2h-2.8v2.8h-3.2v-2.8h-2.8v-3.2h2.8Z",
}


def _outcome_charts(summary: Summary, styles: Mapping[str, ArmStyle]) -> dict[str, Any]:
    metric = summary["study"]["metric"]
    specs: dict[str, Any] = {}
    if any(row["effect"] is not None for row in summary["comparisons"]):
        specs["differences"] = differences_chart(
            summary["comparisons"], styles, metric=metric["name"], margin=metric["margin"]
        )
    for name, cost in (("cost-bitops", "bitops"), ("cost-seconds", "train_seconds")):
        if any(row["metric"]["n"] and row[cost] for row in summary["arms"]):
            specs[name] = cost_chart(summary["arms"], styles, metric=metric["name"], cost=cost)
    return specs


def _precision(summary: Summary, styles: Mapping[str, ArmStyle]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Panels of bits over time (arms with the same line share one) and their specifications."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in summary["precision"]:
        lines.setdefault(json.dumps(line["points"]), []).append(line)
    top = max((bits for line in summary["precision"] for _, bits in line["points"]), default=0)
    last = max((line["points"][-1][0] for line in summary["precision"]), default=0)
    panels: list[dict[str, Any]] = []
    specs: dict[str, Any] = {}
    for i, same in enumerate(lines.values()):
        line, name = same[0], f"precision-{i}"
        caption = f"mean {number(line['mean_bits'], 1)} bits over {count(line['logged'], 'logged step')}"
        if not all(row["seeds_agree"] for row in same):
            caption += "; seeds differ, one of them is drawn"
        panels.append(
            {"arm": line["arm"], "title": listing([row["arm"] for row in same]), "id": name, "caption": caption}
        )
        specs[name] = precision_chart(line, styles, top=top, last_step=last)
    return panels, specs
