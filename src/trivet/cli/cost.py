"""`trivet cost`: the BitOPs of a model under each schedule, or of every arm of a study, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.cli.console import emit_json, show, table, talk, verb
from trivet.cli.options import ClassesOption, InputOption, StudySetOption, WidthOption, image_shape

FULL = "fp32"
_EARLY = ("at_q_min_first_10_percent", "at_q_min_first_25_percent")


@verb
def cost(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|STUDY.yaml", help="resnet20, mobilenet_v2, torchvision:NAME, python:pkg.mod:fn, or a study."
        ),
    ],
    schedule: Annotated[str, typer.Option("--schedule", help="One schedule (static, RR, …); all by default.")] = "",
    q_min: Annotated[int, typer.Option("--q-min", help="Fewest bits.")] = 3,
    q_max: Annotated[int, typer.Option("--q-max", help="Most bits, and those of `static`.")] = 8,
    num_cycles: Annotated[int, typer.Option("--num-cycles", help="Cycles in the training.")] = 8,
    grad_bits: Annotated[int, typer.Option("--grad-bits", help="Bits of the backward pass; 0 means q_max.")] = 0,
    steps: Annotated[int, typer.Option("--steps", help="Optimizer steps.")] = 64_000,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Examples a step.")] = 128,
    width: WidthOption = 16,
    input_: InputOption = "",
    classes: ClassesOption = 0,
    set_: StudySetOption = None,
    layers: Annotated[bool, typer.Option("--layers", help="List every layer.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time a few steps: of a model at each number of bits, or of each arm.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Count what training will cost in BitOPs: a model under every schedule, or every arm of a study."""
    if target.endswith((".yaml", ".yml")) or Path(target).is_dir():
        content = _of_study(target, set_ or [], measure)
    else:
        from trivet.models.names import check_model_name

        check_model_name(target)
        shape, outputs = image_shape(target, input_, classes)
        training = {"steps": steps, "batch_size": batch_size}
        task = {"name": "image-classification", "model": target, "width": width}
        runs = [
            {"name": name, "config": {"task": task, "training": training, "precision": precision}}
            for name, precision in _precisions(schedule, q_min, q_max, num_cycles, grad_bits).items()
        ]
        content = _of_model(runs, shape, outputs, measure)
    if json:
        emit_json(content)
        return
    _print(content, layers)


def _precisions(schedule: str, q_min: int, q_max: int, num_cycles: int, grad_bits: int) -> dict[str, dict[str, Any]]:
    """Name → `precision` section: full precision, static q_max, and the schedules asked for."""
    from trivet.core.errors import unknown_name
    from trivet.precision.schedules import PrecisionSchedule

    names = PrecisionSchedule.names()
    if schedule and schedule not in (*names, "static"):
        raise ValueError(unknown_name("schedule", schedule, ["static", *names]))
    static = f"static {q_max}"
    found: dict[str, dict[str, Any]] = {FULL: {}}
    found[static] = {"schedule": "static", "bits": q_max, "grad_bits": grad_bits}
    cyclic = {"q_min": q_min, "q_max": q_max, "num_cycles": num_cycles, "grad_bits": grad_bits, "odd_cycles": "allow"}
    chosen = [name for name in names if schedule in ("", name)]
    return {**found, **{name: {"schedule": name, **cyclic} for name in chosen}}


def _of_model(runs: list[dict[str, Any]], shape: list[int], classes: int, measure: bool) -> dict[str, Any]:
    from trivet.cli.estimate import count

    talk("counting and measuring …" if measure else "counting …")
    answer = count({"runs": runs, "input": shape, "classes": classes, "levels": measure})
    first = answer["runs"][0]
    about = f"{runs[0]['config']['task']['model']}, input {'×'.join(map(str, shape))}, {classes} classes"
    more = {"macs": first["macs"], **({"levels": answer["levels"]} if measure else {})}
    return _content(about, answer["runs"], answer["layers"], more)


def _of_study(target: str, overrides: list[str], measure: bool) -> dict[str, Any]:
    from trivet.cli.estimate import arm_costs
    from trivet.cli.run import study_file
    from trivet.study.plan import plan
    from trivet.study.spec import StudySpec

    path = study_file(target)
    spec = StudySpec.from_yaml(path, overrides)
    runs = plan(spec)
    commands = [run.arm for run in runs if run.config["task"].get("command")]
    if commands:
        raise ValueError(
            f"{path}: the arm {commands[0]!r} is a command; its layers cannot be seen, so nothing is counted"
        )
    talk("counting and measuring …" if measure else "counting …")
    return _content(f"{path}, one run of each arm", arm_costs(runs, measure=measure), [], {})


