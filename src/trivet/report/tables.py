"""Tables of a report as HTML, Markdown and plain text, all from the summary.

A table is built once as headers and text cells and then rendered; every rendering escapes what users can name.
BitOPs and measured seconds stand in columns of their own.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trivet.report.numbers import (
    MISSING,
    common_exponent,
    count,
    decimals_for,
    interval,
    number,
    p_value,
    power_of_ten,
)

Summary = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Headers, rows of text, and which columns hold numbers.

    Examples:
        >>> print(Table(title="t", headers=("arm", "n"), rows=(("a", "8"),), numeric=frozenset({1})).to_text())
        arm  n
        ───  ─
        a    8
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    """Columns set flush right."""
    notes: tuple[str, ...] = ()
    """Sentences under the table: methods, units."""
    marks: Mapping[str, str] | None = None
    """HTML put before the first cell of the row whose first cell is the key; trusted, made by the page."""

    def to_text(self) -> str:
        """Aligned columns for a terminal."""
        head, *body = [tuple(printable(cell) for cell in row) for row in (self.headers, *self.rows)]
        widths = [max(_width(row[i]) for row in (head, *body)) for i in range(len(head))]
        rule = tuple("─" * width for width in widths)
        lines = []
        for row in (head, rule, *body):
            cells = [_pad(cell, widths[i], right=i in self.numeric) for i, cell in enumerate(row)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """A GitHub-style table."""
        rule = tuple("---:" if i in self.numeric else "---" for i in range(len(self.headers)))
        rows = [tuple(_markdown(cell) for cell in row) for row in (self.headers, *self.rows)]
        return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))

    def to_html(self) -> str:
        """A `<table>` in a box that scrolls by itself; all cells escaped."""
        from markupsafe import Markup, escape

        kind = ["num" if i in self.numeric else "txt" for i in range(len(self.headers))]
        head = "".join(f'<th scope="col" class="{kind[i]}">{escape(cell)}</th>' for i, cell in enumerate(self.headers))
        body = []
        for row in self.rows:
            mark = Markup((self.marks or {}).get(row[0], ""))
            cells = [f'<th scope="row">{mark}{escape(row[0])}</th>']
            cells += [f'<td class="{kind[i]}">{escape(cell)}</td>' for i, cell in enumerate(row) if i]
            body.append(f"<tr>{''.join(cells)}</tr>")
        notes = "".join(f"<p class='note'>{escape(note)}</p>" for note in self.notes)
        label = escape(self.title)
        return (
            f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>{notes}"
        )


def arms_table(summary: Summary, marks: Mapping[str, str] | None = None) -> Table:
    """One line an arm: runs, outcome with interval, counted BitOPs, measured seconds."""
    arms, metric = summary["arms"], summary["study"]["metric"]["name"]
    decimals = _shared_decimals([row["metric"] for row in arms])
    exponent = common_exponent([row["bitops"]["mean"] for row in arms if row["bitops"]])
    unit = f"BitOPs, {power_of_ten(exponent)}" if exponent else "BitOPs"
    headers = ("arm", "runs", metric, "95 % interval", "SD", unit, "vs baseline", "training, s")
    show_n = values_differ(summary)
    headers = (*headers[:2], "n", *headers[2:]) if show_n else headers
    rows = []
    for row in arms:
        found, bitops, seconds = row["metric"], row["bitops"], row["train_seconds"]
        relative = bitops and bitops.get("relative_to_baseline")
        rows.append(
            (
                row["arm"],
                runs_text(row["runs"]),
                *([str(found["n"])] if show_n else []),
                number(found["mean"], decimals),
                interval(found["low"], found["high"], decimals),
                number(found["sd"], None if decimals is None else decimals + 1),
                _three_digits(bitops["mean"] / 10.0**exponent) if bitops else MISSING,
                f"× {number(relative, 3)}" if relative else MISSING,
                _seconds(seconds) if seconds else MISSING,
            )
        )
    methods = list(dict.fromkeys(row["metric"]["method"] for row in arms if row["metric"]["low"] is not None))
    notes = [f"{metric}: mean over finished runs; interval: {'; '.join(methods)}; SD between seeds."] if methods else []
    if show_n:
        notes.append(f"n: values of {metric} that mean, interval and SD use; other finished runs did not report it.")
    notes.append(
        "Runs: finished of planned. BitOPs per run are counted from layer sizes and bit-widths and say nothing about "
        "time. Training seconds are measured wall time of the training loop per run, mean (SD), on the machine below; "
        "while bits are simulated, they do not show what low-precision hardware would save."
    )
    return Table(
        title="Arms",
        headers=headers,
        rows=tuple(rows),
        numeric=frozenset(range(2, len(headers))),
        notes=tuple(notes),
        marks=marks,
    )


def values_differ(summary: Summary) -> bool:
    """Whether some mean rests on fewer values than runs have finished, so that n has to stand beside it."""
    return any(row["metric"]["n"] != row["runs"]["finished"] for row in summary["arms"])


def comparisons_table(summary: Summary, marks: Mapping[str, str] | None = None) -> Table:
    """One line a comparison with the baseline: verdict, effect, interval, p-values, what could have been seen.

    With a null arm, also the effect in SDs of the seeds and as a multiple of what rounding explains.
    """
    rows = []
    null = summary["rounding"]
    for row in summary["comparisons"]:
        width = None if row["low"] is None else row["high"] - row["low"]
        decimals = decimals_for(width)
        rows.append(
            (
                row["arm"],
                row["label"],
                number(row["effect"], decimals, signed=True),
                interval(row["low"], row["high"], decimals, signed=True),
                *([_rough(row["in_seed_sds"]), rounding_text(row["rounding"])] if null else []),
                p_value(row["p"]),
                p_value(row["p_adjusted"]),
                f"{row['n_pairs']} of {row['n_pairs'] + row['pairs_lost']}",
                number(row["smallest_detectable"], decimals),
                MISSING if row["more_seeds"] is None else str(row["more_seeds"]),
            )
        )
    study = summary["study"]
    headers = ("arm", "verdict", "effect", "95 % interval", "p", "p, Holm", "pairs", "detectable", "more seeds")
    headers = (*headers[:4], "seed SDs", "× rounding", *headers[4:]) if null else headers
    notes = [
        f"Effect: mean of (arm − {study['baseline']}) over seeds, in units of {study['metric']['name']}. "
        + "; ".join(_methods(summary["comparisons"]))
        + ". p, Holm: corrected for all comparisons in this table. Detectable: smallest difference this many pairs "
        "would find with 80 % power. More seeds: how many more would probably decide it."
    ]
    if null:
        notes.append(
            f"Seed SDs: effect over the SD of {study['baseline']} between seeds. × rounding: effect over what rounding "
            f"alone explains, with its 90 % interval. {null['sentence']}"
        )
    return Table(
        title=f"Compared with {study['baseline']}",
        headers=headers,
        rows=tuple(rows),
        numeric=frozenset(range(2, len(headers))),
        notes=tuple(notes) if rows else (),
        marks=marks,
    )


def rounding_text(found: Mapping[str, Any] | None) -> str:
    """An effect as a multiple of what rounding explains.

    Examples:
        >>> rounding_text({"label": "larger", "ratio": 43.2, "ratio_low": 20.9, "ratio_high": 80.1})
        'larger: 43 (21 to 80)'
    """
    if found is None:
        return MISSING
    if found["ratio"] is None:
        return found["label"]
    low, high = _rough(found["ratio_low"]), _rough(found["ratio_high"])
    return f"{found['label']}: {_rough(found['ratio'])} ({low} to {high})"


def _rough(value: float | None) -> str:
    """Two digits, as many as a ratio of spreads from few seeds bears."""
    from trivet.stats.wording import plain_number

    return MISSING if value is None else plain_number(float(f"{value:.2g}"))


def missing_table(summary: Summary, marks: Mapping[str, str] | None = None) -> Table:
    """Runs that are in no mean, with the reason; runs of one arm with the same reason share a line."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    order = [row["arm"] for row in summary["arms"]]
    for row in sorted(summary["missing"], key=lambda row: (order.index(row["arm"]), row["state"], row["seed"])):
        groups.setdefault((row["arm"], row["state"], row["reason"]), []).append(row)
    rows = tuple(
        (arm, state, reason, ", ".join(str(row["seed"]) for row in same), _folders(same))
        for (arm, state, reason), same in groups.items()
    )
    return Table(
        title="Missing from the means, and why",
        headers=("arm", "state", "reason", "seeds", "run folders"),
        rows=rows,
        marks=marks,
    )


