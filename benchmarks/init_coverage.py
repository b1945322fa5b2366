"""How much of the network of each task can a hypernetwork predict?

    python benchmarks/init_coverage.py recipes/demo.yaml recipes/schedules-cora.yaml … [--set KEY=VALUE]
        [--ghn fashion-small] [--head keep] [--write docs/hypernetworks.md]

Builds the first run of each recipe with `init: {ghn: …, head: …}` and prints what its result would hold. Nothing is
trained.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from blocks import show_or_put

from trivet.core.config import build
from trivet.study import StudySpec
from trivet.study.plan import plan
from trivet.tasks.base import build_job
from trivet.tasks.config import RunConfig

MOST_NAMES = 3


def initial(recipe: Path, options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Task, and what was predicted."""
    config = dict(plan(StudySpec.from_yaml(recipe, options.set))[0].config)
    run = build(RunConfig, {**config, "init": {"ghn": options.ghn, "head": options.head}})
    return run.task.name, dict(build_job(run, torch.device("cpu")).extra["init"])


def main(options: argparse.Namespace) -> None:
    lines = [
        "| task | recipe | tensors predicted | parameters predicted | not predicted, and why |",
        "|---|---|---|---|---|",
    ]
    for recipe in options.recipes:
        task, found = initial(recipe, options)
        why = [
            ", ".join(f"`{name}`" for name in names[:MOST_NAMES])
            + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
            + f": {reason}"
            for reason, names in found["kept"].items()
        ]
        share = 100 * found["predicted_parameters"] / found["parameters"]
        lines.append(
            f"| {task} | {recipe.stem} | {found['predicted_tensors']} of {found['tensors']} | {share:.0f} % "
            f"| {'; '.join(why) or '–'} |"
        )
    show_or_put("\n".join(lines), options.write, "init-coverage")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("recipes", type=Path, nargs="+")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--ghn", default="fashion-small")
    parser.add_argument("--head", default="keep")
    parser.add_argument("--write", type=Path)
    main(parser.parse_args())
