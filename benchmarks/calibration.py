"""How often `trivet.stats.decide` is right: false alarms, power and equivalence on simulated studies.

    python benchmarks/calibration.py [--studies 4000] [--figure docs/figures/calibration.svg]

Every number comes from the real `decide`, called once per simulated study. Outcomes are in units of the standard
deviation of the paired difference. The Monte-Carlo error given is one standard error.
Not covered: real training runs, whose outcomes need not follow any of these distributions.
"""

import argparse
import datetime
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trivet.stats import Verdict, decide, seeds_needed

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
Rows = list[dict[str, object]]

SEED = 2026
PAIRS = (6, 8, 10, 12, 16, 24)
CURVES = (6, 8, 12, 24)
UNITS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
LOGNORMAL_MEAN = math.exp(0.5)
LOGNORMAL_SD = math.sqrt((math.e - 1) * math.e)


def _two_arms(draw: Draw, sd: float) -> Draw:
    """Differences of two arms with the same distribution, scaled to standard deviation 1."""
    return lambda rng, shape: (draw(rng, shape) - draw(rng, shape)) / (sd * math.sqrt(2))


KINDS: dict[str, Draw] = {
    "normal": _two_arms(lambda rng, shape: rng.normal(size=shape), 1.0),
    "log-normal arms": _two_arms(lambda rng, shape: rng.lognormal(size=shape), LOGNORMAL_SD),
    "heavy-tailed arms (t, 3 df)": _two_arms(lambda rng, shape: rng.standard_t(3, size=shape), math.sqrt(3)),
    "log-normal differences": lambda rng, shape: (rng.lognormal(size=shape) - LOGNORMAL_MEAN) / LOGNORMAL_SD,
}
"""Simulated differences with mean 0. In the last kind one arm alone is skewed, and so are the differences."""


def verdicts(differences: np.ndarray, margin: float) -> list[Verdict]:
    """Decide on every row."""
    zero = np.zeros(differences.shape[1])
    return [decide(zero, row, margin) for row in differences]