def _folders(rows: list[Mapping[str, Any]]) -> str:
    names = [row["folder"] for row in rows]
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


def differences_table(summary: Summary) -> Table:
    """One line a setting in which the runs' environments differ."""
    rows = []
    for row in summary["environment"]["differences"]:
        values = "; ".join(
            f"{value_text(v['value'])} ({count(v['runs'], 'run')}{_some_arms(v['arms'], summary)})"
            for v in row["values"]
        )
        rows.append((row["key"], values, "yes: mixed up with the arm" if row["confounded"] else "no"))
    return Table(
        title="Differences between the runs' environments",
        headers=("setting", "values", "differs exactly between arms"),
        rows=tuple(rows),
    )


def to_text(summary: Summary, *, width: int = 100) -> str:
    """The report for a terminal: question, what to know first, verdict sentences, tables, how to go on.

    Args:
        summary: What `summarize` returned.
        width: Columns for running text; tables keep their own width.
    """
    study, runs = summary["study"], summary["study"]["runs"]
    parts = [f"{study['name']}: {runs['finished']} of {count(runs['planned'], 'run')} finished", summary["question"]]
    first, later = split_notices(summary)
    parts += [f"! {notice}" for notice in first]
    parts += [f"{row['label'].upper()}: {verdict_text(row)}" for row in summary["comparisons"]]
    parts += [f"! {notice}" for notice in later]
    blocks = [textwrap.fill(printable(part), width, subsequent_indent="  ", break_on_hyphens=False) for part in parts]
    for table in _filled(summary):
        notes = [textwrap.fill(printable(note), width, break_on_hyphens=False) for note in table.notes]
        blocks.append("\n".join([table.title, table.to_text(), *notes]))
    return "\n\n".join(blocks) + "\n"


