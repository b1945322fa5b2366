"""From rows of single runs to what a reader looks at: bands over seeds, step lines, thinned to a drawable size.

The band at a step is the t-interval of the mean over the n seeds that have a value there,

    mean ± t(0.975; n − 1) · sd / √n,

pointwise: it says nothing about a whole curve at once. With one seed there is no band. Runs that diverged are
kept out of the bands (they would vanish from them one by one) and returned as single lines.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

BAND_METHOD = "pointwise 95 % t-interval of the mean over seeds"
MAX_POINTS = 150
"""Most steps kept of one arm's curve."""


class CurveRow(NamedTuple):
    """One logged value of one run."""

    arm: str
    seed: int
    step: int
    value: float


def t_half_width(sd: float, n: int, confidence: float = 0.95) -> float | None:
    """Half the t-interval of a mean; None below two values.

    Examples:
        >>> round(t_half_width(1.0, 4), 4), t_half_width(1.0, 1)
        (1.5912, None)
    """
    if n < 2:
        return None
    from trivet.stats.distributions import t_quantile

    return t_quantile(n - 1, 0.5 + confidence / 2) * sd / math.sqrt(n)


def thin(steps: Iterable[int], most: int = MAX_POINTS) -> list[int]:
    """At most `most` of the steps, evenly spread, first and last always kept.

    Examples:
        >>> thin([5, 1, 2, 3, 4, 6, 7], most=3)
        [1, 4, 7]
    """
    ordered = sorted(set(steps))
    if len(ordered) <= most:
        return ordered
    picks = np.unique(np.linspace(0, len(ordered) - 1, most).round().astype(int))
    return [ordered[i] for i in picks]


def bands(rows: Iterable[CurveRow], arms: list[str]) -> list[dict[str, Any]]:
    """Mean and t-interval over seeds at each kept step, in the order of `arms`.

    Args:
        rows: Values of runs that finished; values that are not finite are left out.
        arms: Arms to return.

    Returns:
        Rows with `arm`, `step`, `n`, `mean`, `low`, `high`; the last two are None with one seed.

    Examples:
        >>> bands([CurveRow("a", 0, 1, 1.0), CurveRow("a", 1, 1, 3.0)], ["a"])[0]["mean"]
        2.0
    """
    values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if math.isfinite(row.value):
            values[row.arm][row.step].append(row.value)
    out: list[dict[str, Any]] = []
    for arm in arms:
        by_step = values.get(arm, {})
        for step in thin(by_step):
            points = np.asarray(by_step[step])
            mean = float(points.mean())
            half = t_half_width(float(points.std(ddof=1)) if points.size > 1 else 0.0, points.size)
            low, high = (None, None) if half is None else (mean - half, mean + half)
            out.append({"arm": arm, "step": step, "n": points.size, "mean": mean, "low": low, "high": high})
    return out


def single_lines(rows: Iterable[CurveRow]) -> list[dict[str, Any]]:
    """Each run's own line up to its last finite value, thinned; for runs that are in no band.

    Examples:
        >>> single_lines([CurveRow("a", 0, 1, 2.0), CurveRow("a", 0, 2, float("nan"))])
        [{'arm': 'a', 'seed': 0, 'step': 1, 'value': 2.0, 'last': True}]
    """
    runs: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for row in rows:
        if math.isfinite(row.value):
            runs[row.arm, row.seed][row.step] = row.value
    out: list[dict[str, Any]] = []
    for (arm, seed), points in runs.items():
        kept = thin(points)
        out.extend(
            {"arm": arm, "seed": seed, "step": step, "value": points[step], "last": step == kept[-1]} for step in kept
        )
    return out


def precision_lines(rows: Iterable[CurveRow], arms: list[str]) -> list[dict[str, Any]]:
    """Bits over time of each arm, as the steps at which they change plus the last logged step.

    Seeds of one arm follow one schedule; the seed with the most rows stands for the arm, and `seeds_agree` says
    whether all seeds logged the same bits wherever they logged the same step.

    Returns:
        One mapping an arm that logged bits: `arm`, `seeds_agree`, `logged` (number of logged steps), `mean_bits`
        (over the logged steps) and `points`, a list of `[step, bits]`.

    Examples:
        >>> lines = precision_lines([CurveRow("a", 0, s, b) for s, b in [(1, 3), (2, 3), (3, 8), (4, 8)]], ["a"])
        >>> lines[0]["points"], lines[0]["mean_bits"]
        ([[1, 3], [3, 8], [4, 8]], 5.5)
    """
    runs: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if math.isfinite(row.value):
            runs[row.arm][row.seed][row.step] = row.value
    out: list[dict[str, Any]] = []
    for arm in arms:
        if not (seeds := runs.get(arm)):
            continue
        longest = max(seeds.values(), key=len)
        agree = all(longest[step] == bits for line in seeds.values() for step, bits in line.items() if step in longest)
        out.append(
            {
                "arm": arm,
                "seeds_agree": agree,
                "logged": len(longest),
                "mean_bits": float(np.mean(list(longest.values()))),
                "points": _changes(longest),
            }
        )
    return out


def _changes(line: Mapping[int, float]) -> list[list[float]]:
    steps = sorted(line)
    points: list[list[float]] = []
    for step in steps:
        if not points or line[step] != points[-1][1] or step == steps[-1]:
            points.append([step, _plain(line[step])])
    return points


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)


def spread(values: list[float]) -> dict[str, Any] | None:
    """Mean, standard deviation, smallest and largest of measured values; None without values.

    Examples:
        >>> spread([1.0, 3.0])["mean"], spread([])
        (2.0, None)
    """
    if not values:
        return None
    points = np.asarray(values, dtype=float)
    return {
        "n": points.size,
        "mean": float(points.mean()),
        "sd": float(points.std(ddof=1)) if points.size > 1 else None,
        "min": float(points.min()),
        "max": float(points.max()),
    }
