"""Stretches of equal bits of a schedule, found by bisection instead of asking every step.

Inside one segment of a schedule the bits only rise or only fall, so each change can be found by halving. This makes
costs and pictures of schedules of any length immediate, and they agree with `bits(step)` because nothing else is asked.

Not covered: schedules that rise and fall inside one segment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol


class Schedule(Protocol):
    """What cost formulas need to know of a schedule."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the training."""
        ...

    def runs(self) -> list[tuple[int, int, int]]:
        """Stretches of equal bits: first step, number of steps, bits."""
        ...


class RoleRuns(Protocol):
    """The same of a schedule for each role: bits are those of weights, activations and gradients."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the training."""
        ...

    def runs(self) -> list[tuple[int, int, tuple[int, int, int]]]:
        """Stretches of equal bits: first step, number of steps, bits of the roles."""
        ...


def find_runs(bits: Callable[[int], int], edges: Sequence[int]) -> list[tuple[int, int, int]]:
    """Stretches of equal bits.

    Args:
        bits: Bits of a step.
        edges: Rising steps, from 0 to the number of steps; between two of them the bits only rise or only fall.

    Returns:
        Triples (first step, number of steps, bits), in order and without gaps; neighbors differ in their bits.

    Examples:
        >>> find_runs(lambda step: 3 + step // 4, [0, 10])
        [(0, 4, 3), (4, 4, 4), (8, 2, 5)]
    """
    found: list[tuple[int, int, int]] = []
    for step, last in itertools.pairwise(edges):
        while step < last:
            here = bits(step)
            end = _first_change(bits, here, step + 1, last)
            if found and found[-1][2] == here:
                start, length, _ = found.pop()
                found.append((start, length + end - step, here))
            else:
                found.append((step, end - step, here))
            step = end
    return found


def _first_change(bits: Callable[[int], int], value: int, low: int, high: int) -> int:
    """First step in [low, high) whose bits are not `value`, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if bits(middle) == value:
            low = middle + 1
        else:
            high = middle
    return low