def to_markdown(summary: Summary) -> str:
    """The report as Markdown, for an issue or a pull request."""
    study = summary["study"]
    lines = [f"## {_markdown(study['name'])}", _markdown(summary["question"])]
    first, later = split_notices(summary)
    lines += [f"> {_markdown(notice)}" for notice in first]
    verdicts = [f"- **{row['label']}**: {_markdown(verdict_text(row))}" for row in summary["comparisons"]]
    lines += ["\n".join(verdicts)] if verdicts else []
    lines += [f"> {_markdown(notice)}" for notice in later]
    for table in _filled(summary):
        lines += [f"### {_markdown(table.title)}", table.to_markdown(), *(_markdown(note) for note in table.notes)]
    return "\n\n".join(lines) + "\n"


def verdict_text(row: Mapping[str, Any]) -> str:
    """The sentence of a comparison, and the one that holds it against rounding where there is a null arm."""
    return f"{row['sentence']} {row['rounding']['sentence']}" if row["rounding"] else row["sentence"]


def split_notices(summary: Summary) -> tuple[list[str], list[str]]:
    """Texts of the notices that come before the verdicts, and of those that come after them."""
    runs = summary["study"]["runs"]
    n = int(not runs["finished"]) + int(runs["running"] + runs["pending"] > 0) + int(runs["unreported"] > 0)
    return summary["notices"][:n], summary["notices"][n:]


def _filled(summary: Summary) -> list[Table]:
    tables = [comparisons_table(summary), arms_table(summary), missing_table(summary)]
    return [table for table in tables if table.rows]


def runs_text(runs: Mapping[str, int]) -> str:
    """How many runs finished, and what became of the others.

    Examples:
        >>> runs_text({"planned": 8, "finished": 6, "diverged": 1, "unreadable": 1})
        '6 of 8; 1 diverged, 1 unreadable'
    """
    states = ("diverged", "failed", "unreadable", "running", "pending")
    lost = [f"{runs[state]} {state}" for state in states if runs.get(state)]
    return "; ".join([f"{runs['finished']} of {runs['planned']}", *filter(None, [", ".join(lost)])])


def _three_digits(value: float) -> str:
    return number(value, decimals_for(value, significant=3))


def _seconds(seconds: Mapping[str, Any]) -> str:
    decimals = decimals_for(seconds["mean"], significant=3)
    spread = "" if seconds["sd"] is None else f" ({number(seconds['sd'], decimals)})"
    return f"{number(seconds['mean'], decimals)}{spread}"


def _shared_decimals(estimates: list[Mapping[str, Any]]) -> int | None:
    widths = [row["high"] - row["low"] for row in estimates if row["low"] is not None and row["high"] > row["low"]]
    return decimals_for(min(widths)) if widths else None


def _methods(comparisons: list[Mapping[str, Any]]) -> list[str]:
    intervals = dict.fromkeys(row["interval_method"] for row in comparisons if row["interval_method"])
    tests = dict.fromkeys(row["p_method"] for row in comparisons if row["p_method"])
    return (
        [f"Interval: {'; '.join(intervals)}", f"p: {'; '.join(tests)}"] if intervals and tests else ["No interval yet"]
    )


def _some_arms(arms: list[str], summary: Summary) -> str:
    return "" if len(arms) == len(summary["arms"]) else f": {', '.join(arms)}"


def value_text(value: Any) -> str:
    """A recorded setting as text.

    Examples:
        >>> value_text(None), value_text(True), value_text([1])
        ('not recorded', 'true', '[1]')
    """
    if value is None:
        return "not recorded"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is: markup signs escaped, on one line."""
    for sign in "\\`*_{}[]<>|#~":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return " ".join(text.split())


def printable(text: str) -> str:
    r"""Text that cannot steer a terminal: control characters and line breaks become spaces.

    Examples:
        >>> printable("a\x1b[31mb\nc")
        'a [31mb c'
    """
    return "".join(char if char.isprintable() else " " for char in text)


def _width(text: str) -> int:
    """Columns on a terminal; wide (East Asian) characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _pad(text: str, width: int, *, right: bool) -> str:
    gap = " " * (width - _width(text))
    return gap + text if right else text + gap
