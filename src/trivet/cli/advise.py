"""`trivet advise`: which precision schedule to take, what it will cost, why, and what would change the advice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.console import emit_json, show, talk, verb

if TYPE_CHECKING:
    from trivet.precision.adviser import Advice
    from trivet.precision.evidence import StudyArm
    from trivet.study import Results


@verb
def advise(
    aim: Annotated[str, typer.Argument(metavar="[AIM]", help="cost, balance or quality.")] = "balance",
    model: Annotated[str, typer.Option("--model", help="Name of your model; its kind sets q_min.")] = "",
    domain: Annotated[
        str, typer.Option("--domain", help="vision, mobile, imagenet, graph, language or detection.")
    ] = "",
    large_scale: Annotated[bool, typer.Option("--large-scale", help="Data and model are large.")] = False,
    fine_tuning: Annotated[bool, typer.Option("--fine-tuning", help="Start from a pretrained model.")] = False,
    q_min: Annotated[int, typer.Option("--q-min", help="Fewest bits, from `trivet range-test`; 0: as published.")] = 0,
    budget: Annotated[
        float, typer.Option("--budget", help="Most BitOPs, as a share of static 8 bits, such as 0.5; 0: no limit.")
    ] = 0.0,
    steps: Annotated[int, typer.Option("--steps", help="Optimizer steps of the training; 0: not known.")] = 0,
    seconds: Annotated[float, typer.Option("--seconds", help="Most training seconds; needs a timed step.")] = 0.0,
    step_seconds: Annotated[
        float, typer.Option("--step-seconds", help="Seconds of one step, if you measured it already.")
    ] = 0.0,
    time: Annotated[
        Path | None, typer.Option("--time", metavar="STUDY.yaml", help="Time a few steps of this study's base, here.")
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="A finished study of yours that decides first.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False,
) -> None:
    """Choose a precision schedule from an aim, a model and a budget, and say why."""
    from trivet.precision.adviser import advise as choose

    if time is not None:
        step_seconds, steps = _timed(time, steps)
    study = study_arms(from_) if from_ is not None else []
    advice = choose(
        aim,
        domain=domain,
        model=model,
        large_scale=large_scale,
        fine_tuning=fine_tuning,
        q_min=q_min,
        budget=budget,
        steps=steps,
        seconds=seconds,
        step_seconds=step_seconds,
        study=study,
    )
    if json:
        emit_json(advice.to_dict())
        return
    _print(advice, bool(study))


def study_arms(folder: Path) -> list[StudyArm]:
    """The arms of a finished study that differ in precision alone, compared with the one of most BitOPs.

    Raises:
        ConfigError: The folder is no study. ValueError: No two arms have finished runs, or other factors differ too.
    """
    from trivet.study import Results

    results = Results.load(folder)
    others = [name for name in results.spec.factors if name != "precision"]
    if "precision" not in results.spec.factors or others:
        raise ValueError(
            f"{folder}: its factors are {', '.join(results.spec.factors) or 'none'}; to give advice a study needs the "
            "factor precision and no other"
        )
    return _rows(results, folder)


def _rows(results: Results, folder: Path) -> list[StudyArm]:
    from trivet.precision.evidence import StudyArm

    metric = results.spec.metric
    costs = {arm: results.values("bitops", arm) for arm in results.arms if results.values(metric.name, arm)}
    bitops = {arm: sum(found.values()) / len(found) for arm, found in costs.items()}
    if len(bitops) < 2:
        raise ValueError(f"{folder}: {len(bitops)} arm(s) with finished runs; advice needs at least 2. Run the study")
    reference = max(bitops, key=bitops.__getitem__)
    sign = 1.0 if metric.maximize else -1.0
    verdicts = {item.arm_b: item.verdict for item in results.compare_all(reference)}
    rows: list[StudyArm] = []
    for arm, cost in bitops.items():
        verdict = verdicts.get(arm)
        effect = verdict.comparison.effect if verdict is not None and verdict.comparison is not None else 0.0
        rows.append(
            StudyArm(
                name=arm,
                precision=_setting(results, arm),
                bitops=cost,
                cost=_cost(_setting(results, arm)),
                gain=sign * effect,
                margin=metric.margin,
                label="reference" if verdict is None else verdict.label,
                pairs=verdict.comparison.n if verdict is not None and verdict.comparison is not None else 0,
            )
        )
    return rows


def _setting(results: Results, arm: str) -> dict[str, Any]:
    """The arm's `precision` section as it stands in the study file."""
    return {**results.spec.base.get("precision", {}), **results.spec.factors["precision"][arm]}


def _cost(precision: dict[str, Any]) -> float:
    """BitOPs as a share of static 8 bits, of the layers that are quantized."""
    from trivet.core.config import build
    from trivet.precision.adviser import NOMINAL_STEPS
    from trivet.precision.config import PrecisionConfig

    config = build(PrecisionConfig, precision)
    schedule = config.build(NOMINAL_STEPS)
    return schedule.relative_cost(config.backward_bits, reference=8) if schedule else 16.0


def _timed(path: Path, steps: int) -> tuple[float, int]:
    """Seconds of one step of a study's first arm on this machine, and its number of steps unless given."""
    from trivet.cli.estimate import arm_costs
    from trivet.study.plan import plan
    from trivet.study.spec import StudySpec

    runs = plan(StudySpec.from_yaml(path))
    talk("timing a few steps …")
    first = runs[0].arm
    row = arm_costs([run for run in runs if run.arm == first], measure=True)[0]
    if "step_seconds" not in row:
        raise ValueError(f"{path}: no step could be timed: {row.get('not_measured', 'its arms are commands')}")
    talk(f"one step of the arm {first}: {row['step_seconds']:.4f} s here")
    return float(row["step_seconds"]), steps or int(row["steps"])


def _print(advice: Advice, own: bool) -> None:
    from trivet.cli.timing import duration

    setting = ", ".join(f"{key}: {value}" for key, value in advice.precision.items())
    show(f"precision: {{{setting}}}", "")
    show(
        f"expected BitOPs, counted:   {advice.cost_of_static8:.1%} of static 8 bits, "
        f"{advice.cost_of_fp32:.2%} of full precision ({advice.group} schedule)"
    )
    if advice.seconds is not None:
        show(f"expected seconds, measured: {duration(advice.seconds)} for {advice.steps:,} steps of the timed length")
    else:
        show("expected seconds:           no step was timed; --time STUDY.yaml times one here")
    show(f"at q_min in the first tenth of training: {advice.early_share:.0%} of the steps", "")
    show(f"why: {advice.reason}.")
    for text in advice.would_change:
        show(f"it would change if {text}.")
    hint = "" if own else "; your own study goes first: --from FOLDER"
    talk(f"\nsource of the rule: {', '.join(advice.sources)}{hint}")
