"""How far runs disagree example by example, and class by class, where their accuracies may agree.

Churn is the share of test examples on which two runs predict different classes, P(ŷ1 ≠ ŷ2), here averaged over all
pairs of R runs:

    churn = 2 / (R (R − 1)) · Σ_{i<j} mean_x [ŷ_i(x) ≠ ŷ_j(x)]

Its interval is a jackknife over runs (each run left out in turn, t with R − 1 degrees of freedom): pairs that share a
run are not independent, runs are. Class by class, the spread of the accuracy over runs is set against its floor (see
`accuracy_spread`); small classes spread most, and the mean over classes hides it.

Not covered: probabilities and logits (only predicted classes), churn between two kinds of runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trivet.stats.distributions import t_quantile
from trivet.stats.result import Result
from trivet.stats.spread import AccuracySpread, accuracy_spread
from trivet.stats.values import FloatArray, check_alpha
from trivet.stats.wording import percent

__all__ = ["Churn", "ClassSpread", "churn", "class_spread"]

Predictions = Sequence[Sequence[int]] | npt.NDArray[np.integer]
"""One row a run, one column a test example: the predicted class."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Churn(Result):
    """Disagreement of runs."""

    churn: float
    """Mean share of examples on which two runs disagree."""
    low: float | None
    """Lower end of its interval; `None` with fewer than 3 runs."""
    high: float | None
    """Upper end of its interval; `None` likewise."""
    smallest: float
    """Of the pair of runs that agrees most."""
    largest: float
    """Of the pair of runs that agrees least."""
    unstable: float
    """Share of examples on which not all runs agree."""
    runs: int
    """Number of runs."""
    examples: int
    """Number of test examples."""
    confidence: float
    """Coverage of the interval, such as 0.95."""
    method: str = "jackknife over runs"
    """How the interval was made."""

    def __str__(self) -> str:
        """Write churn, interval, range and n on one line."""
        interval = "no interval below 3 runs"
        if self.low is not None and self.high is not None:
            interval = f"{percent(self.confidence)} {self.method} {100 * self.low:.2f} to {100 * self.high:.2f} %"
        return (
            f"churn {100 * self.churn:.2f} % ({interval}; pairs {100 * self.smallest:.2f} to "
            f"{100 * self.largest:.2f} %; {self.runs} runs, {self.examples:,} examples; "
            f"{100 * self.unstable:.2f} % of examples not unanimous)"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassSpread(Result):
    """Spread of the accuracy over runs, class by class."""

    overall: AccuracySpread
    """All examples."""
    classes: dict[int, AccuracySpread]
    """Class → its examples only."""
    widest: int
    """The class whose accuracy spreads most over runs."""

    def __str__(self) -> str:
        """Write the overall spread and the widest class."""
        wide = self.classes[self.widest]
        return f"all classes: {self.overall}\nclass {self.widest}, the widest of {len(self.classes)}: {wide}"


def churn(predictions: Predictions, *, confidence: float = 0.95) -> Churn:
    """Measure on how many examples runs disagree.

    Args:
        predictions: Predicted classes, `[runs, examples]`, at least 2 runs, whole numbers.
        confidence: Coverage of the interval, in (0.5, 1).

    Raises:
        TypeError: Not a table of whole numbers.
        ValueError: Fewer than 2 runs, no example, rows of different length, or `confidence` out of range.

    Examples:
        >>> print(churn([[0, 1, 2, 1], [0, 1, 1, 1], [0, 1, 2, 2]]))
        churn 33.33 % (95 % jackknife over runs 0.00 to 100.00 %; pairs 25.00 to 50.00 %; 3 runs, 4 examples; \
50.00 % of examples not unanimous)
    """
    check_alpha(1.0 - confidence, "1 - confidence")
    table = as_predictions(predictions)
    runs, examples = table.shape
    # Whole numbers of examples until the end: the mean of equal shares could round past them.
    apart = np.array([[float(np.count_nonzero(a != b)) for b in table] for a in table])
    pairs = apart[np.triu_indices(runs, 1)]
    low, high = _jackknife(apart, examples, confidence)
    return Churn(
        churn=float(pairs.sum() / len(pairs) / examples),
        low=low,
        high=high,
        smallest=float(pairs.min() / examples),
        largest=float(pairs.max() / examples),
        unstable=float(np.mean((table != table[0]).any(axis=0))),
        runs=runs,
        examples=examples,
        confidence=confidence,
    )


def class_spread(
    predictions: Predictions, labels: Sequence[int] | npt.NDArray[np.integer], *, confidence: float = 0.95
) -> ClassSpread:
    """Measure the spread of the accuracy over runs, for all examples and class by class.

    Args:
        predictions: Predicted classes, `[runs, examples]`, at least 2 runs.
        labels: True classes, `[examples]`.
        confidence: Coverage of the intervals, in (0.5, 1).

    Raises:
        TypeError: Not whole numbers.
        ValueError: Fewer than 2 runs, no example, or lengths that differ.

    Examples:
        >>> labels = [0, 0, 0, 0, 1, 1]
        >>> found = class_spread([[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], labels)
        >>> found.widest, found.classes[0].sd, round(found.classes[1].sd, 2)
        (1, 0.0, 0.5)
    """
    table = as_predictions(predictions)
    truth = as_predictions([list(labels)], "labels", rows=1)[0]
    if truth.size != table.shape[1]:
        raise ValueError(f"{truth.size} labels and {table.shape[1]} predictions a run; give one label an example.")
    right = table == truth

    def spread(chosen: npt.NDArray[np.bool_]) -> AccuracySpread:
        part = right[:, chosen]
        return accuracy_spread(part.mean(axis=1), part.shape[1], confidence=confidence)

    classes = {int(label): spread(truth == label) for label in np.unique(truth)}
    widest = max(classes, key=lambda label: classes[label].sd)
    return ClassSpread(overall=spread(np.ones(truth.size, dtype=bool)), classes=classes, widest=widest)


def as_predictions(predictions: Predictions, name: str = "predictions", rows: int = 2) -> IntArray:
    """Check a table of classes.

    Raises:
        TypeError: Not a table of whole numbers.
        ValueError: Too few runs, no example, or rows of different length.
    """
    try:
        table = np.asarray(predictions)
    except ValueError:
        raise ValueError(
            f"the rows of `{name}` differ in length; give every run's predictions on one test set."
        ) from None
    if table.ndim != 2 or (table.size and table.dtype.kind not in "iub"):
        raise TypeError(
            f"`{name}` has shape {table.shape} and type {table.dtype}; give whole numbers: one row a run, one "
            "column an example. A run without predictions is left out and reported."
        )
    if table.shape[0] < rows or table.shape[1] < 1:
        raise ValueError(
            f"`{name}` has {table.shape[0]} run(s) and {table.shape[1]} example(s); give at least {rows} and 1."
        )
    return table.astype(np.int64)


def _jackknife(apart: FloatArray, examples: int, confidence: float) -> tuple[float | None, float | None]:
    runs = len(apart)
    if runs < 3:
        return None, None
    total = float(apart.sum()) / 2.0
    without = (total - apart.sum(axis=0)) / ((runs - 1) * (runs - 2) / 2.0)
    mean = total / (runs * (runs - 1) / 2.0)
    error = math.sqrt((runs - 1) / runs * float(((without - without.mean()) ** 2).sum()))
    half = t_quantile(runs - 1, (1.0 + confidence) / 2.0) * error
    return max(0.0, (mean - half) / examples), min(1.0, (mean + half) / examples)
