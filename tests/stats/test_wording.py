"""How numbers are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.stats.wording import NumberStyle, p_text, pairs_text, percent, plain_number


@pytest.mark.parametrize(
    ("half", "value", "text"),
    [
        (0.0031, 0.0123, "+0.0123"), (0.0031, -0.0123, "−0.0123"), (0.0031, 0.00001, "0.0000"), (23.0, 1234.5, "+1234"),
        (0.2, 1e6 / 3, "+333333"), (0.0, 0.01, "+0.01"), (0.0, 0.0, "0"), (1e-8, 3e-7, "+3e-07"), (2.0, 0.5, "+0.5"),
    ],
)  # fmt: skip
def test_number_with_its_interval(half, value, text):
    assert NumberStyle(half, value)(value) == text


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
def test_written_number_is_close(value, half):
    text = NumberStyle(half, value)(value).replace("−", "-")
    assert float(text) == pytest.approx(value, abs=0.06 * half + 1e-12, rel=6e-3)
    assert len(text) <= 12


def test_small_words():
    assert [plain_number(x) for x in (0.005, -1234.5, 0.0, 1e-9, 250000)] == ["0.005", "−1230", "0", "1e-09", "250000"]
    assert [percent(x) for x in (0.9, 0.975, 0.999)] == ["90 %", "97.5 %", "99.9 %"]
    assert [p_text(x) for x in (1.0, 0.05, 0.0078125, 0.00012, 0.0)] == [
        "p = 1", "p = 0.05", "p = 0.0078", "p = 0.00012", "p < 0.0001",
    ]  # fmt: skip
    assert [pairs_text(n) for n in (0, 1, 2136)] == ["0 pairs", "1 pair", "2,136 pairs"]
