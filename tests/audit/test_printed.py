from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trivet.audit.printed import compare_printed


@given(st.text())
def test_a_text_equals_itself(text: str) -> None:
    found = compare_printed(text, text)
    assert (found.places, found.largest, found.last) == ((), 0.0, "")


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_that_changes_is_found_with_its_size(one: float, other: float) -> None:
    found = compare_printed(f"loss: {one!r}, step 3", f"loss: {other!r}, step 3")
    assert found.compared == 2
    assert len(found.places) == (repr(one) != repr(other))
    if one != other:
        size = max(abs(one), abs(other))
        assert math.isclose(found.largest, abs(one - other) / size, rel_tol=1e-12)


def test_forms_of_numbers_and_words() -> None:
    assert compare_printed("resnet20 v1.2b x3", "resnet20 v1.2b x3").compared == 0
    assert compare_printed("a=.5 b=-1e-3, c=nan", "a=.5 b=-1e-3, c=nan").compared == 3
    assert compare_printed("c=nan", "c=1").largest == math.inf
    words = compare_printed("done", "failed")
    assert words.places == ((0, -1),)
    assert words.last == "'done' and 'failed'"
    assert compare_printed("1\n2", "1").places == ((1, -1),)


def test_what_differs_by_itself_is_left_out() -> None:
    first = compare_printed("loss 1.0 took 3.1 s\nat 12:30", "loss 1.0 took 2.9 s\nat 12:31")
    assert first.places == ((0, 1), (1, 1))
    found = compare_printed("loss 1.0 took 3.1 s\nat 12:30", "loss 1.5 took 9 s\nat 1:02", ignored=first.places)
    assert found.places == ((0, 0), (1, 0))
