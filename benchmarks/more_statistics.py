"""How often the procedures beyond the paired verdict are right: errors, power and coverage on simulated studies.

    python benchmarks/more_statistics.py [--studies 1000] [--write docs/statistics-more.md]
        [--figure docs/figures/more-statistics.svg]

Every number comes from the real functions, called once per simulated study; ± is one standard error of simulation.
Not covered: planned looks (`planned_looks.py`), the paired verdict (`calibration.py`), real training runs.
"""

import argparse
import datetime
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from blocks import show_or_put

from trivet.stats import (
    ArmPair,
    all_equivalent,
    churn,
    decide_devices,
    decide_unpaired,
    seeds_from_pilot,
    seeds_needed,
    variance_components,
)

SEED = 2026
KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "log-normal": lambda rng, shape: rng.lognormal(size=shape) / math.sqrt((math.e - 1) * math.e),
    "t, 3 df": lambda rng, shape: rng.standard_t(3, size=shape) / math.sqrt(3),
}


POINTS: list[dict[str, float | str]] = []
"""What the figure shows: errors that should be at most 5 %."""


def rate(hits: list[bool] | np.ndarray, error: str = "", *, misses: bool = False) -> str:
    """A share with its standard error; with a name it is drawn as an error rate (of `misses`: the rest is drawn)."""
    share = float(np.mean(hits))
    if error:
        wrong = 1 - share if misses else share
        half = 2 * math.sqrt(wrong * (1 - wrong) / len(hits))
        POINTS.append({"what": error, "rate": wrong, "low": max(0.0, wrong - half), "high": wrong + half})
    return f"{100 * share:.1f} % ± {100 * math.sqrt(share * (1 - share) / len(hits)):.1f}"


def unpaired(studies: int) -> list[str]:
    """False alarms, false equivalence and power of `decide_unpaired`."""
    lines = [
        "**Unpaired verdict** (both arms of the same shape with SD 1; false equivalence at a true difference of the "
        "margin, 1.5; power at a difference of 2; last column: SDs 1 and 3, no difference of means):",
        "",
        "| outcomes | runs | false “different” | false “equivalent” | found | unequal SDs |",
        "|---|---|---|---|---|---|",
    ]
    for kind, draw in KINDS.items():
        for n_a, n_b in ((4, 4), (6, 6), (5, 10)):
            rng = np.random.default_rng([SEED, n_a, n_b, len(kind)])
            a, b = draw(rng, (studies, n_a)), draw(rng, (studies, n_b))
            pairs = list(zip(a, b, strict=True))
            name = f"{kind}, {n_a} and {n_b} runs"
            center = float(draw(rng, (100_000,)).mean())
            cells = [
                rate([decide_unpaired(x, y).sure_difference for x, y in pairs], f"unpaired, different: {name}"),
                rate(
                    [decide_unpaired(x, y + 1.5, 1.5).label == "equivalent" for x, y in pairs],
                    f"unpaired, equivalent: {name}",
                ),
                rate([decide_unpaired(x, y + 2.0).label == "different" for x, y in pairs]),
                rate([decide_unpaired(x, 3.0 * (y - center) + center).sure_difference for x, y in pairs]),
            ]
            lines.append(f"| {kind} | {n_a} and {n_b} | {' | '.join(cells)} |")
    return lines


def devices(studies: int) -> list[str]:
    """False alarms, false equivalence and power of `decide_devices`, and what runs as units would say."""
    from scipy import stats

    lines = [
        "**Devices as units** (SD between devices 1, between runs 1; margin 2; power at a difference of 3; last "
        "column: false “different” when every run counts as a unit):",
        "",
        "| devices | runs on each | false “different” | false “equivalent” | found | runs as units |",
        "|---|---|---|---|---|---|",
    ]
    for k_a, k_b, low, high in ((4, 4, 5, 5), (4, 8, 5, 5), (4, 8, 1, 12)):
        rng = np.random.default_rng([SEED, k_a, k_b, low])
        wrong, naive, equal, found = [], [], [], []
        for _ in range(studies):
            groups = [rng.normal() + rng.normal(size=rng.integers(low, high + 1)) for _ in range(k_a + k_b)]
            a = {f"a{i}": runs for i, runs in enumerate(groups[:k_a])}
            same, at_margin, far = (
                {f"b{i}": runs + shift for i, runs in enumerate(groups[k_a:])} for shift in (0.0, 2.0, 3.0)
            )
            wrong.append(decide_devices(a, same).sure_difference)
            pooled = [np.concatenate(groups[:k_a]), np.concatenate(groups[k_a:])]
            naive.append(bool(stats.ttest_ind(*pooled, equal_var=False).pvalue <= 0.05))
            equal.append(decide_devices(a, at_margin, 2.0).label == "equivalent")
            found.append(decide_devices(a, far).label == "different")
        runs = f"{low}" if low == high else f"{low} to {high}"
        name = f"{k_a} and {k_b}, runs on each {runs}"
        cells = [rate(wrong, f"devices, different: {name}"), rate(equal, f"devices, equivalent: {name}")]
        lines.append(f"| {k_a} and {k_b} | {runs} | {' | '.join([*cells, rate(found), rate(naive)])} |")
    return lines


