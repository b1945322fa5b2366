"""`trivet bisect`: the first step and the first tensor at which two trainings differ, and how fast they part."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from trivet.cli.child import ask
from trivet.cli.console import emit_json, show, table, talk, verb
from trivet.cli.options import StudySetOption

DIFFERENT = 3
"""Exit code under `--exit-code` when the runs differ."""


@verb
def bisect(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run folder, a run's config.yaml, or a study file.")],
    b: Annotated[Path | None, typer.Argument(metavar="[B]", help="The other run; A when left out.")] = None,
    arms: Annotated[str, typer.Option("--arms", help="One arm of A, or two of them, with a comma.")] = "",
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of both runs.")] = None,
    set_: StudySetOption = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps to compare.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 3 when the runs differ.")] = False,
) -> None:
    """Train two runs for some steps, each in a process of its own, and compare their bits.

    `--set` changes the second run: `trivet bisect RUN --set environment.threads=2` asks what two threads change.
    """
    one, other = configurations(a, b, arms, seed, set_ or [])
    found = compare(one, other, min(steps, one["training"]["steps"], other["training"]["steps"]))
    if json:
        emit_json(found)
    else:
        _print(found)
    if exit_code and found["step"] is not None:
        raise typer.Exit(DIFFERENT)


def configurations(
    a: Path, b: Path | None, arms: str, seed: int | None, changes: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both runs, resolved.

    Raises:
        ConfigError: A file cannot be read, or a run is refused.
        ValueError: An arm that does not exist, or nothing that could differ.
    """
    from trivet.core.config import build, set_key, to_plain
    from trivet.tasks.config import RunConfig

    names = [name.strip() for name in arms.split(",") if name.strip()]
    if len(names) > 2 or (len(names) == 2 and b):
        raise ValueError(f"`--arms {arms}` must name one arm, or two of A alone")
    first, second = _content(a, names[0] if names else ""), _content(b or a, names[-1] if names else "")
    for assignment in changes:
        second = set_key(second, assignment)
    runs = [to_plain(build(RunConfig, content)) for content in (first, second)]
    if seed is not None:
        runs = [{**run, "seed": seed} for run in runs]
    for run in runs:
        if run["training"] is None:
            raise ValueError("a command's training cannot be bisected: trivet does not see its tensors")
    return runs[0], runs[1]


def _content(path: Path, arm: str) -> dict[str, Any]:
    """A run's configuration: of a folder, a file, or the first seed of a study's arm."""
    from trivet.core.config import load_yaml
    from trivet.core.errors import unknown_name
    from trivet.study import Study
    from trivet.study.plan import plan

    file = path / "config.yaml" if path.is_dir() else path
    content = load_yaml(file)
    if "base" not in content:
        if arm:
            raise ValueError(f"`--arms {arm}`: {file} is a run, which has no arms; give a study file")
        return content
    runs = sorted(plan(Study.from_yaml(file).spec), key=lambda run: run.block)
    known = list(dict.fromkeys(run.arm for run in runs))
    if arm and arm not in known:
        raise ValueError(unknown_name("arm", arm, known))
    return dict(next(run.config for run in runs if run.arm == (arm or known[0])))


def compare(a: Mapping[str, Any], b: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Train both for some steps and find where they part.

    Returns:
        `steps`; `step` (first whose bits differ, counted from 1; 0: before the first; None: none); `loss_step` (first
        whose loss differs); `tensor`; `curve` (step, relative L2 distance of the weights, difference of the losses);
        `doubling_steps`; `not_realised` of each.
    """
    from trivet.audit.difference import first_difference, first_tensor, snapshot_steps

    keep = snapshot_steps(steps)
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{side}.npz") for side in ("a", "b")]
        talk(f"training both for {steps} steps …")
        seen = [_traced(run, steps, keep, file) for run, file in zip((a, b), files, strict=True)]
        curve = _curve(files, keep, seen) if seen[0]["start"] == seen[1]["start"] else []
    step = first_difference(*([one["start"], *one["checksums"]] for one in seen))
    loss = first_difference(seen[0]["losses"], seen[1]["losses"])
    if step is None and loss is not None:
        step = loss + 1
    found: dict[str, Any] = {"steps": steps, "step": step, "loss_step": None if loss is None else loss + 1}
    found["tensor"] = None
    if step is not None:
        talk(f"the bits part at step {step}; looking at its tensors …")
        logs = [_traced(run, max(step, 1), [], "", watch=max(step, 1) - 1)["rows"] for run in (a, b)]
        tensor = first_tensor(*logs)
        found["tensor"] = None if tensor is None else {**asdict(tensor), "sentence": str(tensor)}
    found["curve"] = curve
    found["doubling_steps"] = _doubling(curve, step)
    found["not_realised"] = {side: one["not_realised"] for side, one in zip("ab", seen, strict=True)}
    return found


def _traced(run: Mapping[str, Any], steps: int, keep: Sequence[int], weights: str, watch: int = -1) -> dict[str, Any]:
    from trivet.core.config import build
    from trivet.core.environment import EnvironmentConfig

    request = {"config": run, "steps": steps, "keep": list(keep), "weights": weights, "watch": watch}
    variables = build(EnvironmentConfig, run["environment"]).variables()
    return ask("trivet.cli.traces", request, "the run cannot be traced", variables)


def _curve(files: Sequence[str], keep: Sequence[int], seen: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Distance of the weights, relative to the first run's, and of the losses, at the steps that were kept."""
    import numpy as np

    with np.load(files[0]) as left, np.load(files[1]) as right:
        rows = []
        for step in keep:
            if str(step) not in left or str(step) not in right or left[str(step)].shape != right[str(step)].shape:
                continue
            one, other = (side[str(step)].astype(np.float64) for side in (left, right))
            losses = [float.fromhex(trace["losses"][step - 1]) for trace in seen]
            size = float(np.linalg.norm(one)) or 1.0
            rows.append(
                {"step": step, "distance": float(np.linalg.norm(one - other)) / size, "loss": losses[1] - losses[0]}
            )
    return rows


def _doubling(curve: Sequence[Mapping[str, float]], step: int | None) -> float | None:
    from trivet.audit.difference import doubling_steps

    after = [row for row in curve if step is not None and row["step"] >= step]
    return doubling_steps([int(row["step"]) for row in after], [row["distance"] for row in after])


def _print(found: Mapping[str, Any]) -> None:
    for side, names in found["not_realised"].items():
        if names:
            print(f"{side.upper()} did not get the environment it asked for: {', '.join(names)}")
    if found["step"] is None:
        print(f"bit-equal over {found['steps']} steps: all weights after each step, and every loss")
        return
    if found["step"] == 0:
        print("the weights differ before the first step")
    else:
        loss = f"the loss at step {found['loss_step']}" if found["loss_step"] else "no loss"
        print(f"the bits of the weights part at step {found['step']}, those of {loss} (of {found['steps']} steps)")
    if found["tensor"]:
        print(f"there, {found['tensor']['sentence']}")
        if not found["tensor"]["same_structure"]:
            print("the two runs do not compute the same tensors; only what both begin with was compared")
    if found["curve"]:
        cells = [[f"{row['step']}", f"{row['distance']:.2e}", f"{row['loss']:+.2e}"] for row in found["curve"]]
        show(table(("step", "distance / size of the weights", "loss, B − A"), cells))
    if found["doubling_steps"]:
        print(f"the distance doubles about every {found['doubling_steps']:.0f} steps")
