"""`trivet doctor -- COMMAND`: what moves the result of the user's own script, which is run unmodified.

Each setting that can be made from outside (environment variables) is one run of the command. Where it trains with a
torch optimizer, its weights are followed step by step (`trivet.audit.watch`); the numbers that it prints are compared
too. First the command is repeated: if that gives other bits, the seeds are set from outside, and then one thread is
tried, to say why.

Not covered: settings inside the script, such as `channels_last`; what the script writes into its own files, which the
next run finds there (put `{run_dir}` where the script takes its output folder).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trivet.audit.movement import Trace, movement
from trivet.audit.printed import Place, PrintedChange, compare_printed
from trivet.audit.settings import BASELINE, Group, Setting, lacking, settings
from trivet.audit.watch import SITECUSTOMIZE, VARIABLE
from trivet.cli.console import emit_json, show, table, talk
from trivet.cli.moving import SHOWN_STEPS, Row, absent, advice, columns, processor
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import TrivetError

OUTSIDE = ("threads", "aten_isa", "onednn_isa", "mkl_cbwr")
"""Settings of the environment that variables make."""
SEEDED = {"PYTHONHASHSEED": "0"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ScriptFailed(TrivetError):
    """The command ended with an error under no setting at all."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the command."""

    code: int
    output: str
    errors: str
    seconds: float
    trace: Trace | None
    used: Mapping[str, Any]
    """What its process computed with; empty if it could not be followed."""


def examine(command: Sequence[str], *, group: Group, steps: int, json: bool) -> bool:
    """Run a command under each setting, print what moved, and say whether it repeats.

    Args:
        command: Its words; `python` is the Python that runs trivet, `{run_dir}` a new folder in each run.
        group: Which settings.
        steps: Optimizer steps after which each run is stopped; 0: none.
        json: Whether to print JSON.

    Raises:
        ScriptFailed: It ends with an error as it is.
        ValueError: There is no such program.
    """
    words = _words(command)
    with tempfile.TemporaryDirectory(prefix="trivet-doctor-") as name:
        lab = _Lab(words, Path(name), steps)
        control = _control(lab)
        base = control.base
        rows, printed = list[Row](), dict[str, PrintedChange]()
        if control.repeats:
            for setting in outside(group, on_gpu=base.used.get("device") == "cuda"):
                row, change = _measured(lab, setting, control)
                rows.append(row)
                if change is not None:
                    printed[setting.name] = change
    followed = base.trace is not None
    content = {
        "ok": control.repeats,
        "command": list(command),
        "followed": followed,
        "steps": len(base.trace.losses) if base.trace else None,
        "used": dict(base.used),
        "notes": list(control.notes),
        "settings": [_plain(row, printed.get(row.setting.name)) for row in rows],
    }
    if json:
        emit_json(content)
    else:
        _print(content, rows, printed)
    return control.repeats


def outside(group: Group, *, on_gpu: bool = False) -> list[Setting]:
    """Settings that can be made by variables alone.

    Examples:
        >>> [one.name for one in outside("quick")]
        ['threads 1', 'threads 2', 'all three lowest']
    """
    from trivet.training.fingerprint import available_cores

    found = [
        one
        for one in settings(group, cores=available_cores())
        if not (one.change or one.noise) and set(one.environment) <= set(OUTSIDE) and (one.environment or one.variables)
    ]
    threads = next(place for place, one in enumerate(found) if "threads" in one.environment)
    found.insert(threads, replace(found[threads], name="threads 1", environment={"threads": 1}))
    found = [replace(one, zero=False) for one in found]
    if on_gpu:
        hidden = Setting(name="CPU instead of GPU", variables={"CUDA_VISIBLE_DEVICES": ""},
                         advice="compare on one kind of device, over several seeds")  # fmt: skip
        exact = Setting(name="TF32 off", variables={"NVIDIA_TF32_OVERRIDE": "0"}, advice="one choice for all runs")
        found += [hidden, exact]
    return found


def outside_variables(setting: Setting) -> dict[str, str]:
    """Variables of a setting, without those that it does not name.

    Examples:
        >>> outside_variables(Setting(name="", environment={"aten_isa": "default"}))
        {'ATEN_CPU_CAPABILITY': 'default'}
    """
    plain = EnvironmentConfig().variables()
    asked = EnvironmentConfig(**setting.environment).variables()
    if "threads" not in setting.environment:
        asked = {name: value for name, value in asked.items() if name not in plain}
    return {**asked, **setting.variables}


