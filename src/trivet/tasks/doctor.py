"""The settings of `trivet doctor`, each in a process of its own: `python -m trivet.tasks.doctor REQUEST`.

One JSON argument in, one JSON object a line out, as settings end. On Linux this process imports torch once, computes
nothing, and forks: a child begins as a process does that has just imported torch, sets its variables before anything
reads them, and probes what became of them. A setting that asks for it, and every one on other systems, is started from
nothing; the repeat is, so the two ways are compared bit by bit each time.

Not covered: settings that must be known to the loader of shared libraries.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.core.config import build
from trivet.core.environment import EnvironmentConfig
from trivet.core.errors import TrivetError
from trivet.core.io import write_json

ALONE = "alone"
CAN_FORK = sys.platform == "linux"


@dataclass
class _Child:
    """A setting at work."""

    name: str
    slots: int
    answer: Path
    started: float
    poll: Callable[[], int | None]
    errors: Path | None = None


def variables(setting: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables of a setting.

    Examples:
        >>> variables({"environment": {"threads": 2}, "variables": {"MKL_CBWR": "AUTO"}})["OMP_NUM_THREADS"]
        '2'
    """
    environment = build(EnvironmentConfig, {"device": "cpu", **setting["environment"]})
    return {**environment.variables(), **setting["variables"]}


def serve(request: Mapping[str, Any], write: Callable[[Mapping[str, Any]], None]) -> None:
    """Train under every setting and say when each has ended.

    Args:
        request: `settings`: plain values of `Setting`s; `steps`; `keep`; `folder`: for the arrays; `slots`: how many
            threads may work at once.
        write: Gets `name` and the answer, or `name` and `error`.
    """
    # Threads that wait sleep: the same bits, and no standstill where there are more of them than free processors.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if CAN_FORK:
        _prepare()
    waiting, working = list(enumerate(request["settings"])), list[_Child]()
    while waiting or working:
        free = request["slots"] - sum(child.slots for child in working)
        if waiting and (_slots(waiting[0][1], request["slots"]) <= free or not working):
            working.append(_start(*waiting.pop(0), request))
            continue
        ended = [child for child in working if child.poll() is not None]
        working = [child for child in working if child not in ended]
        for child in ended:
            write({"name": child.name, "seconds": round(time.perf_counter() - child.started, 1), **_answer(child)})
        if not ended:
            time.sleep(0.02)


def _prepare() -> None:
    """Import what every child needs, which computes nothing and starts no thread, and read the images."""
    import importlib

    for name in ("torch._dynamo", "torch._inductor.config"):  # optimizers import both, for seconds
        importlib.import_module(name)
    from trivet.tasks.small_network import embedded_images

    embedded_images()


def _slots(setting: Mapping[str, Any], slots: int) -> int:
    return min(int(setting["environment"].get("threads", 1)), slots)


def _start(number: int, setting: Mapping[str, Any], request: Mapping[str, Any]) -> _Child:
    folder, stem = Path(request["folder"]), str(number)
    one = {**request, "settings": [setting], ALONE: stem}
    answer, started = folder / f"{stem}.json", time.perf_counter()
    slots = _slots(setting, request["slots"])
    if setting["fresh"] or not CAN_FORK:
        errors = folder / f"{stem}.err"
        with open(errors, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "trivet.tasks.doctor", json.dumps(one)],
                env={**os.environ, **variables(setting)},
                stdout=subprocess.DEVNULL,
                stderr=file,
            )
        return _Child(setting["name"], slots, answer, started, process.poll, errors)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of idle threads of OpenBLAS, which is safe to fork
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(2, 1)
            os.environ.update(variables(setting))
            answer_alone(one)
            code = 0
        finally:
            os._exit(code)
    return _Child(setting["name"], slots, answer, started, lambda: _ended(pid))


def _ended(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def answer_alone(request: Mapping[str, Any]) -> None:
    """Train under the one setting of a request and write its answer and arrays into the folder."""
    import numpy as np

    from trivet.audit.settings import Setting
    from trivet.tasks.small_network import trained

    folder, stem = Path(request["folder"]), request[ALONE]
    try:
        setting = Setting(**request["settings"][0])
        content, arrays = trained(setting, steps=request["steps"], keep=request["keep"])
        named: dict[str, Any] = dict(arrays)
        np.savez(folder / f"{stem}.npz", **named)
        answer: dict[str, Any] = {**content, "arrays": str(folder / f"{stem}.npz")}
    except (TrivetError, RuntimeError, ValueError) as error:  # RuntimeError: an operation that torch refuses
        answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    write_json(folder / f"{stem}.json", answer)


def _answer(child: _Child) -> dict[str, Any]:
    if child.answer.exists():
        return json.loads(child.answer.read_text(encoding="utf-8"))
    said = child.errors.read_text(errors="replace").strip().splitlines() if child.errors else []
    return {"error": f"the process ended without an answer{': ' if said else ''}{said[-1] if said else ''}"}


def main(arguments: list[str]) -> int:
    """Serve one request; returns the exit code."""
    request = json.loads(arguments[0])
    if ALONE in request:
        answer_alone(request)
        return 0
    serve(request, _print)
    return 0


def _print(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
