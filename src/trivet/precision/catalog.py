"""Names: the ten published schedules and the words their options are written with.

Source of the ten: arXiv 2403.02243; CR is the schedule of arXiv 2101.09868. Not covered:
names of the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping

SHAPES = ("repeated", "triangular")
REFLECTIONS = ("none", "vertical", "horizontal")
PERIODS = ("exact", "train_py")
ODD_CYCLES = ("refuse", "allow")
GROUPS = ("small", "medium", "large")
"""Groups of schedules by the compute they use, cheapest first."""

TEN_SCHEDULES: Mapping[str, tuple[str, str, str]] = {
    "CR": ("cosine", "repeated", "none"),
    "LR": ("linear", "repeated", "none"),
    "ER": ("exponential", "repeated", "none"),
    "RR": ("rex", "repeated", "none"),
    "CT": ("cosine", "triangular", "vertical"),
    "LT": ("linear", "triangular", "vertical"),
    "ETV": ("exponential", "triangular", "vertical"),
    "ETH": ("exponential", "triangular", "horizontal"),
    "RTV": ("rex", "triangular", "vertical"),
    "RTH": ("rex", "triangular", "horizontal"),
}
"""Name → profile, shape and reflection."""
