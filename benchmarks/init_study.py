"""Is a predicted start better? Steps to an accuracy, and accuracy after some steps, from a finished study folder.

    trivet cp ghn-init-fashion && trivet run ghn-init-fashion.yaml
    python benchmarks/init_study.py studies/ghn-init-fashion [--levels 0.7 0.75 0.8] [--write DOCUMENT.md]

For each arm at each rate: accuracy before training and after some steps, and the first tested step at which an accuracy
is reached. The ratio of steps, arm over `random`, is paired by seed: geometric mean with its 95 % interval, and the
verdict of `decide` on the logarithms. A run that does not get there counts with the last step, so a ratio is a bound
then, and how many did not is said. Each arm's rate is the one with the better final mean, which favours all arms alike.

Not covered: longer training.
"""

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from blocks import show_or_put

from trivet.stats import decide, estimate
from trivet.study import Results

Curve = dict[int, float]


def curves_of(results: Results, metric: str) -> dict[str, dict[int, Curve]]:
    """Arm → seed → step → value."""
    found: dict[str, dict[int, Curve]] = {}
    for row in results.curves(metric):
        found.setdefault(row.arm, {}).setdefault(row.seed, {})[row.step] = row.value
    return found


def reached(curve: Curve, level: float) -> tuple[int, bool]:
    """First tested step at which a level is reached, or the last step and False."""
    for step in sorted(curve):
        if curve[step] >= level:
            return step, True
    return max(curve), False


def best_rates(curves: Mapping[str, Mapping[int, Curve]]) -> dict[str, str]:
    """Start → the arm with its better rate, by the mean at the last step."""
    chosen: dict[str, str] = {}
    for arm, seeds in curves.items():
        start = arm.split(" · ")[0]
        mean = fmean(curve[max(curve)] for curve in seeds.values())
        known = chosen.get(start)
        if known is None or mean > fmean(curve[max(curve)] for curve in curves[known].values()):
            chosen[start] = arm
    return chosen


def table(results: Results, levels: list[float], steps: list[int]) -> str:
    metric = results.spec.metric.name
    curves = curves_of(results, metric)
    chosen = best_rates(curves)
    heads = [f"after {step}" for step in steps] + [f"steps to {level:g}" for level in levels]
    lines = [
        f"| start | rate | n | {' | '.join(heads)} | ratio of steps to {levels[-1]:g}, over random | verdict |",
        "|" + "---|" * (len(heads) + 5),
    ]
    base = curves[chosen["random"]]
    for start, arm in chosen.items():
        own = curves[arm]
        cells = [f"{100 * fmean(curve[step] for curve in own.values()):.1f}" for step in steps]
        for level in levels:
            times = [reached(curve, level) for curve in own.values()]
            missed = sum(not there for _, there in times)
            cells.append(f"{fmean(step for step, _ in times):.0f}" + (f" ({missed} never)" if missed else ""))
        ratio, word = "–", "baseline"
        if start != "random":
            seeds = sorted(own.keys() & base.keys())
            logs = [[math.log(max(1, reached(one[seed], levels[-1])[0])) for seed in seeds] for one in (base, own)]
            verdict = decide(logs[0], logs[1], names=("random", start), metric="log steps")
            found = estimate([b - a for a, b in zip(*logs, strict=True)])
            ratio = f"{math.exp(found.mean):.2f} ({math.exp(found.low):.2f} to {math.exp(found.high):.2f})"
            word = verdict.label
        rate = arm.split(" · ")[1].removeprefix("lr")
        lines.append(f"| {start} | {rate} | {len(own)} | {' | '.join(cells)} | {ratio} | {word} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--levels", type=float, nargs="+", default=[0.7, 0.75, 0.8])
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 50, 100, 200])
    parser.add_argument("--write", type=Path, help="document whose part is replaced")
    arguments = parser.parse_args()
    text = table(Results.load(arguments.folder), arguments.levels, arguments.steps)
    show_or_put(text, arguments.write, "benchmarks/init_study.py")


if __name__ == "__main__":
    main()