def components(studies: int) -> list[str]:
    """Coverage of the 95 % intervals of `variance_components`."""
    names = ("seed", "environment", "seed × environment", "repeat")
    lines = [
        "**Variance components**: how often the 95 % interval holds the true variance (normal; SDs 1, 0.5, 0.5, 0.3):",
        "",
        f"| seeds × environments × repeats | {' | '.join(names)} | pairing |",
        "|---|---|---|---|---|---|",
    ]
    sds = (1.0, 0.5, 0.5, 0.3)
    for n, k, r in ((6, 2, 2), (8, 4, 2), (12, 4, 1)):
        rng = np.random.default_rng([SEED, n, k, r])
        truth = [sd**2 for sd in sds] if r > 1 else [1.0, 0.25, 0.25 + 0.09]
        pairing = 1.0 / (1.0 + 0.25 + 0.09)
        hits = []
        for _ in range(studies):
            table = (
                sds[0] * rng.normal(size=(1, n, 1))
                + sds[1] * rng.normal(size=(k, 1, 1))
                + sds[2] * rng.normal(size=(k, n, 1))
                + sds[3] * rng.normal(size=(k, n, r))
            )
            cells = {f"e{e}": {s: list(cell) for s, cell in enumerate(row)} for e, row in enumerate(table)}
            got = variance_components(cells)
            inside = [c.low <= value <= c.high for c, value in zip(got.components, truth, strict=True)]
            hits.append([*inside, *[True] * (4 - len(inside)), got.pairing_low <= pairing <= got.pairing_high])
        table = np.array(hits).T
        cells = [
            rate(
                column,
                f"variance components, {n} × {k} × {r}: {what}" if what != "repeat" or r > 1 else "",
                misses=True,
            )
            for what, column in zip((*names, "pairing"), table, strict=True)
        ]
        if r == 1:
            cells[3] = "(in the one before)"
        lines.append(f"| {n} × {k} × {r} | {' | '.join(cells)} |")
    return lines


def others(studies: int) -> list[str]:
    """Joint equivalence, churn, plans from pilots."""
    rng = np.random.default_rng([SEED, 4])
    joint, all_zero = [], []
    for _ in range(studies):
        base = rng.normal(size=10)
        noise = 0.5 * rng.normal(size=(4, 10))
        for hits, shift in ((joint, 0.8), (all_zero, 0.0)):
            arms = [
                ArmPair(names=("base", str(i)), a=base, b=base + row + (shift if i == 0 else 0.0))
                for i, row in enumerate(noise)
            ]
            hits.append(all_equivalent(arms, 0.8).equivalent)
    covered = []
    weights = np.array([0.05, 0.1, 0.2])
    p = float(weights.mean())
    for _ in range(studies):
        rates = rng.choice(weights, size=8)[:, None]
        table = np.where(rng.random((8, 300)) < rates, rng.integers(1, 6, size=(8, 300)), 0)
        found = churn(table)
        true = 2 * p * (1 - p) + p * p * 0.8
        covered.append(found.low is not None and found.high is not None and found.low <= true <= found.high)
    needed = seeds_needed(1.0, margin=0.6)
    plans = [seeds_from_pilot(np.zeros(6), row, margin=0.6) for row in rng.normal(size=(studies, 6))]
    enough = [plan.safe_pairs is not None and plan.safe_pairs >= needed for plan in plans]
    plain = [plan.pairs >= needed for plan in plans]
    joint_text = rate(joint, "all equivalent, one at the margin")
    churn_text = rate(covered, "churn, interval", misses=True)
    return [
        "| what | share |",
        "|---|---|",
        f"| four arms called “all equivalent”, one of them at the margin (10 pairs, margin 1.6 SD) | {joint_text} |",
        f"| four arms called “all equivalent”, all of them equal | {rate(all_zero)} |",
        f"| 95 % interval of churn holds the true one (8 runs that stray unequally) | {churn_text} |",
        f"| plan from 6 pilot pairs is large enough: at the pilot's SD | {rate(plain)} |",
        f"| … and at its upper 80 % limit | {rate(enough)} |",
    ]


def figure(path: Path) -> None:
    """Draw every error rate with ± 2 standard errors against the nominal 5 %."""
    import altair as alt

    order = [point["what"] for point in POINTS]
    base = alt.Chart(alt.Data(values=POINTS)).encode(
        y=alt.Y("what:N", sort=order, title=None, axis=alt.Axis(labelLimit=400))
    )
    color = alt.value("#1f6fb2")
    points = base.mark_point(filled=True, size=40, opacity=1).encode(
        x=alt.X("rate:Q", title="errors, or intervals that miss the truth", axis=alt.Axis(format="%")), color=color
    )
    whiskers = base.mark_rule().encode(x="low:Q", x2="high:Q", color=color)
    nominal = alt.Chart(alt.Data(values=[{"x": 0.05}])).mark_rule(strokeDash=[4, 3], color="#555").encode(x="x:Q")
    chart = (nominal + whiskers + points).properties(width=420, height=alt.Step(15))
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.configure(font="sans-serif", background="white").save(str(path))


def main() -> None:
    """Run everything; print Markdown or write it into a document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=1_000, help="simulated studies per number (default 1000)")
    parser.add_argument("--write", type=Path, help="document whose part `benchmarks/more_statistics.py` is replaced")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    start = time.process_time()
    lines: list[str] = []
    for part in (unpaired, devices, components, others):
        lines += [*part(options.studies), ""]
    if options.figure:
        figure(options.figure)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    lines.append(
        f"{options.studies:,} simulated studies a number, {today}, {platform.machine()}, Python "
        f"{platform.python_version()}, numpy {np.__version__}, {time.process_time() - start:.0f} s CPU."
    )
    show_or_put("\n".join(lines), options.write, "benchmarks/more_statistics.py")


if __name__ == "__main__":
    main()
