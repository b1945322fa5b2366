"""How numbers are written in sentences for people: digits that the interval supports, a true minus sign, units of p.

Not covered: other languages than English.
"""

import math

__all__ = ["NumberStyle", "p_text", "pairs_text", "percent", "plain_number"]

_MINUS = "−"


class NumberStyle:
    """Choose how to write an estimate and the ends of its interval alike.

    Two significant digits of the half-width decide the decimals, but never more than six significant digits of the
    largest number; very small and very large numbers, and intervals that are a point, get three significant digits.

    Examples:
        >>> write = NumberStyle(0.0031, 0.0123)
        >>> write(0.0123), write(-0.00004)
        ('+0.0123', '0.0000')
    """

    def __init__(self, half_width: float, largest: float) -> None:
        self._decimals: int | None = None
        largest = max(abs(largest), abs(half_width))
        if half_width > 0.0 and 1e-4 <= largest < 1e7:
            order, narrow = math.floor(math.log10(largest)), math.floor(math.log10(half_width))
            self._decimals = max(0, min(1 - narrow, 5 - order))

    def __call__(self, value: float) -> str:
        """Write one number with its sign."""
        size = abs(value)
        text = plain_number(size) if self._decimals is None else f"{size:.{self._decimals}f}"
        if float(text) == 0.0:
            return text
        return (_MINUS if value < 0 else "+") + text


def plain_number(value: float) -> str:
    """Write a number with up to three significant digits and a true minus sign.

    Examples:
        >>> plain_number(0.005), plain_number(-1234.5)
        ('0.005', '−1230')
    """
    text = f"{abs(value):.3g}"
    if "e+0" in text:
        text = f"{float(text):.0f}"
    return (_MINUS if value < 0 else "") + text


def percent(fraction: float) -> str:
    """Write a fraction as a percentage.

    Examples:
        >>> percent(0.95), percent(0.975)
        ('95 %', '97.5 %')
    """
    return f"{100 * fraction:.6g} %"


def p_text(p: float) -> str:
    """Write a p-value with its relation sign, two significant digits, never below 0.0001.

    Examples:
        >>> p_text(0.0078125), p_text(1e-9), p_text(1.0)
        ('p = 0.0078', 'p < 0.0001', 'p = 1')
    """
    if p < 0.0001:
        return "p < 0.0001"
    return f"p = {float(f'{p:.1e}'):.5f}".rstrip("0").rstrip(".")


def pairs_text(n: int) -> str:
    """Write a number of pairs.

    Examples:
        >>> pairs_text(1), pairs_text(8)
        ('1 pair', '8 pairs')
    """
    return f"{n} pair" if n == 1 else f"{n:,} pairs"
