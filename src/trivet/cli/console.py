"""What all verbs share: where data and talk go, how errors end a command, which exit codes exist.

Data goes to standard output, talk (progress, hints, errors) to standard error, so that `--json` can be piped.
Colors, widths and `NO_COLOR` are left to rich, which is imported only when something is drawn.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TextIO

import typer

from trivet.core.errors import TrivetError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DONE, FAILED, USAGE, NOT_ESTABLISHED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes of the command line."""

PIPE_WIDTH = 140
"""Columns of tables where there is no terminal that says how wide it is."""

P = ParamSpec("P")


def verb(function: Callable[P, None]) -> Callable[P, None]:
    """Decorate a verb: errors on purpose become one readable message and their exit code.

    `TrivetError` ends with its own exit code, `ValueError` (a bad argument) with 2, a full disk or a refused
    permission with 1, Ctrl-C with 130. Anything else is a bug of trivet's and keeps its traceback, and so does
    everything when `TRIVET_DEBUG` is set.

    Examples:
        >>> verb(lambda: None)()
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except KeyboardInterrupt:
            talk("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise
        except (TrivetError, ValueError, OSError) as error:
            if os.environ.get("TRIVET_DEBUG"):
                raise
            fail(_told(error), getattr(error, "exit_code", FAILED if isinstance(error, OSError) else USAGE))

    return guarded


def _told(error: Exception) -> str:
    """The message; of the operating system's errors, the file and the reason."""
    if isinstance(error, OSError) and not isinstance(error, TrivetError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def fail(message: str, code: int = USAGE) -> NoReturn:
    """End the command: each line of the message on standard error, then the exit code."""
    for line in message.splitlines() or [""]:
        print(f"error: {line}" if not line.startswith(" ") else line, file=sys.stderr)
    raise typer.Exit(code)


def talk(message: str = "") -> None:
    """One line for the person at the terminal, on standard error."""
    print(message, file=sys.stderr, flush=True)


def emit_json(content: Any) -> None:
    """Data on standard output as JSON; what is not a finite number becomes null."""
    print(json.dumps(_finite(content), indent=2, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def console(stream: TextIO | None = None) -> Console:
    """A rich console on standard output, or on `stream`."""
    from rich.console import Console

    file = stream or sys.stdout
    fixed = None if file.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=file, highlight=False, markup=False, emoji=False, width=fixed)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> Table:
    """A quiet table: a head, a rule, rows; every column is right-aligned except those numbered in `left`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index, title in enumerate(columns):
        grid.add_column(Text(title), justify="left" if index in left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def show(*renderables: Any, stream: TextIO | None = None) -> None:
    """Draw rich things (or plain text) on standard output."""
    target = console(stream)
    for item in renderables:
        target.print(item)
