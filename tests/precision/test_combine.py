"""Combined schedules: what each step computes with, what they cost, and that they survive JSON."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.precision import (
    Deficit,
    PrecisionSchedule,
    RoleSchedules,
    Schedule,
    clip,
    join,
    offset,
    overlay,
    scale,
    schedule_from_dict,
    snap,
)
from trivet.precision.roles import role_bitops_per_mac


def cyclic(name: str = "CR", *, steps: int = 120, low: int = 3, high: int = 8) -> PrecisionSchedule:
    return PrecisionSchedule.named(name, q_min=low, q_max=high, num_cycles=4, total_steps=steps)


@st.composite
def combined(draw: st.DrawFn, depth: int = 3) -> Schedule:
    steps = draw(st.integers(8, 80))
    low, high = sorted(draw(st.lists(st.integers(1, 16), min_size=2, max_size=2)))
    schedule: Schedule = cyclic(draw(st.sampled_from(PrecisionSchedule.names())), steps=steps, low=low, high=high)
    for _ in range(draw(st.integers(1, depth))):
        kind = draw(st.sampled_from(["clip", "snap", "scale", "offset", "overlay", "join"]))
        match kind:
            case "clip":
                ends = sorted(draw(st.lists(st.integers(1, 16), min_size=2, max_size=2)))
                schedule = clip(schedule, ends[0], ends[1])
            case "snap":
                schedule = snap(schedule, sorted(draw(st.sets(st.integers(1, 16), min_size=1))))
            case "scale":
                schedule = scale(clip(schedule, 2, 16), draw(st.sampled_from([0.5, 1.5, 2.0])))
            case "offset":
                schedule = offset(clip(schedule, 3, 16), draw(st.integers(-2, 2)))
            case "overlay":
                start = draw(st.integers(0, schedule.total_steps - 1))
                length = draw(st.integers(1, schedule.total_steps - start))
                schedule = overlay(schedule, Deficit(start=start, length=length, bits=2))
            case "join":
                schedule = join(cyclic(steps=draw(st.integers(4, 30))), schedule)
    return schedule


@given(combined())
@settings(deadline=None, max_examples=80)
def test_stretches_agree_with_steps_and_json_round_trips(schedule: Schedule) -> None:
    each = [schedule.bits(step) for step in range(schedule.total_steps)]
    assert schedule.bits_array().tolist() == each
    stretches = schedule.runs()
    assert sum(length for _, length, _ in stretches) == schedule.total_steps
    assert all(a[2] != b[2] for a, b in itertools.pairwise(stretches))
    assert (schedule.q_min, schedule.q_max) == (min(each), max(each)) or isinstance(schedule, PrecisionSchedule)
    bits = np.array(each, dtype=float)
    assert schedule.relative_cost(8) == pytest.approx(np.mean(bits**2 + 16 * bits) / (3 * 32**2))
    again = schedule_from_dict(json.loads(json.dumps(schedule.to_dict())))
    assert again == schedule
    assert hash(again) == hash(schedule)


def test_each_combinator_against_arrays() -> None:
    s = cyclic()
    bits = s.bits_array()
    np.testing.assert_array_equal(offset(s, 2).bits_array(), bits + 2)
    np.testing.assert_array_equal(scale(s, 1.5).bits_array(), np.rint(bits * 1.5))
    np.testing.assert_array_equal(clip(s, 4, 6).bits_array(), np.clip(bits, 4, 6))
    np.testing.assert_array_equal(join(s, cyclic("RTH")).bits_array(), np.r_[bits, cyclic("RTH").bits_array()])
    window = overlay(s, Deficit(start=10, length=20, bits=2), Deficit(start=25, length=10, bits=7)).bits_array()
    expected = bits.copy()
    expected[10:30], expected[25:35] = 2, 7
    np.testing.assert_array_equal(window, expected)


def test_snap_takes_the_nearest_level_and_the_higher_of_two() -> None:
    ramp = join(*(PrecisionSchedule.static(bits, total_steps=1) for bits in range(1, 33)))
    snapped = dict(enumerate(snap(ramp, (4, 8, 16, 32)).bits_array().tolist(), start=1))
    assert [snapped[b] for b in (1, 5, 6, 7, 11, 12, 13, 23, 24, 32)] == [4, 4, 8, 8, 8, 16, 16, 16, 32, 32]
    everything = tuple(range(3, 9))
    assert snap(cyclic(), everything).bits_array().tolist() == cyclic().bits_array().tolist()


def test_probing_windows_beside_a_deficit() -> None:
    s = clip(PrecisionSchedule.static(8, total_steps=10), high=8)
    assert s.with_deficit(start=4, length=3, bits=3).bits_array().tolist() == [8] * 4 + [3] * 3 + [8] * 3


def test_early_share() -> None:
    s = cyclic("RR", steps=1000)
    bits = s.bits_array()
    for first in (0.1, 0.25, 1.0):
        assert s.share_at(3, first=first) == np.mean(bits[: round(1000 * first)] <= 3)
    assert cyclic("RTH", steps=1000).share_at(3, first=0.1) < s.share_at(3, first=0.1)
    with pytest.raises(ValueError, match="`first=0`"):
        s.share_at(3, first=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: join(), "at least one"),
        (lambda: offset(cyclic(), -3), "turns 3 bits into 0"),
        (lambda: scale(cyclic(), 5), "turns 7 bits into 35"),
        (lambda: scale(cyclic(), float("nan")), "finite"),
        (lambda: clip(cyclic(), 6, 4), "`low=6` must be ≤ high=4"),
        (lambda: clip(cyclic(), 0, 4), "`low=0`"),
        (lambda: snap(cyclic(), ()), "rising"),
        (lambda: snap(cyclic(), (8, 4)), "rising"),
        (lambda: overlay(cyclic(), Deficit(start=110, length=20, bits=3)), "after `total_steps=120`"),
        (lambda: clip(cyclic(), 3, 8).bits(120), "must lie in \\[0, 119\\]"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "`format=9` must be 1"),
        ({"kind": "clp"}, "did you mean 'clip'"),
        ({"lo": 3}, "unknown key 'lo'"),
        ({"parts": []}, "holds 0 schedule"),
        ({"high": 40}, "`high=40`"),
    ],
)
def test_foreign_dictionaries_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule_from_dict({**clip(cyclic(), 3, 6).to_dict(), **change})


def test_role_schedules() -> None:
    forward, gradient = cyclic(), offset(cyclic("CT"), 2)
    roles = RoleSchedules(weight=forward, activation=clip(forward, 4), gradient=gradient)
    assert RoleSchedules.from_dict(json.loads(json.dumps(roles.to_dict()))) == roles
    each = [roles.bits(step) for step in range(120)]
    assert [bits for _, length, bits in roles.runs() for _ in range(length)] == each
    cost = np.mean([role_bitops_per_mac(*bits) for bits in each]) / 3072
    assert roles.relative_cost() == pytest.approx(cost)
    assert roles.q_max == 8
    with pytest.raises(ValueError, match="equal `total_steps`"):
        RoleSchedules(weight=forward, activation=forward, gradient=cyclic(steps=60))
    with pytest.raises(ValueError, match="must be kind='roles'"):
        RoleSchedules.from_dict(forward.to_dict())
