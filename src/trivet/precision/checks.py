"""Checks of user values that the torch-free part of this package shares; each says what was given and allowed.

Not covered: values read from files, whose key and file `core.config` adds.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, SupportsIndex

from trivet.core.errors import unknown_name

MIN_BITS = 1
MAX_BITS = 32
"""32 bits stand for full precision: nothing is rounded."""

EXECUTIONS = ("simulated", "native", "auto")
"""How low precision can be executed."""


def check_bits(name: str, bits: int, low: int = MIN_BITS, high: int = MAX_BITS) -> int:
    """Refuse a number of bits that is not a whole number between `low` and `high`; gives it as a plain int.

    Raises:
        TypeError: `bits` is not a whole number.
        ValueError: `bits` lies outside the range.

    Examples:
        >>> check_bits("q_min", 3)
        3
        >>> check_bits("bits", 40)
        Traceback (most recent call last):
        ...
        ValueError: `bits=40` must lie in [1, 32]; 32 means full precision
    """
    bits = check_whole(name, bits)
    if not low <= bits <= high:
        hint = "; 32 means full precision" if high == MAX_BITS else ""
        raise ValueError(f"`{name}={bits}` must lie in [{low}, {high}]{hint}")
    return bits


def check_whole(name: str, value: object) -> int:
    """Refuse a value that is not a whole number; gives it as a plain int, which those of numpy and torch are not.

    Raises:
        TypeError: `value` is a boolean, a float, text, …

    Examples:
        >>> import numpy as np
        >>> check_whole("steps", np.int64(2))
        2
        >>> check_whole("steps", 2.5)
        Traceback (most recent call last):
        ...
        TypeError: `steps=2.5` must be a whole number (int), not float
    """
    if not isinstance(value, bool) and isinstance(value, SupportsIndex):
        try:
            return operator.index(value)
        except TypeError:  # an array or a tensor of several numbers, or of floats
            pass
    raise TypeError(f"`{name}={value!r}` must be a whole number (int), not {type(value).__name__}")


def plain_ints(instance: Any, *names: str) -> None:
    """Check that fields of a frozen dataclass are whole numbers, and make them plain ints.

    Raises:
        TypeError: As `check_whole`.

    Examples:
        >>> point = dataclasses.make_dataclass("Point", ["x"], frozen=True)(2)
        >>> plain_ints(point, "x")
    """
    for name in names:
        object.__setattr__(instance, name, check_whole(name, getattr(instance, name)))


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a name that is not among the allowed ones.

    Raises:
        ValueError: With the nearest allowed name.

    Examples:
        >>> check_choice("shape", "repeatd", ("repeated", "triangular"))
        Traceback (most recent call last):
        ...
        ValueError: unknown shape 'repeatd'; allowed: repeated, triangular; did you mean 'repeated'?
    """
    if value not in allowed:
        raise ValueError(unknown_name(name, value, allowed))


def check_fields(cls: type[Any], values: Mapping[str, Any]) -> None:
    """Refuse a mapping that cannot fill a dataclass.

    Raises:
        ValueError: An unknown key, with the nearest one, or a missing one.

    Examples:
        >>> check_fields(dataclasses.make_dataclass("Point", ["x", "y"]), {"x": 1})
        Traceback (most recent call last):
        ...
        ValueError: missing: y
    """
    fields = dataclasses.fields(cls)
    for key in values:
        if key not in {field.name for field in fields}:
            raise ValueError(unknown_name("key", key, [field.name for field in fields]))
    missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in values]
    if missing:
        raise ValueError(f"missing: {', '.join(missing)}")
