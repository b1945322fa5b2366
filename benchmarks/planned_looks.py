"""Planned looks: is the error held over all looks, and how many runs are saved? Simulated studies.

    python benchmarks/planned_looks.py [--studies 10000] [--pairs 12 24] [--spending pocock]
        [--write docs/statistics-more.md] [--figure docs/figures/planned-looks.svg]

Every number comes from the real `decide_by_looks`, called once per simulated study; "all pairs at once" is one call of
`decide` on all pairs of the same study, "without a plan" calls `decide` at each look and stops at the first
"different". Outcomes are in units of the standard deviation of the paired difference; both arms have the same
distribution, shifted by the true difference.
Not covered: real training runs; arms of different shape.
"""

import argparse
import datetime
import math
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from blocks import show_or_put

from trivet.stats import LookPlan, decide, decide_by_looks, plan_looks

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

SEED = 2026
LOGNORMAL_SD = math.sqrt((math.e - 1) * math.e)
MARGIN = 1.0


def _two_arms(draw: Draw, sd: float) -> Draw:
    """Differences of two arms with the same distribution, scaled to standard deviation 1."""
    return lambda rng, shape: (draw(rng, shape) - draw(rng, shape)) / (sd * math.sqrt(2))


KINDS: dict[str, Draw] = {
    "normal": _two_arms(lambda rng, shape: rng.normal(size=shape), 1.0),
    "log-normal": _two_arms(lambda rng, shape: rng.lognormal(size=shape), LOGNORMAL_SD),
    "t, 3 df": _two_arms(lambda rng, shape: rng.standard_t(3, size=shape), math.sqrt(3)),
}

TRUTHS = ((0.0, 1.0), (0.0, 1.5), (0.0, 3.0), (0.5, 1.0), (1.0, 0.5), (1.5, 0.5), (2.5, 0.5))
"""True difference and margin, in SDs, for the table of savings."""


def rate_text(rate: float, studies: int) -> str:
    """A rate with its Monte-Carlo standard error."""
    return f"{100 * rate:.2f} % ± {100 * math.sqrt(rate * (1 - rate) / studies):.2f}"