def _words(command: Sequence[str]) -> list[str]:
    import shutil

    from trivet.tasks.command_config import PYTHONS

    words = list(command)
    if words[0] in PYTHONS:
        words[0] = sys.executable
    if shutil.which(words[0]) is None:
        raise ValueError(
            f"there is no program {words[0]!r}; give the command as you type it: -- python train.py --lr 1"
        )
    return words


class _Lab:
    """Runs the command, each time with its own variables."""

    def __init__(self, words: Sequence[str], folder: Path, steps: int) -> None:
        self._command, self._folder, self._steps = list(words), folder, steps
        self._hook = folder / "hook"
        self._hook.mkdir()
        (self._hook / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
        self._runs = 0

    def run(self, what: str, variables: Mapping[str, str], *, seed: bool = False) -> Run:
        """Once, to its end or to the last step that is wanted."""
        talk(f"running the command: {what} …")
        self._runs += 1
        folder = self._folder / str(self._runs)
        (folder / "out").mkdir(parents=True)
        keep = [*SHOWN_STEPS]
        request = {"folder": str(folder), "keep": keep, "steps": self._steps, "seed": seed}
        path = os.pathsep.join([str(self._hook), *filter(None, [os.environ.get("PYTHONPATH")])])
        started = time.perf_counter()
        with open(folder / "output", "w+b") as output, open(folder / "errors", "w+b") as errors:
            done = subprocess.run(
                [word.replace("{run_dir}", str(folder / "out")) for word in self._command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    **variables,
                    "PYTHONPATH": path,
                    VARIABLE: json.dumps(request),
                },
                check=False,
            )
        seconds = time.perf_counter() - started
        texts = [(folder / name).read_text(errors="replace") for name in ("output", "errors")]
        trace, used = _trace(folder)
        return Run(code=done.returncode, output=texts[0].replace(str(folder), ""), errors=texts[1], seconds=seconds,
                   trace=trace, used=used)  # fmt: skip


def _trace(folder: Path) -> tuple[Trace | None, dict[str, Any]]:
    """Of the process that made most steps."""
    import numpy as np

    seen = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    if not seen:
        return None, {}
    best = max(seen, key=lambda one: (len(one["losses"]), -int(one["rank"])))
    with np.load(best["arrays"]) as arrays:
        weights = {int(name): arrays[name] for name in arrays.files}
    losses = best["losses"] if any(best["losses"]) else []
    return Trace(checksums=best["checksums"], losses=losses, weights=weights), best["settings"]


@dataclass(frozen=True, kw_only=True)
class Control:
    """The run that the others are compared with."""

    base: Run
    repeats: bool
    """Whether the same command gave the same bits."""
    notes: tuple[str, ...]
    """What to tell the user of it."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """What had to be set for that, in every run."""
    seed: bool = False
    """Whether it had to be seeded from outside."""
    ignored: frozenset[Place] = frozenset()
    """What its output does not repeat."""


ATTEMPTS = (
    (
        "seeds set from outside",
        SEEDED,
        "with PYTHONHASHSEED=0 and seeds for random, numpy and torch it repeats: seed them in the script "
        "(torch.manual_seed, numpy.random.seed, random.seed). What follows was measured with these seeds",
    ),
    (
        "seeds and one thread",
        {**SEEDED, **ONE_THREAD},
        "with seeds and one thread it repeats: threads race in it; torch.use_deterministic_algorithms(True) names the "
        "operation. What follows was measured with one thread",
    ),
)
"""What is set from outside, in turn, until a command repeats."""

HOPELESS = (
    "with seeds for random, numpy and torch and one thread it still does not: look for generators that it seeds itself "
    "(numpy.random.default_rng(), time, process numbers), for files that it finds and writes, and for the order of "
    "os.listdir; trivet.audit.order tells whether the data differ. No setting can be judged before it repeats"
)


def _control(lab: _Lab) -> Control:
    """Repeat the command, with as little set from outside as it takes."""
    base = lab.run("as it is", {})
    if base.code:
        tail = "\n".join(base.errors.strip().splitlines()[-5:])
        raise ScriptFailed(f"the command ended with exit code {base.code}; its last lines:\n{tail}")
    again = lab.run("again", {})
    if _is_equal(base, again):
        return Control(base=base, repeats=True, notes=(_equal_note(base, again),), ignored=_unstable(base, again))
    loud = f"TWO RUNS OF THE SAME COMMAND GIVE OTHER BITS: {_difference(base, again)}"
    for what, variables, note in ATTEMPTS:
        one, other = (lab.run(f"{what}, {count}", variables, seed=True) for count in ("once", "twice"))
        if not one.code and _is_equal(one, other):
            return Control(base=one, repeats=True, notes=(loud, note), variables=variables, seed=True,
                           ignored=_unstable(one, other))  # fmt: skip
    return Control(base=base, repeats=False, notes=(loud, HOPELESS))


def _is_equal(one: Run, other: Run) -> bool:
    """By the weights; of what cannot be followed only the exit code is known, as printed numbers may be seconds."""
    if one.trace is not None and other.trace is not None:
        return movement(one.trace, other.trace).is_zero
    return (one.trace is None) == (other.trace is None) and one.code == other.code


def _unstable(one: Run, other: Run) -> frozenset[Place]:
    return frozenset(compare_printed(one.output, other.output).places)


def _equal_note(one: Run, other: Run) -> str:
    change = compare_printed(one.output, other.output)
    left_out = f"{len(change.places)} numbers or lines differ between two runs and are left out"
    if one.trace is not None:
        return f"two runs of the command are bit-equal in the weights of {len(one.trace.losses)} steps; {left_out}"
    return (
        f"no torch optimizer was seen at work, so only printed numbers are compared; {left_out}: if one of them is a "
        "result and not a time, the command does not repeat"
    )


def _difference(one: Run, other: Run) -> str:
    if one.trace is None or other.trace is None:
        return "one of them could not be followed"
    found = movement(one.trace, other.trace)
    if found.step is None:
        return f"{found.steps[0]} and {found.steps[1]} steps, or other losses"
    where = "before the first step" if found.step == 0 else f"from step {found.step} on"
    return f"the weights differ {where}, by {found.end:.0e} of their size at the end"


def _measured(lab: _Lab, setting: Setting, control: Control) -> tuple[Row, PrintedChange | None]:
    missing = lacking(setting.needs, **processor())
    if missing:
        return Row(setting=setting, problem=f"not here: {missing}"), None
    base = control.base
    run = lab.run(setting.name, {**control.variables, **outside_variables(setting)}, seed=control.seed)
    if run.code:
        last = (run.errors.strip().splitlines() or ["no message"])[-1]
        return Row(setting=setting, problem=f"failed with exit code {run.code}: {last}", seconds=run.seconds), None
    moved = movement(base.trace, run.trace) if base.trace and run.trace else None
    unrealised = _unrealised(setting, run.used) if run.used else {}
    change = compare_printed(base.output, run.output, ignored=control.ignored)
    return Row(setting=setting, unrealised=unrealised, moved=moved, seconds=run.seconds), change


def _unrealised(setting: Setting, used: Mapping[str, Any]) -> dict[str, str]:
    asked = {**setting.environment}
    if "MKL_CBWR" in setting.variables:
        asked["mkl_cbwr"] = setting.variables["MKL_CBWR"]
    return {
        name: f"asked {value}, got {used[name]}"
        for name, value in asked.items()
        if name in used and used[name] != value
    }


def _plain(row: Row, change: PrintedChange | None) -> dict[str, Any]:
    moved = (row.moved is not None and not row.moved.is_zero) or bool(change and change.places)
    content = {**row.to_dict(), "against": BASELINE, "moves_result": moved}
    content["realised"] = None if row.moved is None and not row.problem else row.is_realised
    content["advice"] = row.setting.advice if moved else ""
    if change is not None:
        content["printed"] = {"differ": len(change.places), "compared": change.compared, "largest": change.largest,
                              "last": change.last}  # fmt: skip
    return content


def _print(content: Mapping[str, Any], rows: Sequence[Row], printed: Mapping[str, PrintedChange]) -> None:
    for note in content["notes"]:
        print(note)
    if not rows:
        return
    print()
    words = {name: str(change) for name, change in printed.items()}
    if content["followed"]:
        titles, cells = columns(rows)
        lines = [row.setting.name for row in rows if row.moved is not None]
        cells = [[*line[:-1], words.get(name, "")] for name, line in zip(lines, cells, strict=True)]
        show(table([*titles[:-1], "printed numbers that differ"], cells, left=(0, 1)))
    else:
        cells = [[name, "unknown", text] for name, text in words.items()]
        show(table(["setting", "realised", "printed numbers that differ"], cells, left=(0, 1)))
    for line in absent(rows):
        print(line)
    moved = [name for name, change in printed.items() if change.places]
    if moved:
        print("\nprinted last with a difference:")
        for name in moved:
            print(f"  {name}: {printed[name].last}")
    texts = dict(advice(rows)) | {row.setting.name: row.setting.advice for row in rows if row.setting.name in moved}
    print("\nwhat to do about those that move the result:" if texts else "\nnone of them moves the result")
    for name, text in texts.items():
        print(f"  {name}: {text}")
