"""The numbers that a script prints, compared between runs: for what cannot be followed otherwise. Torch-free.

Lines are compared by their number and position. Those that differ between two runs of the same command (seconds, dates,
paths) say nothing and are left out by the caller.

Not covered: lines that come in another order; numbers that are drawn as bars.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)(?![\w])")

Place = tuple[int, int]
"""Line and number in it, from 0; number -1: the words of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedChange:
    """How the numbers of two outputs differ."""

    places: tuple[Place, ...]
    """Where."""
    compared: int
    """Numbers that were compared."""
    largest: float
    """Largest difference, relative to the larger of the two numbers."""
    last: str
    """The last line that differs, in both outputs."""

    def __str__(self) -> str:
        if not self.places:
            return f"none of {self.compared}"
        return f"{len(self.places)} of {self.compared}, up to {self.largest:.0e}"


def compare_printed(a: str, b: str, *, ignored: Collection[Place] = ()) -> PrintedChange:
    """Compare two outputs number by number.

    Args:
        a: One output.
        b: The other.
        ignored: Places that say nothing.

    Examples:
        >>> found = compare_printed("loss 0.50 in 3 s", "loss 0.25 in 4 s", ignored=[(0, 1)])
        >>> str(found), found.last
        ('1 of 1, up to 5e-01', "'loss 0.50 in 3 s' and 'loss 0.25 in 4 s'")
    """
    one, other = a.splitlines(), b.splitlines()
    skip = set(ignored)
    places: list[Place] = []
    compared, largest, last = 0, 0.0, ""
    for line in range(max(len(one), len(other))):
        left, right = (text[line] if line < len(text) else "" for text in (one, other))
        if NUMBER.sub("#", left) != NUMBER.sub("#", right):
            if (line, -1) not in skip:
                places.append((line, -1))
                last = f"{left.strip()!r} and {right.strip()!r}"
            continue
        for number, pair in enumerate(zip(NUMBER.findall(left), NUMBER.findall(right), strict=True)):
            if (line, number) in skip:
                continue
            compared += 1
            if pair[0] != pair[1]:
                places.append((line, number))
                largest = max(largest, _relative(*map(float, pair)))
                last = f"{left.strip()!r} and {right.strip()!r}"
    return PrintedChange(places=tuple(places), compared=compared, largest=largest, last=last)


def _relative(a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / (max(abs(a), abs(b)) or 1.0)
