"""One look for each arm in every chart, chip and table: a color, a dash pattern, a point shape.

The colors keep a contrast of at least 3:1 on the light and the dark page and stay apart for the common kinds of color
blindness; dashes and shapes say the same without color. After eight arms colors come again with another dash.
"""

from __future__ import annotations

from dataclasses import dataclass

NEUTRAL = "#7b828c"
"""Color of the baseline."""

COLORS = ("#2b7fc4", "#d4610c", "#0c9a76", "#b3559b", "#9a7d12", "#7468e6", "#c4475a")
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (2, 2), (8, 3, 2, 3), (10, 4), (4, 2, 1, 2))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """How one arm is drawn."""

    color: str
    dash: tuple[int, ...]
    shape: str


def arm_styles(arms: list[str], baseline: str = "") -> dict[str, ArmStyle]:
    """Style of each arm by name; the baseline is neutral gray with a full line.

    Examples:
        >>> styles = arm_styles(["fp32", "RR"], baseline="fp32")
        >>> styles["fp32"].color, styles["RR"].dash
        ('#7b828c', ())
    """
    styles: dict[str, ArmStyle] = {}
    others = 0
    for arm in arms:
        if arm == baseline:
            styles[arm] = ArmStyle(NEUTRAL, (), "circle")
            continue
        turn = others // len(COLORS)
        styles[arm] = ArmStyle(
            COLORS[others % len(COLORS)],
            DASHES[(others % len(COLORS) + turn) % len(DASHES)] if len(arms) > 3 else DASHES[turn],
            SHAPES[(others + 1 + turn) % len(SHAPES)],
        )
        others += 1
    return styles
