from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.audit.difference import doubling_steps, first_difference, first_tensor, snapshot_steps


def rows(*checksums: str) -> list[dict[str, object]]:
    kinds = ["input", "forward", "forward", "backward", "gradient", "weight"]
    return [
        {"kind": kind, "name": f"m{place}", "shape": [2, 3], "checksum": value}
        for place, (kind, value) in enumerate(zip(kinds, checksums, strict=False))
    ]


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_first_difference_is_the_first(a: list[int], b: list[int]) -> None:
    place = first_difference(a, b)
    shared = min(len(a), len(b))
    if place is None:
        assert a[:shared] == b[:shared]
    else:
        assert a[:place] == b[:place]
        assert a[place] != b[place]


def test_the_first_tensor_in_the_order_of_the_computation() -> None:
    found = first_tensor(rows("a", "b", "c", "d", "e", "f"), rows("a", "b", "x", "d", "y", "z"))
    assert found is not None
    assert (found.kind, found.name, found.before, found.differing, found.total) == ("forward", "m2", 2, 3, 6)
    assert found.same_structure
    assert "the output of m2 [2, 3] is the first of 6 tensors to differ (2 before it are bit-equal, 3 differ)" in str(
        found
    )
    assert first_tensor(rows("a", "b"), rows("a", "b")) is None


def test_runs_of_other_structure_are_compared_as_far_as_they_agree() -> None:
    other = rows("a", "x", "c")
    other[2]["name"] = "another"
    found = first_tensor(rows("a", "b", "c", "d"), other)
    assert found is not None
    assert (found.name, found.total, found.same_structure) == ("m1", 2, False)
    assert first_tensor(rows("a"), []) is None


@given(st.floats(1.5, 50.0), st.floats(1e-9, 1e-3))
def test_a_distance_that_doubles_is_measured(steps: float, start: float) -> None:
    when = [1, 4, 9, 20, 33]
    found = doubling_steps(when, [start * 2 ** (step / steps) for step in when])
    assert found == pytest.approx(steps, rel=1e-6)


def test_what_does_not_grow_doubles_never() -> None:
    assert doubling_steps([1, 2, 3], [1e-3, 1e-3, 1e-4]) is None
    assert doubling_steps([1, 2], [1.0, 2.0]) is None
    assert doubling_steps([1, 2, 3, 4], [0.0, math.inf, 1.0, 2.0]) is None


@given(st.integers(1, 3000), st.integers(2, 30))
def test_snapshots_grow_from_one_to_the_end(steps: int, count: int) -> None:
    found = snapshot_steps(steps, count)
    assert found[0] == 1
    assert found[-1] == steps
    assert len(found) <= count + 1
    assert found == sorted(set(found))