def errors(plan: LookPlan, kind: str, studies: int) -> tuple[str, str, str]:
    """Rates of false "different" (true 0) and false "equivalent" (true = margin), and of the first without a plan."""
    rng = np.random.default_rng([SEED, plan.max_pairs, len(kind)])
    noise = KINDS[kind](rng, (studies, plan.max_pairs))
    zero = np.zeros(plan.max_pairs)
    different = np.mean([decide_by_looks(plan, zero, row)[-1].sure_difference for row in noise])
    equivalent = np.mean([decide_by_looks(plan, zero, row + MARGIN, MARGIN)[-1].within_margin for row in noise])
    few = noise[: studies // 5]
    naive = np.mean([any(decide(zero[:n], row[:n]).sure_difference for n in plan.pairs) for row in few])
    return (
        rate_text(float(different), studies),
        rate_text(float(equivalent), studies),
        rate_text(float(naive), len(few)),
    )


def savings(plan: LookPlan, truth: float, margin: float, studies: int) -> dict[str, float]:
    """Mean pairs used, share decided by looks, share decided by one `decide` on all pairs."""
    rng = np.random.default_rng([SEED, plan.max_pairs, int(100 * truth), int(100 * margin)])
    noise = rng.normal(truth, 1.0, size=(studies, plan.max_pairs))
    zero = np.zeros(plan.max_pairs)
    last = [decide_by_looks(plan, zero, row, margin)[-1] for row in noise]
    fixed = [decide(zero, row, margin).label != "undecided" for row in noise]
    return {
        "truth": truth,
        "margin": margin,
        "most": plan.max_pairs,
        "used": float(np.mean([seen.n for seen in last])),
        "by_looks": float(np.mean([seen.label != "undecided" for seen in last])),
        "fixed": float(np.mean(fixed)),
    }


def error_table(plans: list[LookPlan], studies: int, jobs: int) -> list[str]:
    """Markdown of the errors."""
    lines = [
        f"**Errors over all looks** ({studies:,} simulated studies a number, {studies // 5:,} without a plan; ± one "
        "standard error):",
        "",
        "| outcomes | most pairs | false “different” | false “equivalent” | false “different” without a plan |",
        "|---|---|---|---|---|",
    ]
    cases = [(plan, kind, studies) for kind in KINDS for plan in plans]
    # the longest first, so that no process ends up alone with it
    order = sorted(range(len(cases)), key=lambda i: -cases[i][0].max_pairs)
    with ProcessPoolExecutor(jobs) as pool:
        found = dict(zip(order, pool.map(_errors, [cases[i] for i in order]), strict=True))
    return lines + [
        f"| {kind} | {plan.max_pairs} | {' | '.join(found[i])} |" for i, (plan, kind, _) in enumerate(cases)
    ]


def _errors(case: tuple[LookPlan, str, int]) -> tuple[str, str, str]:
    return errors(*case)


def saving_table(rows: list[dict[str, float]], studies: int) -> list[str]:
    """Markdown of the savings."""
    lines = [
        f"**Runs saved** (two arms, normal outcomes, {studies:,} simulated studies a row; differences and margins in "
        "SDs of the paired difference):",
        "",
        "| true difference | margin | most pairs | mean pairs used | runs saved | decided | all pairs at once |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        saved = 2 * (row["most"] - row["used"])
        lines.append(
            f"| {row['truth']:g} | {row['margin']:g} | {row['most']:g} | {row['used']:.1f} | {saved:.1f} of "
            f"{2 * row['most']:g} ({100 * saved / (2 * row['most']):.0f} %) | {100 * row['by_looks']:.0f} % | "
            f"{100 * row['fixed']:.0f} % |"
        )
    return lines


def figure(rows: list[dict[str, float]], path: Path) -> None:
    """Draw the share of runs saved and the share decided, scenario by scenario."""
    import altair as alt

    data: list[dict[str, object]] = []
    for row in rows:
        name = f"difference {row['truth']:g}, margin {row['margin']:g}"
        most = f"at most {row['most']:g} pairs"
        saved = 1 - row["used"] / row["most"]
        data += [
            {"scenario": name, "most": most, "what": "runs saved", "share": saved},
            {"scenario": name, "most": most, "what": "decided by looks", "share": row["by_looks"]},
            {"scenario": name, "most": most, "what": "decided by all pairs at once", "share": row["fixed"]},
        ]
    names = list(dict.fromkeys(item["scenario"] for item in data))
    colors = alt.Scale(
        domain=["runs saved", "decided by looks", "decided by all pairs at once"],
        range=["#2a9d6f", "#1f6fb2", "#9a9a9a"],
    )
    chart = (
        alt.Chart(alt.Data(values=data))
        .mark_bar()
        .encode(
            y=alt.Y("scenario:N", sort=names, title="in SDs of the paired difference"),
            yOffset=alt.YOffset("what:N", sort=list(colors.domain)),
            x=alt.X("share:Q", title=None, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("what:N", scale=colors, legend=alt.Legend(title=None, orient="bottom")),
            column=alt.Column("most:N", title=None),
        )
        .properties(width=300, height=alt.Step(11))
        .configure(font="sans-serif", background="white")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.save(str(path))


def main() -> None:
    """Run everything; print Markdown or write it into a document, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10_000, help="simulated studies per error rate (default 10000)")
    parser.add_argument("--pairs", type=int, nargs="+", default=[12, 24], help="most pairs of the plans")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--looks", type=int, default=4)
    parser.add_argument("--spending", choices=("pocock", "obrien-fleming"), default="pocock")
    parser.add_argument("--write", type=Path, help="document whose part `benchmarks/planned_looks.py` is replaced")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    plans = [plan_looks(n, options.looks, spending=options.spending) for n in options.pairs]
    lines = [f"- at most {plan.max_pairs} pairs: {plan}" for plan in plans]
    lines += ["", *error_table(plans, options.studies, options.jobs)]
    few = max(1, options.studies // 10)
    rows = [savings(plan, truth, margin, few) for truth, margin in TRUTHS for plan in plans]
    lines += ["", *saving_table(rows, few)]
    if options.figure:
        figure(rows, options.figure)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    lines += [
        "",
        f"{today}, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"{time.perf_counter() - start:.0f} s with {options.jobs} process(es).",
    ]
    show_or_put("\n".join(lines), options.write, "benchmarks/planned_looks.py")


if __name__ == "__main__":
    main()
