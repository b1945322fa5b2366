"""Is loading data the bottleneck? Share of a step's time before and between the calls of the network.

    python benchmarks/data_share.py recipes/demo.yaml recipes/schedules-cora.yaml [--steps 30] [--set KEY=VALUE]
        [--write docs/data.md]

Processor time of one thread, median over the steps, first arm of each study (the less a network computes, the larger
the share: prefer full precision). What counts as data is all time inside the loss before the network is first called
and between its calls; the rest of the step, backward and the optimizer included, is compute. That share is an upper
bound, since tasks do a little arithmetic between two calls, too.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from blocks import show_or_put

from trivet.core.config import build
from trivet.study import StudySpec
from trivet.study.plan import plan
from trivet.tasks.base import build_job
from trivet.tasks.config import RunConfig
from trivet.training.optim import build_optimizer


class Clock:
    """Calls the network and adds up the processor time that passes outside it, up to its last call of a step."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward
        self.outside = self.since = 0.0

    def start(self) -> None:
        self.outside, self.since = 0.0, time.process_time()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.outside += time.process_time() - self.since
        result = self.forward(*args, **kwargs)
        self.since = time.process_time()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.forward, name)


def share(recipe: Path, steps: int, overrides: list[str]) -> tuple[str, float, float]:
    """Task, share of a step that is data, and milliseconds of a step."""
    run = build(RunConfig, plan(StudySpec.from_yaml(recipe, overrides))[0].config)
    job = build_job(run, torch.device("cpu"))
    if run.training is None:
        raise SystemExit(f"{recipe}: a command has no steps of its own to look into")
    optimizer = build_optimizer(job.model.parameters(), run.training.optimizer)
    clock, data, whole = Clock(job.model), [], []
    job.model.train()
    for step in range(min(steps, run.training.steps)):
        start = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        clock.start()
        job.loss(clock, step).backward()  # type: ignore[arg-type]
        optimizer.step()
        for stepper in job.steppers.values():
            stepper.step()
        whole.append(time.process_time() - start)
        data.append(clock.outside)
    kept = slice(len(whole) // 5, None)  # the first steps warm up
    parts = [each / total for each, total in zip(data[kept], whole[kept], strict=True)]
    return run.task.name, median(parts), 1000 * median(whole[kept])


def main() -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recipes", nargs="+", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = ["| recipe | task | compute | data, at most | a step, CPU ms |", "|---|---|---|---|---|"]
    for recipe in given.recipes:
        task, part, milliseconds = share(recipe, given.steps, given.overrides)
        lines.append(f"| {recipe.stem} | {task} | {1 - part:.1%} | {part:.1%} | {milliseconds:.1f} |")
    show_or_put("\n".join(lines), given.write, "benchmarks/data_share.py")


if __name__ == "__main__":
    main()