def error_rates(studies: int) -> tuple[Rows, Rows]:
    """False alarms (true difference 0) and false equivalence (true difference at the margin of 1.5 SD)."""
    alarms: Rows = []
    false_equal: Rows = []
    for kind, draw in KINDS.items():
        for n in PAIRS:
            rng = np.random.default_rng([SEED, n, len(kind)])
            noise = draw(rng, (studies, n))
            rate = float(np.mean([v.sure_difference for v in verdicts(noise, 0.0)]))
            alarms.append({"kind": kind, "n": n, "rate": rate, "error": math.sqrt(rate * (1 - rate) / studies)})
            half = noise[: studies // 2]
            sides = [float(np.mean([v.within_margin for v in verdicts(half + s, 1.5)])) for s in (1.5, -1.5)]
            worst = max(sides)
            error = math.sqrt(worst * (1 - worst) / (studies // 2))
            false_equal.append({"kind": kind, "n": n, "rate": worst, "error": error})
    return alarms, false_equal


def curves(studies: int) -> tuple[Rows, Rows]:
    """Power against the true difference, and P("equivalent") against the margin at true difference 0; normal."""
    power: Rows = []
    equal: Rows = []
    for n in CURVES:
        for unit in UNITS:
            noise = np.random.default_rng([SEED, n, int(100 * unit)]).normal(size=(studies, n))
            rate = float(np.mean([v.label == "different" for v in verdicts(noise + unit, 0.0)]))
            power.append({"n": n, "unit": unit, "rate": rate})
            rate = float(np.mean([v.within_margin for v in verdicts(noise, unit)])) if unit else 0.0
            equal.append({"n": n, "unit": unit, "rate": rate})
    return power, equal


def plans(studies: int) -> Rows:
    """Planned number of pairs (`seeds_needed`, power 80 %) and the power really reached."""
    rows: Rows = []
    for unit in (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0):
        find, show = seeds_needed(1.0, difference=unit), seeds_needed(1.0, margin=unit)
        rng = np.random.default_rng([SEED, 7, int(100 * unit)])
        found = [v.label == "different" for v in verdicts(rng.normal(unit, 1.0, size=(studies, find)), 0.0)]
        shown = [v.within_margin for v in verdicts(rng.normal(size=(studies, show)), unit)]
        rows.append({"unit": unit, "find": find, "found": np.mean(found), "show": show, "shown": np.mean(shown)})
    return rows


def print_by_kind(title: str, rows: Rows) -> None:
    """Print one rate table: kinds down, numbers of pairs across."""
    print(f"\n### {title}\n")
    print("| outcomes | " + " | ".join(f"n = {n}" for n in PAIRS) + " |\n|---|" + "---|" * len(PAIRS))
    for kind in KINDS:
        cells = [f"{100 * float(str(r['rate'])):.1f} %" for r in rows if r["kind"] == kind]
        print(f"| {kind} | " + " | ".join(cells) + " |")


def print_curve(title: str, unit: str, rows: Rows) -> None:
    """Print one curve table: numbers of pairs down, units across."""
    print(f"\n### {title}\n")
    print(f"| {unit} | " + " | ".join(f"{u:g}" for u in UNITS) + " |\n|---|" + "---|" * len(UNITS))
    for n in CURVES:
        cells = [f"{100 * float(str(r['rate'])):.0f} %" for r in rows if r["n"] == n]
        print(f"| n = {n} | " + " | ".join(cells) + " |")


def figure(alarms: Rows, power: Rows, equal: Rows, studies: int, path: Path) -> None:
    """Draw the three panels as one SVG file."""
    import altair as alt

    shades = alt.Scale(domain=list(CURVES), range=["#9ecae1", "#4f9bd0", "#1f6fb2", "#08306b"])
    colors = alt.Scale(domain=list(KINDS), range=["#1f6fb2", "#2a9d6f", "#8a63b8", "#d1495b"])
    size = {"width": 250, "height": 210}
    bars = []
    for row in alarms:
        rate, error = float(str(row["rate"])), float(str(row["error"]))
        bars.append(row | {"low": max(0.0, rate - 2 * error), "high": rate + 2 * error})
    x = alt.X("n:O", title="pairs (seeds)", axis=alt.Axis(labelAngle=0))
    color = alt.Color(
        "kind:N", scale=colors, legend=alt.Legend(title="outcomes", orient="bottom", columns=1, symbolType="circle")
    )
    base = alt.Chart(alt.Data(values=bars))
    points = base.mark_point(filled=True, size=45, opacity=1).encode(
        x=x, xOffset="kind:N", y=alt.Y("rate:Q", title="called “different”", axis=alt.Axis(format="%")), color=color
    )
    whiskers = base.mark_rule().encode(x=x, xOffset="kind:N", y="low:Q", y2="high:Q", color=color)
    nominal = alt.Chart(alt.Data(values=[{"y": 0.05}])).mark_rule(strokeDash=[4, 3], color="#555").encode(y="y:Q")
    first = (nominal + whiskers + points).properties(title="False alarms: no true difference", **size)

    def lines(rows: Rows, title: str, unit: str, called: str) -> alt.LayerChart:
        chart = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X("unit:Q", title=unit),
            y=alt.Y("rate:Q", title=called, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("n:O", scale=shades, legend=alt.Legend(title="pairs", orient="bottom")),
        )
        goal = alt.Chart(alt.Data(values=[{"y": 0.8}])).mark_rule(strokeDash=[4, 3], color="#555").encode(y="y:Q")
        return (goal + chart.mark_line() + chart.mark_point(filled=True, size=25, opacity=1)).properties(
            title=title, **size
        )

    second = lines(
        power, "Power: a true difference", "true difference / SD of the paired difference", "called “different”"
    )
    third = lines(
        equal, "Equivalence: no true difference", "margin / SD of the paired difference", "called “equivalent”"
    )
    chart = alt.hconcat(first, alt.hconcat(second, third).resolve_scale(color="shared"), spacing=28).resolve_scale(
        color="independent"
    )
    note = f"{studies:,} simulated studies a point; whiskers ± 2 Monte-Carlo standard errors; dashes: 5 % and 80 %"
    chart = chart.properties(title=alt.Title(note, anchor="start", fontSize=11, fontWeight="normal", color="#555"))
    chart = (
        chart.configure(font="sans-serif", background="white")
        .configure_view(stroke="#ddd")
        .configure_axis(gridColor="#eee")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.save(str(path))


def main() -> None:
    """Run everything, print Markdown tables and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=4_000, help="simulated studies per number (default 4000)")
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/calibration.svg"))
    options = parser.parse_args()
    start = time.perf_counter()
    alarms, false_equal = error_rates(options.studies)
    power, equal = curves(options.studies)
    planned = plans(options.studies)
    seconds = time.perf_counter() - start

    def error(p: float, runs: int) -> str:
        return f"{100 * math.sqrt(p * (1 - p) / runs):.2f}"

    print_by_kind(f"False alarms (Monte-Carlo error at 5 %: {error(0.05, options.studies)} points)", alarms)
    title = "False equivalence, true difference at the margin of 1.5 SD, worse side"
    print_by_kind(f"{title} (Monte-Carlo error at 5 %: {error(0.05, options.studies // 2)} points)", false_equal)
    largest = error(0.5, options.studies)
    print_curve(f'Called "different" (Monte-Carlo error ≤ {largest} points)', "true difference / SD", power)
    print_curve(f'Called "equivalent" (Monte-Carlo error ≤ {largest} points)', "margin / SD", equal)
    print("\n### Planned for 80 %\n")
    print("| size / SD | pairs to find it | found | pairs to show equivalence | shown |\n|---|---|---|---|---|")
    for r in planned:
        print(f"| {r['unit']} | {r['find']} | {100 * r['found']:.0f} % | {r['show']} | {100 * r['shown']:.0f} % |")
    figure(alarms, power, equal, options.studies, options.figure)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    print(
        f"\n{options.studies:,} studies a number, {today}, {platform.machine()}, Python {platform.python_version()}, ",
        end="",
    )
    print(f"numpy {np.__version__}, {seconds:.0f} s; figure: {options.figure}")


if __name__ == "__main__":
    main()
