"""Quantiles and tail areas of Student's t, and averages over the chi distribution, from `scipy.special` only.

`scipy.stats` takes a second to import and is slow for single numbers; `scipy.special` has the same functions
underneath.

Not covered: any distribution that the package does not use.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from trivet.stats.values import FloatArray

__all__ = ["chi_average", "normal_cdf", "sd_factors", "t_quantile", "t_tail"]


@functools.lru_cache(maxsize=4096)
def t_quantile(df: float, p: float) -> float:
    """Quantile of Student's t.

    Examples:
        >>> round(t_quantile(7, 0.975), 4)
        2.3646
    """
    from scipy import special

    return float(special.stdtrit(df, p))


def t_tail(df: float, t: float) -> float:
    """Upper tail area P(T > t) of Student's t; `t` may be infinite.

    Examples:
        >>> round(t_tail(7, 2.3646), 4), t_tail(7, math.inf)
        (0.025, 0.0)
    """
    from scipy import special

    return float(special.stdtr(df, -t))


def normal_cdf(x: FloatArray | float) -> FloatArray:
    """Standard normal distribution function, element by element."""
    from scipy import special

    return np.asarray(special.ndtr(x), dtype=np.float64)


@functools.lru_cache(maxsize=1024)
def sd_factors(df: int, confidence: float) -> tuple[float, float]:
    """Factors by which a standard deviation with `df` degrees of freedom turns into its interval (normal data).

    Examples:
        >>> low, high = sd_factors(4, 0.95)
        >>> f"{low:.2f} to {high:.2f}"
        '0.60 to 2.87'
    """
    from scipy import special

    tail = (1.0 - confidence) / 2.0
    return math.sqrt(df / special.chdtri(df, tail)), math.sqrt(df / special.chdtri(df, 1.0 - tail))


def chi_average(integrand: Callable[[FloatArray], FloatArray], df: int, upper: float = math.inf) -> float:
    """Expected value of `integrand(u) · 1[u < upper]`, u = (sample SD) / (true SD) with `df` degrees of freedom.

    Gauss–Legendre quadrature with 96 nodes between the 1e-13 tails of u; good to about 1e-9 for smooth integrands.

    Examples:
        >>> round(chi_average(lambda u: u**2, 7), 6)
        1.0
    """
    low, high, log_scale = _chi_range(df)
    high = min(high, upper)
    if high <= low:
        return 0.0
    nodes, weights = _legendre()
    u = low + (high - low) * nodes
    density = np.exp(log_scale + (df - 1) * np.log(u) - 0.5 * df * u * u)
    return float((high - low) * np.dot(weights, density * integrand(u)))


@functools.lru_cache(maxsize=4096)
def _chi_range(df: int) -> tuple[float, float, float]:
    from scipy import special

    low = math.sqrt(special.chdtri(df, 1.0 - 1e-13) / df)
    high = math.sqrt(special.chdtri(df, 1e-13) / df)
    log_scale = math.log(2.0) + 0.5 * df * math.log(0.5 * df) - float(special.gammaln(0.5 * df))
    return low, high, log_scale


@functools.lru_cache(maxsize=1)
def _legendre() -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(96)
    return (nodes + 1.0) / 2.0, weights / 2.0
