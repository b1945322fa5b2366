"""A question to a process of its own that may import torch: one JSON request in, one JSON answer out.

The command line stays light, and a user's model that crashes its process is an error and not the end of the command.
`ask` is the side of the command line, `serve` that of the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from trivet.core.errors import TrivetError


class ChildError(TrivetError):
    """The process could not answer."""


def ask(module: str, request: Mapping[str, Any], problem: str, variables: Mapping[str, str] | None = None) -> Any:
    """Run `python -m module` on a request and return its answer.

    Args:
        module: Name of a module that calls `serve`.
        request: What it is asked.
        problem: What to say before its last word when it fails, such as "the cost cannot be counted".
        variables: Environment variables to add, such as thread counts.

    Raises:
        ChildError: It failed, or answered with an error, whose exit code the error then carries.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, **(variables or {})},
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ChildError(f"{problem}: {lines[-1]}")
    content = json.loads(done.stdout)
    if "error" in content:
        error = ChildError(content["error"])
        error.exit_code = content["exit_code"]
        raise error
    return content


def serve(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> int:
    """Read a request, write the answer; errors on purpose are an answer too. Returns the exit code."""
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # a user's model may print
        try:
            content = answer(request)
        except (TrivetError, ValueError) as error:
            content = {"error": str(error), "exit_code": getattr(error, "exit_code", 2)}
    json.dump(content, sys.stdout)
    return 0
