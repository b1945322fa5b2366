"""What `trivet doctor` measures: each setting of this machine, how far it moves a small training, and what to do.

Not covered: running the trainings (`trivet.tasks.doctor`), the user's own script (`doctor_script.py`).
"""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trivet.audit.movement import BEYOND, Movement, Trace, movement
from trivet.audit.settings import REPEAT, Group, Setting, lacking, settings
from trivet.cli.console import talk

STEPS = {"quick": 30, "usual": 75, "all": 150}
"""Training steps of a choice."""
SHOWN_STEPS = (1, 10, 75)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One setting and what came of it."""

    setting: Setting
    problem: str = ""
    """Why there is no comparison; empty if there is one."""
    unrealised: Mapping[str, str] | None = None
    """What was asked for and is different."""
    moved: Movement | None = None
    accuracy: float | None = None
    seconds: float | None = None

    @property
    def is_realised(self) -> bool:
        """Whether the comparison is of what its name says."""
        return self.moved is not None and not self.unrealised

    @property
    def breaks_control(self) -> bool:
        """Whether it must be zero and is not."""
        return self.setting.zero and self.is_realised and self.moved is not None and not self.moved.is_zero

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "setting": self.setting.name,
            "against": self.setting.against,
            "realised": self.is_realised,
            "reason": self.problem or "; ".join(f"{name}: {why}" for name, why in (self.unrealised or {}).items()),
            "must_be_zero": self.setting.zero,
            **(self.moved.to_dict() if self.moved else {}),
            "accuracy": self.accuracy,
            "advice": self.setting.advice if self.moved and not self.moved.is_zero else "",
            "seconds": self.seconds,
        }


def measured(group: Group, *, steps: int = 0) -> list[Row]:
    """Train under every setting of a choice and compare; progress goes to standard error.

    Args:
        group: quick, usual or all.
        steps: Training steps; 0 takes the choice's own.

    Raises:
        ChildError: The process that trains ended.
    """
    from trivet.cli.stream import answers
    from trivet.training.fingerprint import available_cores

    cores, steps = available_cores(), steps or STEPS[group]
    chosen = settings(group, cores=cores)
    here = processor()
    missing = {one.name: reason for one in chosen if (reason := lacking(one.needs, **here))}
    tried = [one for one in chosen if one.name not in missing]
    talk(f"measuring {len(tried) - 1} settings, {steps} steps of a small network each …")
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="trivet-doctor-") as folder:
        request = {
            "settings": [asdict(one) for one in tried],
            "steps": steps,
            "keep": sorted({*(step for step in SHOWN_STEPS if step <= steps), steps}),
            "folder": folder,
            "slots": cores,
        }
        for answer in answers("trivet.tasks.doctor", request, "the settings cannot be measured"):
            found[answer["name"]] = answer
        traces = {name: _trace(answer) for name, answer in found.items() if "error" not in answer}
    return [_row(one, missing.get(one.name, ""), found, traces) for one in chosen[1:]]


def processor() -> dict[str, Any]:
    """What decides which settings can be tried here, as `lacking` takes it."""
    from trivet.training.fingerprint import fingerprint

    cpu = fingerprint()["cpu"]
    return {
        "flags": cpu["flags"],
        "model": cpu["model"],
        "architecture": platform.machine(),
        "compiler": any(shutil.which(name) for name in ("cc", "gcc", "clang")),
        "cuda": Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists(),
    }


def _trace(answer: Mapping[str, Any]) -> Trace:
    import numpy as np

    with np.load(answer["arrays"]) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    predictions = content.pop("predictions")
    weights = {int(step): values for step, values in content.items()}
    return Trace(checksums=answer["checksums"], losses=answer["losses"], weights=weights, predictions=predictions)


def _row(setting: Setting, missing: str, found: Mapping[str, Any], traces: Mapping[str, Trace]) -> Row:
    if missing:
        return Row(setting=setting, problem=f"not here: {missing}")
    answer = found.get(setting.name, {"error": "no answer"})
    if "error" in answer:
        return Row(setting=setting, problem=f"failed: {answer['error']}", seconds=answer.get("seconds"))
    if setting.against not in traces:
        return Row(setting=setting, problem=f"nothing to compare with: {setting.against!r} is missing")
    return Row(
        setting=setting,
        unrealised=answer["not_realised"],
        moved=movement(traces[setting.against], traces[setting.name]),
        accuracy=answer["accuracy"],
        seconds=answer["seconds"],
    )


def broken_controls(rows: Sequence[Row]) -> list[str]:
    """What to say loudly: rows that must be zero and are not."""
    broken = {row.setting.name: row for row in rows if row.breaks_control}
    lines = []
    if REPEAT in broken:
        lines.append(
            "THE SAME TRAINING GAVE OTHER BITS when it was repeated in a new process; no figure of this table means "
            "anything until that is understood: test the memory and the cooling, and look for another torch on the path"
        )
    others = [name for name in broken if name != REPEAT]
    if others:
        lines.append(f"{', '.join(others)}: must not change a bit, and did; please report it with the output of --json")
    return lines


def readings(rows: Sequence[Row]) -> list[str]:
    """What the table says, in sentences."""
    compared = [row for row in rows if row.moved is not None]
    still = [row.setting.name for row in compared if row.moved and row.moved.is_zero]
    null = [row.moved.end for row in compared if row.moved and row.setting.null]
    lines = [f"{len(still)} of {len(compared)} settings changed no bit: {', '.join(still)}"] if still else []
    if null:
        largest = max(null)
        more = [
            row.setting.name
            for row in compared
            if row.moved and row.moved.end > BEYOND * largest and row.setting.against == rows[0].setting.against
        ]
        lines.append(
            f"rounding alone moved the weights by up to {largest:.0e}; more than {BEYOND:.0f} times that: "
            f"{', '.join(more) or 'none'}"
        )
    hidden = [row for row in compared if row.moved and row.moved.step is not None]
    later = [row for row in hidden if row.moved and (row.moved.loss_step or 10**9) > max(row.moved.step or 0, 1)]
    if later:
        lines.append(
            f"in {len(later)} of {len(hidden)} settings that change the weights, the loss shows it later or not at all"
        )
    return lines


def columns(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of the table, of the rows that were compared."""
    compared = [row for row in rows if row.moved is not None]
    steps = sorted({step for row in compared if row.moved for step in row.moved.distances})
    titles = [
        "setting",
        "realised",
        "first step: weights",
        "loss",
        *(f"L2 @{step}" for step in steps),
        "/ path",
        "churn",
    ]
    return titles, [_cells(row, row.moved, steps) for row in compared if row.moved]


