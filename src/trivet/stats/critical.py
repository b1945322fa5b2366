"""Where a critical period ends: from outcomes of runs whose deficit differs in length, or in when it happens.

Damage of a deficit x in seed s: d_s(x) = outcome without deficit − outcome with it (reversed where less is better),
paired by seed; D(x) is its mean over all possible seeds. D is taken to be monotone:

    length sweep      D(x) rises with the length x of a deficit that begins with training
    sliding window    D(x) falls with the start x of a window of fixed length

and the searched point x* is where D crosses the margin m, the largest damage that does not matter: shorter deficits
(or later windows) do no harm that matters.

Estimate: the means of d, made monotone by least squares (pool adjacent violators), joined by straight lines.
Interval: beginning at the harmless end, x is called harmless as long as the one-sided upper limit of D(x) (t
distribution, level α/2) lies below m, and the first failure ends the walk; beginning at the harmful end, x is called
harmful as long as the lower limit lies above m. Each walk errs only if its first wrong step errs, so with no further
correction [last harmless x, last harmful x] contains x* with probability at least 1 − α, whatever the grid. An end is
open when a walk does not take its first step. Limits hold for normal damages; the grid limits the precision.

Not covered: periods that begin later than training; damage that is not monotone; choosing the margin.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trivet.stats.distributions import t_quantile
from trivet.stats.result import Result
from trivet.stats.values import FloatArray, Values, as_values, check_alpha, check_margin, mean_and_sd
from trivet.stats.wording import percent, plain_number

__all__ = ["CriticalPeriod", "Damage", "critical_period"]

KINDS = ("length", "start")


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage(Result):
    """Damage of one deficit, in the metric's unit; more is worse."""

    x: float
    """Length of the deficit, or start of the window."""
    mean: float
    """Mean over seeds."""
    low: float
    """One-sided lower limit of level 1 − α/2."""
    high: float
    """One-sided upper limit of level 1 − α/2."""
    fitted: float
    """The mean after all means were made monotone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CriticalPeriod(Result):
    """Where the damage crosses the margin."""

    estimate: float | None
    """Estimated x*; `None` when the fitted damage never crosses the margin inside the grid."""
    low: float | None
    """Lower end of the interval; `None` when it is open."""
    high: float | None
    """Upper end of the interval; `None` when it is open."""
    kind: str
    """length (of a deficit from the beginning) or start (of a window)."""
    margin: float
    """Largest damage that does not matter."""
    confidence: float
    """Coverage of the interval, such as 0.95."""
    seeds: int
    """Number of seeds."""
    damages: tuple[Damage, ...]
    """Damage of every deficit, in order of x."""

    @property
    def sentence(self) -> str:
        """The result in plain English."""
        what = "a deficit from the beginning" if self.kind == "length" else "a window of low precision"
        above = f"damage above {plain_number(self.margin)}"
        if self.estimate is not None:
            place = f"about {plain_number(self.estimate)}"
            side = f"up to a length of {place} steps" if self.kind == "length" else f"from a start at step {place} on"
            found = f"does no {above} {side}"
        elif max(damage.fitted for damage in self.damages) < self.margin:
            found = f"does no {above} at any {self.kind} tried"
        else:
            found = f"does {above} at every {self.kind} tried"
        ends = f"{_end(self.low, 'no lower end')} to {_end(self.high, 'no upper end')}"
        text = (
            f"{what} {found} ({percent(self.confidence)} interval {ends}, two one-sided walks of t-limits; "
            f"{self.seeds} seeds)"
        ).capitalize()
        return text if self.is_monotone else f"{text}. {_NOT_MONOTONE[self.kind]}"

    @property
    def is_monotone(self) -> bool:
        """Whether the means made monotone lie within the limits of all damages, which the interval relies on."""
        return all(damage.low <= damage.fitted <= damage.high for damage in self.damages)

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


_TAIL = ", so neither the estimate nor the interval can be relied on"
_NOT_MONOTONE = {
    "length": f"But the damage does not grow with the length{_TAIL}",
    "start": f"But the damage does not shrink with a later start{_TAIL}",
}


def _end(value: float | None, text: str) -> str:
    return text if value is None else plain_number(value)


def critical_period(
    x: Values,
    outcomes: Sequence[Values],
    baseline: Values,
    *,
    margin: float,
    kind: str = "length",
    maximize: bool = True,
    confidence: float = 0.95,
) -> CriticalPeriod:
    """Estimate where a critical period ends.

    Args:
        x: Lengths of the deficits, or starts of the windows, `[k]`, k ≥ 2, all different.
        outcomes: One row for each x, one column a seed, `[k, n]`, n ≥ 3.
        baseline: Outcomes without deficit, the same seeds, `[n]`.
        margin: Largest damage that does not matter, above 0, in the metric's unit; fixed before the runs.
        kind: `length` when damage rises with x, `start` when it falls.
        maximize: Whether more of the outcome is better.
        confidence: Coverage of the interval.

    Raises:
        TypeError: Something that is not numbers.
        ValueError: Too few points or seeds, rows of other lengths, or an option out of range.

    Examples:
        >>> base = [0.90, 0.91, 0.89, 0.90]
        >>> rows = [[0.90, 0.91, 0.89, 0.90], [0.89, 0.901, 0.88, 0.89], [0.84, 0.85, 0.83, 0.841]]
        >>> found = critical_period([100, 200, 400], rows, base, margin=0.02)
        >>> round(found.estimate), found.low, found.high
        (241, 200.0, 400.0)
    """
    check_alpha(1.0 - confidence, "1 - confidence")
    check_margin(margin, zero=False)
    if kind not in KINDS:
        raise ValueError(f"`kind={kind!r}` must be one of {', '.join(KINDS)}.")
    points, table = _check(x, outcomes, baseline, maximize)
    n = table.shape[1]
    quantile = t_quantile(n - 1, (1.0 + confidence) / 2.0)
    stats = [mean_and_sd(row) for row in table]
    means = np.array([mean for mean, _ in stats])
    half = np.array([quantile * sd / math.sqrt(n) for _, sd in stats])
    rising = kind == "length"
    fitted = _monotone(means) if rising else _monotone(means[::-1])[::-1]
    walk = range(points.size) if rising else range(points.size - 1, -1, -1)
    harmless = _walk(points, walk, means + half < margin)
    harmful = _walk(points, reversed(walk), means - half > margin)
    return CriticalPeriod(
        estimate=_crossing(points, fitted, margin),
        low=harmless if rising else harmful,
        high=harmful if rising else harmless,
        kind=kind,
        margin=margin,
        confidence=confidence,
        seeds=n,
        damages=tuple(
            Damage(x=float(points[i]), mean=means[i], low=means[i] - half[i], high=means[i] + half[i], fitted=fitted[i])
            for i in range(points.size)
        ),
    )


def _check(x: Values, outcomes: Sequence[Values], baseline: Values, maximize: bool) -> tuple[FloatArray, FloatArray]:
    """Points in rising order and the damages `[k, n]`."""
    points, base = as_values(x, "x"), as_values(baseline, "baseline")
    rows = [as_values(row, f"outcomes[{index}]") for index, row in enumerate(outcomes)]
    if points.size < 2 or np.unique(points).size != points.size:
        raise ValueError(f"`x={points.tolist()}` must hold at least 2 different numbers.")
    if len(rows) != points.size:
        raise ValueError(f"`x` has {points.size} points and `outcomes` {len(rows)} rows; give one row a point.")
    for index, row in enumerate(rows):
        if row.size != base.size:
            raise ValueError(f"`outcomes[{index}]` has {row.size} seeds and `baseline` {base.size}; keep common seeds.")
    if base.size < 3:
        raise ValueError(f"{base.size} seed(s) given; an interval needs at least 3.")
    order = np.argsort(points)
    damages = np.stack([(base - row) if maximize else (row - base) for row in rows])
    return points[order], damages[order]


def _monotone(values: FloatArray) -> FloatArray:
    """The nearest rising sequence in least squares (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (right, b), (left, a) = blocks.pop(), blocks.pop()
            blocks.append(((left * a + right * b) / (a + b), a + b))
    return np.repeat([mean for mean, _ in blocks], [count for _, count in blocks])


def _walk(points: FloatArray, order: Iterable[int], passed: npt.NDArray[np.bool_]) -> float | None:
    """The last point reached, or None when the first step fails."""
    reached: float | None = None
    for index in order:
        if not passed[index]:
            break
        reached = float(points[index])
    return reached


def _crossing(points: FloatArray, fitted: FloatArray, margin: float) -> float | None:
    """Where the straight lines between monotone points cross the margin."""
    above = fitted >= margin
    changes = np.flatnonzero(above[1:] != above[:-1])
    if not changes.size:
        return None
    i = int(changes[0])
    share = (margin - fitted[i]) / (fitted[i + 1] - fitted[i])
    return float(points[i] + share * (points[i + 1] - points[i]))
