"""The gate of the package: turns what a caller hands over into checked arrays of numbers.

Every message follows *got → allowed → fix*. Means and standard deviations are computed here once, with exactly
rounded sums, so that the order of the pairs cannot change a result in its last bit.

Not covered: missing values. A run without a number is the caller's to count and to report; it is never dropped here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray", "Pairs", "Values", "as_pairs", "as_values", "check_alpha", "check_margin", "mean_and_sd"]

FloatArray = npt.NDArray[np.float64]
Values = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer] | npt.NDArray[np.bool_]

LARGEST = 1e290
"""Largest magnitude accepted; beyond it, sums of squares and wide intervals would overflow."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Paired values of two arms and what follows directly from them.

    `rounding` is the size below which a difference between two differences is an artefact of subtracting floats.
    """

    a: FloatArray
    b: FloatArray
    differences: FloatArray
    mean: float
    sd: float
    rounding: float

    @property
    def n(self) -> int:
        """Number of pairs."""
        return self.differences.size

    @property
    def identical(self) -> bool:
        """Whether both values of every pair are exactly equal."""
        return not self.differences.any()

    @property
    def constant(self) -> bool:
        """Whether all differences are equal (up to rounding), so that their standard deviation is 0."""
        return self.sd == 0.0


def as_values(values: Values, name: str = "values") -> FloatArray:
    """Check one arm's outcomes and return them as a float64 array `[n]`.

    Args:
        values: A flat sequence or array of finite numbers, one per run.
        name: How to call the argument in an error message.

    Raises:
        TypeError: Something that is not a flat sequence of numbers.
        ValueError: A value that is not finite, or too large to square.
    """
    if isinstance(values, (str, bytes)) or not (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
        raise TypeError(f"`{name}` is a {type(values).__name__}; give a flat list of numbers, one per run.")
    try:
        array = np.asarray(values)
    except ValueError:
        raise TypeError(f"`{name}` is a ragged sequence; give a flat list of numbers, one per run.") from None
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.float64)
    if array.ndim != 1 or isinstance(values, dict):
        raise TypeError(
            f"`{name}` has shape {array.shape} ({type(values).__name__}); give a flat list of numbers, one per run."
        )
    if array.dtype.kind not in "biuf":
        odd = next((x for x in array.tolist() if not isinstance(x, (int, float))), array.tolist()[0])
        raise TypeError(f"`{name}` holds {odd!r} ({type(odd).__name__}); all values must be real numbers.")
    result = array.astype(np.float64)
    bad = np.flatnonzero(~(np.abs(result) <= LARGEST))
    if bad.size:
        where = int(bad[0])
        raise ValueError(
            f"`{name}[{where}]` is {result[where]}; every value must be finite and at most {LARGEST:g} in size. "
            "Take diverged runs out pair by pair and report their number, or rescale."
        )
    return result


def as_pairs(a: Values, b: Values) -> Pairs:
    """Check two arms paired by position and compute the differences `b − a`.

    Differences that agree up to the rounding of the subtraction count as equal: their standard deviation is 0; and so
    is their mean when it is no larger than that rounding.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, or the arms differ in length.
    """
    first, second = as_values(a, "a"), as_values(b, "b")
    if first.size != second.size:
        raise ValueError(
            f"`a` has {first.size} values and `b` has {second.size}; pairs need equal lengths. "
            "Keep only the seeds that both arms have, or use `compare(a, b, paired=False)`."
        )
    differences = second - first
    if differences.size == 0:
        return Pairs(first, second, differences, 0.0, 0.0, 0.0)
    size = float(max(np.abs(first).max(), np.abs(second).max()))
    rounding = 4.0 * _EPSILON * size
    mean, sd = mean_and_sd(differences, rounding)
    if sd == 0.0 and abs(mean) <= rounding:
        mean = 0.0
    return Pairs(first, second, differences, mean, sd, rounding)


def mean_and_sd(values: FloatArray, rounding: float = 0.0) -> tuple[float, float]:
    """Mean and sample standard deviation (divisor n − 1) of a non-empty array; the latter is 0 for one value.

    Values whose range is at most `rounding` count as equal: the standard deviation is exactly 0. The values are
    scaled by a power of two first, so that squares neither overflow nor vanish.

    Examples:
        >>> import numpy as np
        >>> mean_and_sd(np.array([1.0, 2.0, 3.0]))
        (2.0, 1.0)
    """
    low, high = float(values.min()), float(values.max())
    if high - low <= rounding:
        middle = 0.0 if low <= 0.0 <= high else low + (high - low) / 2
        return middle, 0.0
    exponent = math.frexp(max(abs(low), abs(high)))[1]
    scaled = np.ldexp(values, -exponent)
    mean = math.fsum(scaled.tolist()) / scaled.size
    square = math.fsum(((scaled - mean) ** 2).tolist()) / (scaled.size - 1)
    return math.ldexp(mean, exponent), math.ldexp(math.sqrt(square), exponent)


def check_alpha(alpha: float, name: str = "alpha") -> None:
    """Refuse an error rate outside (0, 0.5).

    Raises:
        ValueError: `alpha` is not a number strictly between 0 and 0.5.
    """
    if not 0.0 < alpha < 0.5:
        raise ValueError(f"`{name}={alpha}` must lie strictly between 0 and 0.5; 0.05 is the usual choice.")


def check_margin(margin: float, *, zero: bool) -> None:
    """Refuse a margin that is negative, not finite, or (unless `zero`) 0.

    Raises:
        ValueError: The margin is out of range.
    """
    if not math.isfinite(margin) or margin < 0.0 or (margin == 0.0 and not zero):
        allowed = "a finite number, 0 (no margin) or above" if zero else "a finite number above 0"
        raise ValueError(
            f"`margin={margin}` must be {allowed}; give the largest difference that would not matter to you, "
            "in the metric's own unit."
        )
