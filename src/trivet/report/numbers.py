"""Numbers as a reader wants them: as many digits as the interval justifies, a unit beside each.

Covers rounding, powers of ten and counts. It does not cover locales: the decimal sign is always a point.
"""

from __future__ import annotations

import math

MISSING = "–"
"""What stands where there is no number."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def decimals_for(width: float | None, *, significant: int = 2) -> int | None:
    """Decimals at which `width` (of an interval, or a spread) still has `significant` digits.

    Args:
        width: A positive length on the scale of the numbers to print; None or 0 when it is not known.
        significant: Digits to keep of it.

    Returns:
        Decimals in [0, 12], or None when `width` says nothing.

    Examples:
        >>> decimals_for(0.0123), decimals_for(45.0), decimals_for(None)
        (3, 0, None)
    """
    if width is None or not math.isfinite(width) or width <= 0:
        return None
    return max(0, min(12, significant - 1 - math.floor(math.log10(width))))


def number(value: float | None, decimals: int | None = None, *, signed: bool = False) -> str:
    """One number as text; four significant digits when no decimals are asked for.

    Examples:
        >>> number(0.91234, 3), number(0.002, 3, signed=True), number(-1.5, 1), number(None), number(1.5e9)
        ('0.912', '+0.002', '−1.5', '–', '1.5e+09')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if decimals is None or abs(value) >= 1e7:
        text = f"{value:{'+' if signed else ''}.4g}"
    else:
        text = f"{value:{'+' if signed else ''}.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−") if text.startswith("-") else text


def interval(low: float | None, high: float | None, decimals: int | None = None, *, signed: bool = False) -> str:
    """Both ends of an interval in square brackets.

    Examples:
        >>> interval(0.1, 0.2, 2), interval(None, None)
        ('[0.10, 0.20]', '–')
    """
    if low is None or high is None:
        return MISSING
    return f"[{number(low, decimals, signed=signed)}, {number(high, decimals, signed=signed)}]"


def p_value(p: float | None) -> str:
    """A p-value with three decimals, never printed as zero.

    Examples:
        >>> p_value(0.0078), p_value(0.00001), p_value(None)
        ('0.008', '< 0.001', '–')
    """
    if p is None or not math.isfinite(p):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def common_exponent(values: list[float]) -> int:
    """Multiple of three that brings the largest value into [1, 1000); 0 below a thousand.

    Examples:
        >>> common_exponent([3.2e13, 5e11]), common_exponent([12.0]), common_exponent([])
        (12, 0, 0)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest < 1000:
        return 0
    return 3 * math.floor(math.log10(largest) / 3)


def power_of_ten(exponent: int) -> str:
    """`10ⁿ` with a real superscript.

    Examples:
        >>> power_of_ten(12)
        '10¹²'
    """
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def count(n: int, singular: str, plural: str = "") -> str:
    """A count with its noun.

    Examples:
        >>> count(1, "run"), count(3, "run"), count(1234, "seed")
        ('1 run', '3 runs', '1,234 seeds')
    """
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def listing(names: list[str]) -> str:
    """Names joined as in a sentence.

    Examples:
        >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
        ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
