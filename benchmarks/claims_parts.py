"""What a row of the claims board is made of: figures that stand on pages, and how they are found there.

Not a benchmark; `claims_table.py` and `claims.py` import it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Caught = Sequence[Sequence[str]]
NUMBER = r"([−+-]?\d[\d,]*(?:\.\d+)?(?:e[−+-]?\d+)?)"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure on a page: `pattern` finds it, `sentence` says it with the groups caught."""

    page: str
    pattern: re.Pattern[str]
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Full:
    """Size of the published setting; multiply-accumulates of one example's forward pass."""

    recipe: str
    macs: float
    examples: int
    steps: int
    runs: int


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row."""

    name: str
    says: str
    figures: Sequence[Figure] = field(default=())
    verdict: Callable[[Caught], str] = lambda caught: "built"
    why_not: str = "its figure is not on the page yet"
    again: str = "–"
    full: Full | None = None


def number(text: str) -> float:
    """A number as the pages write it."""
    return float(text.replace("−", "-").replace(",", ""))


def figure(page: str, pattern: str, sentence: str) -> Figure:
    """Short form; `#` in a pattern is a number."""
    return Figure(page=page, pattern=re.compile(pattern.replace("#", NUMBER), re.DOTALL), sentence=sentence)


def correlated(caught: Caught) -> str:
    """Of every task the ends of a correlation's interval, the last two groups; 0 inside is no evidence."""
    ends = [sorted((number(groups[-2]), number(groups[-1]))) for groups in caught]
    yes = sum(low * high > 0 for low, high in ends)
    return "supported" if yes == len(ends) else f"depends on the task: {yes} of {len(ends)}" if yes else "not found"


def correlation(page: str, study: str, label: str) -> Figure:
    """Rank correlation of cost and outcome within a seed, from the part of a page that `schedules_study.py` wrote."""
    interval = r"\(# complete seeds\):\s+- Spearman ρ within a seed # \(95 % t-interval over seeds # to #\)"
    return figure(page, rf"begin: {study} -->.*?all arms {interval}", label + ": {1} [{2}, {3}], n = {0} seeds")
