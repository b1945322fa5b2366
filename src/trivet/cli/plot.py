"""Step lines in a terminal: bits over time, drawn with box-drawing characters.

Pure functions from numbers to lines of text. Not covered: axes with more than two labels, several lines in one plot.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
JOINTS = {
    (False, False, True, True): "─", (True, True, False, False): "│",
    (True, False, True, False): "╯", (True, False, False, True): "╰",
    (False, True, True, False): "╮", (False, True, False, True): "╭",
    (True, True, True, False): "┤", (True, True, False, True): "├",
    (True, False, True, True): "┴", (False, True, True, True): "┬",
    (True, True, True, True): "┼", (True, False, False, False): "╵",
    (False, True, False, False): "╷",
}  # fmt: skip
"""The sign of a cell that is joined upwards, downwards, to the left, to the right."""
MAX_ROWS = 12
"""Most text rows of one plot; a wider range of values is drawn on every k-th row."""


def stretches(values: Sequence[int], width: int) -> list[list[int]]:
    """`values` cut into `width` stretches of nearly equal length, none of them empty.

    Examples:
        >>> stretches([1, 1, 1, 5, 5], 2)
        [[1, 1], [1, 5, 5]]
    """
    count = len(values)
    cuts = [column * count // width for column in range(width + 1)]
    return [[*values[a : max(b, a + 1)]] for a, b in itertools.pairwise(cuts)]


def sparkline(values: Sequence[int], width: int, low: int, high: int) -> str:
    """One row of bars: the mean of each stretch.

    Examples:
        >>> sparkline([3, 3, 8, 8], 4, 3, 8)
        '▁▁██'
    """
    top = len(BARS) - 1
    means = [sum(part) / len(part) for part in stretches(values, width)]
    levels = [round((mean - low) / (high - low) * top) if high > low else top for mean in means]
    return "".join(BARS[max(0, min(top, level))] for level in levels)


def step_plot(values: Sequence[int], width: int, low: int, high: int, last: str = "") -> list[str]:
    r"""A step line with the values on the left and the time below; every value that is reached is drawn.

    Args:
        values: One whole number a step.
        width: Columns of the drawing, axis not counted.
        low: Smallest value of the axis.
        high: Largest value of the axis.
        last: Label at the right end of the time axis.

    Returns:
        One text line a row, then the time axis.

    Examples:
        >>> print("\n".join(step_plot([1, 1, 3, 3], 6, 1, 3)))
        3 ┤   ╭──
        2 ┤   │
        1 ┤───╯
          └──────
    """
    stride = -(-(high - low + 1) // MAX_ROWS)
    count = (high - low) // stride + 1
    rows = [[" "] * width for _ in range(count)]
    entry: int | None = None
    for column, part in enumerate(stretches(values, width)):
        levels = [max(0, min(count - 1, (value - low) // stride)) for value in part]
        left = levels[0] if entry is None else entry
        right = levels[-1]
        bottom, top = min(left, *levels), max(left, *levels)
        for level in range(bottom, top + 1):
            rows[level][column] = JOINTS[level < top, level > bottom, level == left, level == right]
        entry = right
    margin = len(str(high))
    lines = [f"{low + row * stride:>{margin}} ┤{''.join(rows[row]).rstrip()}" for row in reversed(range(count))]
    lines.append(f"{'':{margin}} └{'─' * width}")
    if last:
        lines.append(f"{'':{margin}}  0{last:>{width - 1}}")
    return lines


def side_by_side(left: Sequence[str], right: Sequence[str], width: int) -> list[str]:
    """Two blocks of text beside each other, the left one padded to `width`.

    Examples:
        >>> side_by_side(["a", "b"], ["c"], 3)
        ['a  c', 'b']
    """
    count = max(len(left), len(right))
    padded = [[*block, *[""] * (count - len(block))] for block in (left, right)]
    return [f"{one:<{width}}{two}".rstrip() for one, two in zip(*padded, strict=True)]
