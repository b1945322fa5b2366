"""Planned looks: is the error held over all looks, and how many runs are saved? Simulated studies.

    python benchmarks/planned_looks.py [--studies 10000] [--pairs 12 24] [--spending pocock] [--skip-savings]

Every number comes from the real `decide_by_looks`, called once per simulated study; "fixed" is one call of `decide`
on all pairs of the same study. Outcomes are in units of the standard deviation of the paired difference; both arms
have the same distribution, shifted by the true difference.
Not covered: real training runs; arms of different shape.
"""

import argparse
import datetime
import math
import platform
import time
from collections.abc import Callable

import numpy as np

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


def rate_text(hits: int, studies: int) -> str:
    """A rate with its Monte-Carlo standard error."""
    rate = hits / studies
    return f"{100 * rate:.2f} % ± {100 * math.sqrt(rate * (1 - rate) / studies):.2f}"


def errors(plan: LookPlan, kind: str, studies: int) -> tuple[int, int]:
    """How many of the studies end with a false "different" (true 0), and a false "equivalent" (true = margin)."""
    rng = np.random.default_rng([SEED, plan.max_pairs, len(kind)])
    noise = KINDS[kind](rng, (studies, plan.max_pairs))
    zero = np.zeros(plan.max_pairs)
    different = sum(decide_by_looks(plan, zero, row)[-1].sure_difference for row in noise)
    equivalent = sum(decide_by_looks(plan, zero, row + MARGIN, MARGIN)[-1].within_margin for row in noise)
    return different, equivalent


def savings(plan: LookPlan, truth: float, margin: float, studies: int) -> tuple[float, float, float]:
    """Mean pairs used, share decided by looks, share decided by one `decide` on all pairs."""
    rng = np.random.default_rng([SEED, plan.max_pairs, int(100 * truth), int(100 * margin)])
    noise = rng.normal(truth, 1.0, size=(studies, plan.max_pairs))
    zero = np.zeros(plan.max_pairs)
    last = [decide_by_looks(plan, zero, row, margin)[-1] for row in noise]
    fixed = [decide(zero, row, margin).label != "undecided" for row in noise]
    used = float(np.mean([seen.n for seen in last]))
    return used, float(np.mean([seen.label != "undecided" for seen in last])), float(np.mean(fixed))


def main() -> None:
    """Run everything and print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10_000, help="simulated studies per error rate (default 10000)")
    parser.add_argument("--pairs", type=int, nargs="+", default=[12, 24], help="most pairs of the plans")
    parser.add_argument("--looks", type=int, default=4)
    parser.add_argument("--spending", choices=("pocock", "obrien-fleming"), default="pocock")
    parser.add_argument("--skip-savings", action="store_true")
    parser.add_argument("--skip-errors", action="store_true")
    options = parser.parse_args()
    start = time.process_time()
    plans = [plan_looks(n, options.looks, spending=options.spending) for n in options.pairs]
    for plan in plans:
        print(f"- at most {plan.max_pairs} pairs: {plan}")
    if not options.skip_errors:
        print(f"\n### Errors over all looks ({options.studies:,} studies each, ± one standard error)\n")
        print("| outcomes | most pairs | false “different” | false “equivalent” |\n|---|---|---|---|")
        for kind in KINDS:
            for plan in plans:
                different, equivalent = (
                    rate_text(hits, options.studies) for hits in errors(plan, kind, options.studies)
                )
                print(f"| {kind} | {plan.max_pairs} | {different} | {equivalent} |", flush=True)
    if not options.skip_savings:
        studies = max(1, options.studies // 10)
        print(f"\n### Runs saved (normal, two arms, {studies:,} studies each)\n")
        print("| true difference / SD | margin / SD | most pairs | mean pairs used | runs saved of a study | ", end="")
        print("decided by looks | decided by all pairs at once |\n|---|---|---|---|---|---|---|")
        for truth, margin in TRUTHS:
            for plan in plans:
                used, by_looks, fixed = savings(plan, truth, margin, studies)
                saved = 2 * (plan.max_pairs - used)
                print(f"| {truth:g} | {margin:g} | {plan.max_pairs} | {used:.1f} | {saved:.1f} of ", end="")
                print(f"{2 * plan.max_pairs} | {100 * by_looks:.0f} % | {100 * fixed:.0f} % |", flush=True)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    seconds = time.process_time() - start
    print(f"\n{today}, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, ", end="")
    print(f"{seconds:.0f} s CPU")


if __name__ == "__main__":
    main()
