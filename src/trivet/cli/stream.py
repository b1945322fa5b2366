"""A question to a process of its own that answers line by line, for work that takes minutes; see `child`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from trivet.cli.child import ChildError


def answers(module: str, request: Mapping[str, Any], problem: str) -> Iterator[dict[str, Any]]:
    """Run `python -m module REQUEST` and yield its answers as they come.

    Args:
        module: Takes one JSON argument and prints one JSON object a line.
        request: What it is asked.
        problem: What to say before its last word when it fails.

    Raises:
        ChildError: It failed; the error carries its exit code.
    """
    command = [sys.executable, "-m", module, json.dumps(request)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        yield from map(json.loads, process.stdout or ())
        process.wait()
        errors.seek(0)
        words = errors.read().strip().splitlines()
    if process.returncode:
        error = ChildError(f"{problem}: {words[-1] if words else f'exit code {process.returncode}'}")
        error.exit_code = process.returncode if process.returncode == 2 else 1
        raise error
