"""What it is worth to show a hypernetwork its task: a table from `trivet ghn eval --json`, as Markdown.

    trivet ghn train ghn-train-tasks.yaml --out runs/told
    trivet ghn train ghn-train-tasks.yaml --out runs/untold --set ghn.task=none --set ghn.num_classes=5
    trivet ghn eval runs/told/ghn --networks 100 --images 500 --twins 24 --points 1,2,5,10,20,50 --json > told.json
    trivet ghn eval runs/untold/ghn --networks 100 --images 500 --json > untold.json
    python benchmarks/ghn_tasks.py told.json untold.json [--write DOCUMENT.md]

Both meet the same unseen networks, each with the same task of classes that neither was trained on. Not covered:
computing anything anew.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from blocks import show_or_put

from trivet.stats.estimate import estimate


def percent(values: list[float]) -> str:
    """Mean and standard error, in %."""
    return f"{100 * fmean(values):.1f} ± {100 * stdev(values) / len(values) ** 0.5:.1f} (n = {len(values)})"


def tasks_table(told: dict[str, Any], untold: dict[str, Any]) -> str:
    """Predictions with and without the support set beside chance, pixels and SGD."""
    if len(told["each"]) != len(untold["each"]) or told["images"] != untold["images"]:
        raise SystemExit("both evaluations must have the same networks and images")
    pixels, twins = told["nearest_mean"], told.get("twins")
    lines = [
        "| held-out tasks | top-1 in % |",
        "|---|---|",
        f"| predicted by the hypernetwork that is shown the task | {percent(told['each'])} |",
        f"| predicted by one that is not, same recipe | {percent(untold['each'])} |",
        f"| nearest mean of the support images' pixels, no network | {100 * pixels['accuracy']:.1f} ± "
        f"{100 * pixels['se']:.1f} (n = {pixels['n']}) |",
        f"| chance | {100 * told['chance']:.1f} |",
    ]
    if twins:
        for place, steps in enumerate(twins["steps"]):
            column = [curve[place] for curve in twins["curves"]]
            lines.append(f"| the same networks after {steps} steps of SGD on the support set | {percent(column)} |")
    gain = estimate([100 * (one - other) for one, other in zip(told["each"], untold["each"], strict=True)])
    interval = f"95 % {gain.method} {gain.low:+.1f} to {gain.high:+.1f}"
    lines += ["", f"Shown the task, predictions are {gain.mean:+.1f} points better ({interval}, paired, n = {gain.n})."]
    if twins and twins["all"]:
        ratio = twins["seconds_per_prediction"] / twins["seconds_per_step"]
        lines.append(
            f"A prediction is worth {twins['all']['sentence']} and takes as long as {ratio:.2f} of them (CPU time)."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("told", type=Path)
    parser.add_argument("untold", type=Path)
    parser.add_argument("--write", type=Path, help="document whose part is replaced")
    arguments = parser.parse_args()
    told, untold = (
        json.loads(path.read_text(encoding="utf-8"))["splits"][0] for path in (arguments.told, arguments.untold)
    )
    show_or_put(tasks_table(told, untold), arguments.write, "benchmarks/ghn_tasks.py")


if __name__ == "__main__":
    main()
