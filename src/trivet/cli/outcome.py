"""How the outcome of a study looks in a terminal: verdict sentences first, then the arms, then what is missing.

The figures come from the report's summary, so the terminal, the page and the JSON cannot disagree.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from trivet.cli.console import console, table

COLORS = {"different": "bold magenta", "equivalent": "bold green", "undecided": "bold yellow"}
Summary = Mapping[str, Any]


def print_outcome(summary: Summary) -> None:
    """Print question, notices, verdicts, arms and missing runs of a summary made by `trivet.report.summarize`."""
    screen = console()
    screen.print(f"{summary['study']['name']}: {summary['question']}", style="bold", soft_wrap=False)
    for notice in summary["notices"]:
        screen.print(f"! {notice}", style="yellow")
    print_verdicts(summary)
    print()
    screen.print(arms(summary))
    for line in notes(summary):
        screen.print(line, style="dim")
    if summary["missing"]:
        print()
        screen.print(_missing(summary))
        screen.print(f"the log of each run: {summary['study']['folder']}/RUN/log.txt", style="dim")


def print_verdicts(summary: Summary) -> None:
    """One paragraph a comparison: the label, then the sentence."""
    from rich.text import Text

    from trivet.report.tables import verdict_text

    screen = console()
    width = min(screen.width, 110)
    for row in summary["comparisons"]:
        print()
        label = row["label"].upper()
        lines = textwrap.wrap(f"{label}  {verdict_text(row)}", width, subsequent_indent="  ", break_on_hyphens=False)
        text = Text("\n".join(lines))
        text.stylize(COLORS.get(row["label"], "bold"), 0, len(label))
        screen.print(text, soft_wrap=True)


def arms(summary: Summary) -> Any:
    """The table of arms: runs, outcome with its interval, counted BitOPs, measured seconds."""
    from trivet.report.numbers import common_exponent, decimals_for, interval, number, power_of_ten
    from trivet.report.tables import values_differ

    rows, show_n = summary["arms"], values_differ(summary)
    widths = [row["metric"]["high"] - row["metric"]["low"] for row in rows if row["metric"]["low"] is not None]
    decimals = decimals_for(min((width for width in widths if width > 0), default=None))
    exponent = common_exponent([row["bitops"]["mean"] for row in rows if row["bitops"]])
    unit = f"BitOPs, {power_of_ten(exponent)}" if exponent else "BitOPs"
    columns = ["arm", "finished", *["n"] * show_n, summary["study"]["metric"]["name"], "95 % interval"]
    bitops, diverged = any(row["bitops"] for row in rows), any(row["runs"]["diverged"] for row in rows)
    columns += ["diverged"] * diverged + [unit, f"/ {summary['study']['baseline']}"] * bitops + ["training, s"]
    body = []
    for row in rows:
        runs, metric, seconds = row["runs"], row["metric"], row["train_seconds"]
        cells = [row["arm"], f"{runs['finished']} of {runs['planned']}", *[str(metric["n"])] * show_n]
        cells += [number(metric["mean"], decimals)]
        cells += [interval(metric["low"], metric["high"], decimals)]
        cells += [str(runs["diverged"])] * diverged
        if bitops:
            relative = row["bitops"] and row["bitops"].get("relative_to_baseline")
            cells += [number(row["bitops"]["mean"] / 10.0**exponent) if row["bitops"] else "–"]
            cells += [f"{relative:.1%}" if relative else "–"]
        cells += [number(seconds["mean"], decimals_for(seconds["mean"], significant=3)) if seconds else "–"]
        body.append(cells)
    return table(columns, body)


def notes(summary: Summary) -> list[str]:
    """What the table's figures are: n, method, counted or measured."""
    from trivet.report.tables import values_differ

    methods = dict.fromkeys(row["metric"]["method"] for row in summary["arms"] if row["metric"]["low"] is not None)
    found = [f"mean over finished runs; interval: {'; '.join(methods)}"] if methods else []
    if values_differ(summary):
        found.append(f"n: values of {summary['study']['metric']['name']}; other finished runs did not report it")
    if summary["rounding"]:
        found.append(summary["rounding"]["sentence"])
    if any(row["bitops"] for row in summary["arms"]):
        found.append("BitOPs are counted, seconds are measured; neither says anything about the other")
    return found


def _missing(summary: Summary) -> Any:
    rows = [[row["run_id"], row["arm"], str(row["seed"]), row["state"], row["reason"]] for row in summary["missing"]]
    shown, more = rows[:12], len(rows) - 12
    if more > 0:
        shown.append(["…", f"{more} more", "", "", "see `trivet status`"])
    return table(["run", "arm", "seed", "state", "reason"], shown, left=(0, 1, 3, 4))
