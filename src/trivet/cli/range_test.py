"""`trivet range-test`: the fewest bits at which a model learns, on its own data, from a few steps at each level."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import emit_json, show, table, talk, verb
from trivet.cli.options import StudySetOption, WidthOption, check_place

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trivet.precision import RangeTestConfig, RangeTestResult
    from trivet.tasks.config import RunConfig

PICTURES = (".svg", ".png", ".html", ".json")
"""What `--plot` draws."""


@verb
def range_test(
    target: Annotated[
        str, typer.Argument(metavar="MODEL|STUDY.yaml", help="A model, or a study whose base is tested.")
    ],
    data: Annotated[str, typer.Option("--data", help="Data for a model; a study names its own.")] = "fashion-mnist",
    batch_size: Annotated[int, typer.Option("--batch-size", help="Examples a step, for a model.")] = 32,
    lr: Annotated[float, typer.Option("--lr", help="Learning rate of Adam, for a model.")] = 0.01,
    width: WidthOption = 16,
    levels: Annotated[str, typer.Option("--levels", help="Bits tried, from below.")] = "2,3,4,5,6",
    reference: Annotated[int, typer.Option("--reference", help="Bits that the levels are measured against.")] = 8,
    window: Annotated[int, typer.Option("--window", help="Steps whose losses are averaged.")] = 2,
    windows: Annotated[int, typer.Option("--windows", help="Windows per level.")] = 8,
    patience: Annotated[int, typer.Option("--patience", help="Last windows that all have to keep up.")] = 3,
    threshold: Annotated[float, typer.Option("--threshold", help="Share of the reference's progress asked for.")] = 0.5,
    seed: Annotated[int, typer.Option("--seed", help="Seed of parameters, batches and rounding.")] = 0,
    set_: StudySetOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curves (.svg, .png, .html).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Find the fewest bits at which a model learns: fewer steps than 5 % of a 2,000-step training."""
    from trivet.precision.rangetest import RangeTestConfig

    if plot is not None:
        check_place(plot, "--plot", PICTURES)
    config = RangeTestConfig(
        levels=_numbers(levels),
        reference=reference,
        window=window,
        windows=windows,
        patience=patience,
        threshold=threshold,
        seed=seed,
    )
    if target.endswith((".yaml", ".yml")) or Path(target).is_dir():
        run = _of_study(target, set_ or [], seed)
    else:
        run = _of_model(target, data, batch_size, lr, width, seed)
    result = _test(run, config)
    if plot is not None:
        result.plot(plot)
        talk(f"drawn to {plot}")
    if json:
        emit_json(result.to_dict())
        return
    _print(result)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"`--levels {text}` must be whole numbers and commas; such as 2,3,4") from None


def _of_study(target: str, overrides: list[str], seed: int) -> RunConfig:
    """The first arm of a study without its precision."""
    from trivet.cli.run import study_file
    from trivet.core.config import build
    from trivet.study.arms import arm_name, combinations
    from trivet.study.plan import plan
    from trivet.study.spec import StudySpec
    from trivet.tasks.config import RunConfig

    path = study_file(target)
    spec = StudySpec.from_yaml(path, overrides)
    first = arm_name(next(combinations(spec.factors)))
    run = next(run for run in plan(spec) if run.arm == first)
    if run.config["task"].get("command"):
        raise ValueError(f"{path}: the task is a command, whose model cannot be seen; call range_test() in your script")
    return build(RunConfig, {**run.config, "precision": {}, "seed": seed})


def _of_model(model: str, data: str, batch_size: int, lr: float, width: int, seed: int) -> RunConfig:
    from trivet.core.config import build
    from trivet.models.names import check_model_name
    from trivet.tasks.config import RunConfig

    check_model_name(model)
    training = {"steps": 1, "batch_size": batch_size, "optimizer": {"name": "adam", "lr": lr}}
    task = {"name": "image-classification", "model": model, "data": data, "width": width}
    return build(RunConfig, {"task": task, "training": training, "seed": seed})


def _test(run: RunConfig, config: RangeTestConfig) -> RangeTestResult:
    """Test the model of a run on its own batches, with its optimizer and clipping, at a constant rate."""
    from trivet.precision.rangetest import range_test as test
    from trivet.tasks.base import task_module
    from trivet.training.environment import apply_environment
    from trivet.training.job import Job
    from trivet.training.optim import build_optimizer

    realised = apply_environment(run.environment)
    import torch

    task = task_module(run.task.name)
    training = run.training
    if training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    jobs: list[Job] = []

    def make() -> nn.Module:
        jobs.append(task.build_job(run, torch.device(realised.device)))
        return jobs[-1].model

    def loss(model: nn.Module, step: int) -> Tensor:
        return jobs[-1].loss(model, step)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        made = build_optimizer(model.parameters(), training.optimizer)
        if training.clip_norm:
            parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

            def clip(*_: object) -> None:
                torch.nn.utils.clip_grad_norm_(parameters, training.clip_norm)

            made.register_step_pre_hook(clip)
        return made

    talk(f"at most {config.steps * (len(config.levels) + 1)} training steps …")
    return test(make, range(config.steps), loss=loss, optimizer=optimizer, filter_fn=task.quantizes, config=config)


def _print(result: RangeTestResult) -> None:
    last = result.patience
    rows: list[list[Any]] = [
        [
            str(level.bits),
            f"{level.windows[0]:.3f}",
            f"{level.windows[-1]:.3f}",
            " ".join(f"{value:.0%}" for value in level.progress[-last:]),
            "yes" if level.bits == result.q_min else "reference" if level is result.reference else "no",
        ]
        for level in [*result.levels, result.reference]
    ]
    columns = ["bits", "first loss", "last loss", f"progress, last {last} windows", "learns"]
    show(table(columns, rows), "", result.sentence)
    if result.q_min is not None:
        talk(f"\nuse it: q_min: {result.q_min} in a study, or trivet advise --q-min {result.q_min}")
