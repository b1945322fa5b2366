"""Several comparisons at once: Holm's step-down correction.

Sort p_(1) ≤ … ≤ p_(m); the adjusted values are max over j ≤ i of min(1, (m − j + 1) · p_(j)) (Holm 1979). Comparing
each with alpha keeps the probability of *any* false "different" in the family at or below alpha, whatever the
dependence.

Not covered: false-discovery rates; "all arms are equivalent", which needs no correction (each test must succeed).
"""

from collections.abc import Sequence

import numpy as np

from trivet.stats.values import FloatArray, as_values

__all__ = ["holm"]


def holm(p: Sequence[float] | FloatArray) -> FloatArray:
    """Holm-adjusted p-values, in the order given.

    Args:
        p: p-values of all comparisons of the family, shape `[m]`; may be empty.

    Raises:
        TypeError: `p` is not a flat sequence of numbers.
        ValueError: A value outside [0, 1].

    Examples:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    values = as_values(p, "p")
    outside = np.flatnonzero((values < 0.0) | (values > 1.0))
    if outside.size:
        where = int(outside[0])
        raise ValueError(f"`p[{where}]={values[where]:g}` must lie in [0, 1]; give p-values, not test statistics.")
    order = np.argsort(values, kind="stable")
    factors = values.size - np.arange(values.size)
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, values[order] * factors))
    return adjusted