def _content(
    about: str, rows: list[dict[str, Any]], layers: list[dict[str, Any]], more: dict[str, Any]
) -> dict[str, Any]:
    figures = [
        {
            "name": row["name"],
            "mean_bits": row["mean_bits"],
            "bitops": row["bitops"],
            "bitops_of_fp32": row["bitops"] / row["fp32_bitops"],
            "macs": row["macs"],
            "macs_quantized": row["macs_quantized"],
            "steps": row["steps"],
            "batch_size": row["batch_size"],
            **({"step_seconds": row["step_seconds"]} if "step_seconds" in row else {}),
            **({"not_measured": row["not_measured"]} if "not_measured" in row else {}),
            "at_q_min_first_10_percent": row.get("at_q_min_first_10_percent"),
            "at_q_min_first_25_percent": row.get("at_q_min_first_25_percent"),
            "by_layer": [
                dict(zip(("name", "forward", "backward_input", "backward_weight"), part, strict=True))
                for part in row.get("by_layer", ())
            ],
        }
        for row in rows
    ]
    return {"about": about, **more, "runs": figures, "layers": layers}


def _print(content: dict[str, Any], layers: bool) -> None:
    rows = content["runs"]
    static = next((row for row in rows if row["name"].startswith("static ")), None)
    columns = ["precision" if "macs" in content else "arm", "mean bits", "BitOPs per run", "/ fp32"]
    columns += [f"/ {static['name']}"] if static else []
    columns += ["at q_min, first 10 %", "first 25 %"]
    timed = any("step_seconds" in row for row in rows)
    columns += ["seconds a step, measured"] if timed else []
    body = [
        [
            row["name"],
            f"{row['mean_bits']:.2f}",
            f"{row['bitops']:.4g}",
            f"{row['bitops_of_fp32']:.2%}",
            *([f"{row['bitops'] / static['bitops']:.1%}"] if static else []),
            *("–" if row[key] is None else f"{row[key]:.0%}" for key in _EARLY),
            *([f"{row['step_seconds']:.4g}" if "step_seconds" in row else "–"] if timed else []),
        ]
        for row in rows
    ]
    first = rows[0]
    share = first["macs_quantized"] / first["macs"] if first["macs"] else 0.0
    show(
        f"{content['about']}: {first['macs']:,} multiply-accumulates an example and forward pass, {share:.1%} of them "
        f"in layers that a schedule quantizes; {first['steps']:,} steps × {first['batch_size']} examples\n"
    )
    if layers and content["layers"]:
        show(_layer_table(content["layers"], rows[-1]), "")
    show(table(columns, body))
    if "levels" in content:
        show("", _level_table(content["levels"]))
    talk("\nBitOPs are counted: MACs × (b_f² + 2·b_f·b_g) over all steps. They are not seconds.")


def _level_table(levels: list[dict[str, Any]]) -> Any:
    """BitOPs counted and seconds measured, of one training step at each number of bits."""
    first = levels[0]
    body = [
        [
            "fp32" if row["execution"] == "fp32" else f"{row['bits']} bits, {row['execution']}",
            f"{row['bitops']:.4g}",
            f"{row['bitops'] / first['bitops']:.2%}",
            f"{row['seconds']:.4g}",
            f"{row['processor_seconds']:.4g}",
            f"{row['relative']:.0%}",
            "; ".join(f"{count} × {name}" for name, count in row["kernels"].items()),
        ]
        for row in levels
    ]
    columns = ["one step", "BitOPs, counted", "/ fp32", f"seconds, median of {first['repeats']}"]
    columns += ["processor seconds", "/ fp32", "kernels"]
    return table(columns, body, left=(0, 6))


def _layer_table(layers: list[dict[str, Any]], run: dict[str, Any]) -> Any:
    """Layers with their share of the MACs, and what training them costs in the last run, by product."""
    macs, bitops = max(run["macs"], 1), max(run["bitops"], 1.0)
    parts = {part["name"]: part for part in run["by_layer"]}
    columns = ["layer", "kind", "MACs", "share", "quantized"]
    columns += [f"BitOPs of {run['name']}", "share", "forward", "backward, input", "backward, weight"]
    body: list[list[str]] = []
    for row in layers:
        part = parts[row["name"]]
        products = (part["forward"], part["backward_input"], part["backward_weight"])
        body.append(
            [
                row["name"],
                row["kind"],
                f"{row['macs']:,}",
                f"{row['macs'] / macs:.1%}",
                "yes" if row["quantized"] else "no",
                f"{sum(products):.3g}",
                f"{sum(products) / bitops:.1%}",
                *(f"{product / bitops:.1%}" for product in products),
            ]
        )
    return table(columns, body, left=(0, 1))