def _cells(row: Row, moved: Movement, steps: Sequence[int]) -> list[str]:
    why = "; ".join((row.unrealised or {}).values())
    against = "" if row.setting.against == "baseline" else f" (against {row.setting.against})"
    return [
        row.setting.name + against,
        f"no: {why}" if row.unrealised else "yes",
        "never" if moved.step is None else "start" if moved.step == 0 else str(moved.step),
        "never" if moved.loss_step is None else str(moved.loss_step),
        *(size(moved.distances.get(step)) for step in steps),
        size(moved.path_share),
        "" if moved.churn is None else f"{moved.churn:.2%}".replace("0.00%", "0"),
    ]


def size(value: float | None) -> str:
    """A distance in two digits.

    Examples:
        >>> size(0.0), size(1.234e-7), size(0.15), size(1.42), size(None)
        ('0', '1e-07', '0.15', '1.4', '')
    """
    if value is None:
        return ""
    return "0" if value == 0 else f"{value:.2g}" if value >= 0.01 else f"{value:.0e}"


def absent(rows: Sequence[Row]) -> list[str]:
    """Settings without a comparison, one line for each reason."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.problem:
            groups.setdefault(row.problem, []).append(row.setting.name)
    return [f"{problem}: {', '.join(names)}" for problem, names in groups.items()]


def advice(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Setting and one line, for each that moves the result."""
    return [(row.setting.name, row.setting.advice) for row in rows if row.moved and not row.moved.is_zero]
