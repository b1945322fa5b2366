from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.report.numbers import common_exponent, decimals_for, interval, number, p_value


@given(st.floats(-1e6, 1e6), st.integers(0, 8))
def test_a_printed_number_reads_back_within_its_rounding(value: float, decimals: int) -> None:
    text = number(value, decimals)
    assert abs(float(text.replace("−", "-")) - value) <= 0.5000001 * 10.0**-decimals
    assert not text.startswith("−0." + "0" * decimals + " ")


@given(st.floats(1e-10, 1e10))
def test_decimals_keep_two_digits_of_the_width(width: float) -> None:
    decimals = decimals_for(width)
    assert decimals is not None
    if 0 < decimals < 12:
        assert 10 <= round(width * 10**decimals, 6) < 100.000001


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_no_number_is_a_dash(bad: float | None) -> None:
    assert number(bad) == "–"
    assert p_value(bad) == "–"
    assert interval(bad, None) == "–"
    assert decimals_for(bad) is None


def test_minus_zero_has_no_sign() -> None:
    assert number(-0.00001, 3, signed=True) == "0.000"


def test_p_is_never_printed_as_zero() -> None:
    assert p_value(1e-12) == "< 0.001"


@given(st.lists(st.floats(0, 1e30), min_size=1))
def test_the_largest_value_gets_one_to_three_digits(values: list[float]) -> None:
    exponent = common_exponent(values)
    assert exponent % 3 == 0
    if exponent:
        assert 0.999 <= max(values) / 10.0**exponent < 1000.001
