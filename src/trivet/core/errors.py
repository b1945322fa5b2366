"""Errors that say what was given, what is allowed and how to fix it.

Bad arguments of a Python call raise the built-in `ValueError` or `TypeError`; the classes here are for
states that only exist at run time (a missing data set, an unreadable run folder) and for user files,
where the reader needs to know the file and the key.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass


class TrivetError(Exception):
    """Base of every error that trivet raises on purpose and that is not a bad argument."""

    exit_code = 1
    """Exit code of the command line when this error ends it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a user's file.

    Examples:
        >>> print(Problem(file="study.yaml", key="seeds", found="-1", allowed="a whole number ≥ 1"))
        study.yaml: seeds: found -1; allowed: a whole number ≥ 1
    """

    file: str
    """File the value came from; empty for values given in Python."""
    key: str
    """Dotted key inside the file."""
    found: str
    """What was given."""
    allowed: str
    """What may be given."""
    fix: str = ""
    """How to mend it, when that is more than `allowed` says."""
    sentence: str = ""
    """All of that in one sentence, when the part that refused the value wrote it; printed in place of the three."""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.file, self.key) if part)
        if self.sentence:
            return f"{place}: {self.sentence}" if place else self.sentence
        text = f"found {self.found}; allowed: {self.allowed}"
        if self.fix:
            text += f"; {self.fix}"
        return f"{place}: {text}" if place else text


class ConfigError(TrivetError, ValueError):
    """A configuration that cannot be run, with every problem found in it.

    Examples:
        >>> error = ConfigError([Problem("s.yaml", "seeds", "-1", "a whole number ≥ 1")])
        >>> error.problems[0].key
        'seeds'
    """

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class MissingDataError(TrivetError):
    """A data set is not on this machine; the message says where it was looked for and how to get it."""

    exit_code = 2


class MissingExtraError(TrivetError, ImportError):
    """An optional package is needed and not installed.

    Examples:
        >>> print(MissingExtraError("torchvision", "vision"))
        this needs the package 'torchvision', which is not installed; install it with: pip install 'trivet[vision]'
    """

    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed; "
            f"install it with: pip install 'trivet[{extra}]'"
        )


class RunFolderError(TrivetError):
    """A run or study folder that cannot be read, is held by another process, or belongs to something else."""


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name closest to `name`, or None when nothing is close.

    Case is ignored; the cut-off is difflib's similarity of 0.6 (0.5 for up to three letters), or a shared beginning.

    Examples:
        >>> nearest("sedes", ["name", "seeds", "base"])
        'seeds'
    """
    options = {option.lower(): option for option in allowed}
    cutoff = 0.5 if len(name) <= 3 else 0.6
    hits = difflib.get_close_matches(name.lower(), list(options), n=1, cutoff=cutoff)
    if hits:
        return options[hits[0]]
    beginnings = [option for low, option in options.items() if name and low.startswith(name.lower())]
    return beginnings[0] if beginnings else None


def unknown_name(kind: str, got: str, allowed: Iterable[str]) -> str:
    """Message for a name that does not exist: what was given, what is allowed, the nearest one.

    Examples:
        >>> unknown_name("schedule", "RX", ["RR", "CR"])
        "unknown schedule 'RX'; allowed: RR, CR; did you mean 'RR'?"
    """
    names = list(allowed)
    text = f"unknown {kind} {got!r}; allowed: {', '.join(names)}"
    close = nearest(got, names)
    return f"{text}; did you mean {close!r}?" if close else text


def kind_of(value: object) -> str:
    """What kind of YAML value this is, in a reader's words.

    Examples:
        >>> kind_of([1]), kind_of(None)
        ('a list', 'nothing')
    """
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return type(value).__name__


_KINDS: tuple[tuple[type, str], ...] = (
    (type(None), "nothing"),
    (dict, "a mapping"),
    (list, "a list"),
    (str, "text"),
    (bool, "a boolean"),
    (int, "a number"),
    (float, "a number"),
)


def describe(value: object) -> str:
    """A value as an error message shows it: short, with its kind when that helps."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return f"{kind_of(value)} ({_shorten(json.dumps(value, default=str))})"
    return _shorten(repr(value))


def _shorten(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
