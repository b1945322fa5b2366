"""The side of `trivet cost` and `run --dry-run` that needs torch, in a process of its own.

`python -m trivet.cli.costs` reads one JSON request on standard input and writes one JSON answer on standard output.
A request holds run configurations; the answer holds, for each, its BitOPs, those of the same training in full
precision and, when asked, the measured time of a few real steps, or of a step of the model at each number of bits.

Not covered: commands of the user's, whose layers cannot be seen.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.cli.child import serve
from trivet.core.config import build, canonical_json, dump_yaml, merge
from trivet.core.errors import TrivetError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trivet.precision import LayerCost
    from trivet.tasks.config import RunConfig

MEASURED_STEPS = 8
"""Steps timed for an estimate, after a warm-up of two."""

BUDGET_SECONDS = 25.0
"""No further arm is timed once timing has taken this much; the first always is."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Cost of each run of a request; see the module for its form."""
    from trivet.tasks.config import RunConfig

    timing = 0.0
    cached: dict[str, list[LayerCost]] = {}
    rows: list[dict[str, Any]] = []
    for item in request["runs"]:
        run = build(RunConfig, item["config"])
        key = canonical_json(run.task)
        if key not in cached:
            cached[key] = _layers(run, request.get("input"), request.get("classes"))
        row = {"name": item["name"], **_bitops(run, cached[key])}
        if request.get("measure") and timing < BUDGET_SECONDS:
            started = time.monotonic()
            row.update(_measure(item["config"]))
            timing += time.monotonic() - started
        rows.append(row)
    first: list[LayerCost] = next(iter(cached.values()), [])
    layers = [
        {"name": layer.name, "kind": layer.kind, "macs": layer.macs, "quantized": layer.quantised} for layer in first
    ]
    if request.get("levels"):
        return {"runs": rows, "layers": layers, "levels": _levels(request, first)}
    return {"runs": rows, "layers": layers}


def _levels(request: Mapping[str, Any], layers: list[LayerCost]) -> list[dict[str, Any]]:
    """Measured seconds of a step of the first run's model at each level."""
    from trivet.cli.levels import measure_levels
    from trivet.tasks.config import RunConfig

    run = build(RunConfig, request["runs"][0]["config"])
    if run.training is None:
        raise ValueError("`training` is missing")
    model, _ = _classifier(run, request["input"], request["classes"])
    return measure_levels(model, request["input"], request["classes"], run.training.batch_size, layers)


def _layers(run: RunConfig, shape: list[int] | None, classes: int | None) -> list[LayerCost]:
    """Layers of a run's model, by its task; of a classifier on images of a given shape without any data."""
    from trivet.precision import layer_macs, quantize_
    from trivet.tasks.base import task_module

    task = task_module(run.task.name)
    if shape is None or classes is None:
        model, example = task.counted(run)
    else:
        model, example = _classifier(run, shape, classes)
    if task.quantizes is not None:
        quantize_(model, task.quantizes)
    return layer_macs(model, example)


def _classifier(run: RunConfig, shape: list[int], classes: int) -> tuple[nn.Module, Tensor]:
    import torch

    from trivet.models import build_model
    from trivet.tasks.image_classification_config import ImageClassificationConfig
    from trivet.tasks.task_config import options_of

    task = options_of(run, ImageClassificationConfig)
    channels, height, width = shape
    model = build_model(
        task.model, num_classes=classes, in_channels=channels, image_size=(height, width), width=task.width
    )
    return model, torch.zeros(1, channels, height, width)


def _bitops(run: RunConfig, layers: list[LayerCost]) -> dict[str, Any]:
    from trivet.precision import layer_bitops, training_bitops

    if run.training is None:
        raise ValueError("`training` is missing")
    steps, batch = run.training.steps, run.training.batch_size
    schedule = run.precision.build(steps)
    full = training_bitops(layers, None, batch_size=batch, steps=steps)
    roles = run.precision.build_roles(steps)
    parts = layer_bitops(layers, roles, run.precision.backward_bits, batch, steps)
    low = schedule.q_min if schedule and schedule.q_min < schedule.q_max else 0
    return {
        "bitops": float(sum(part.total for part in parts)),
        "by_layer": [[part.name, part.forward, part.backward_input, part.backward_weight] for part in parts],
        "at_q_min_first_10_percent": schedule.share_at(low, first=0.10) if schedule and low else None,
        "at_q_min_first_25_percent": schedule.share_at(low, first=0.25) if schedule and low else None,
        "fp32_bitops": full,
        "mean_bits": schedule.mean_bits if schedule else 32.0,
        "macs": sum(layer.macs for layer in layers),
        "macs_quantized": sum(layer.macs for layer in layers if layer.quantised),
        "steps": steps,
        "batch_size": batch,
    }


def _measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of one step and of everything around the steps, from a real but short run; nothing when that fails."""
    try:
        _short_run({name: value for name, value in config.items() if name != "curvature"}, 2)
        steps, train, whole = _short_run(config, MEASURED_STEPS)
    except (TrivetError, ValueError, RuntimeError) as error:
        return {"not_measured": str(error)}
    return {"step_seconds": train / steps, "overhead_seconds": max(whole - train, 0.0)}


def _short_run(config: Mapping[str, Any], steps: int) -> tuple[int, float, float]:
    from trivet.core.runfolder import RunFolder
    from trivet.tasks.run import run_task

    if config["training"].get("compile"):
        raise ValueError("compilation takes too long for an estimate")
    precision = config.get("precision") or {}
    cycles = precision.get("num_cycles") or 1
    steps = max(steps, int(cycles))
    training = {
        "steps": steps, "log_every": steps, "evaluate_every": 0, "checkpoint_every": 0, "schedule": {"warmup_steps": 0},
    }  # fmt: skip
    short = merge(config, {"training": training})
    short["precision"] = {key: value for key, value in precision.items() if key != "deficit"}
    if at := (config.get("curvature") or {}).get("at"):  # as many measurements, at the steps that there are
        short["curvature"]["at"] = list(range(max(1, steps - len(at) + 1), steps + 1))
    with tempfile.TemporaryDirectory(prefix="trivet-estimate-") as name:
        run = RunFolder(Path(name) / "run")
        run.path.mkdir()
        run.config_path.write_text(dump_yaml(short), encoding="utf-8")
        code = run_task(run.path)
        if code:
            raise RuntimeError((run.read_error() or {}).get("message", f"exit code {code}"))
        result = run.read_result()
        return result.steps, result.train_seconds, result.seconds


if __name__ == "__main__":
    sys.exit(serve(answer))
