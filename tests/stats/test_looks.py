"""Looks: decisions, records, the order of things, error rates on simulated studies, refusals."""

import json
import math

import numpy as np
import pytest

from trivet.stats import LookPlan, decide_by_looks, look, plan_looks

PLAN = LookPlan(pairs=(8, 12, 16))
ZERO = [0.0] * 16


def at_most(rate: float, runs: int) -> float:
    return rate + 3 * math.sqrt(rate * (1 - rate) / runs)


def noise(seed: int, n: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n)


def test_a_large_difference_stops_at_the_first_look():
    seen = look(PLAN, ZERO[:8], 5.0 + noise(1, 8), 0.5, names=("fp32", "RR"), metric="loss", when="now")
    assert (seen.label, seen.number, seen.n, seen.p, seen.when) == ("different", 1, 8, 2**-7, "now")
    assert seen.decided
    assert "RR is higher than fp32 on loss" in seen.sentence
    assert "Look 1 of 3" in seen.sentence
    assert "beyond the margin" in seen.sentence


def test_equal_arms_are_equivalent_at_the_first_look_and_without_margin_never():
    a = noise(2)
    seen = look(PLAN, a[:8], a[:8], 0.1)
    assert (seen.label, seen.p, seen.p_equivalent, seen.low, seen.high) == ("equivalent", 1.0, 2**-8, 0.0, 0.0)
    last = decide_by_looks(PLAN, a, a)[-1]
    assert (last.label, last.number, last.reason) == ("undecided", 3, "no margin")
    assert last.decided
    assert "No look is left" in last.sentence


def test_a_small_but_sure_difference_is_told():
    seen = look(PLAN, ZERO[:8], 1.0 + 0.01 * noise(3, 8), 2.0)
    assert (seen.label, seen.sure_difference, seen.within_margin) == ("equivalent", True, True)
    assert "small but sure" in seen.sentence


def test_undecided_goes_on_and_every_look_is_recorded():
    b = 0.1 + noise(4)
    looks = decide_by_looks(PLAN, ZERO, b, 0.2)
    assert [seen.n for seen in looks] == [8, 12, 16]
    assert "The next look is at 12 pairs" in looks[0].sentence
    one_by_one = []
    for n in PLAN.pairs:
        one_by_one.append(look(PLAN, ZERO[:n], b[:n], 0.2, previous=one_by_one))
    assert tuple(one_by_one) == looks
    thresholds = [seen.p_threshold for seen in looks]
    assert thresholds == list(PLAN.spent())
    assert looks[-1].equivalent_spent <= 0.05
    assert json.loads(json.dumps(looks[0].to_dict()))["n"] == 8


def test_which_arm_comes_first_does_not_matter():
    b = 0.8 + noise(6)
    for there, back in zip(decide_by_looks(PLAN, ZERO, b, 1.0), decide_by_looks(PLAN, b, ZERO, 1.0), strict=True):
        assert (there.label, there.p, there.p_equivalent) == (back.label, back.p, back.p_equivalent)
        assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


def test_lost_pairs_shorten_a_look_and_late_ones_join_the_next():
    b = 0.1 + noise(7)
    first = look(PLAN, ZERO[:6], b[:6], 0.2, lost=2)
    assert (first.n, first.lost, first.label) == (6, 2, "undecided")
    assert "2 pairs lost" in first.sentence
    second = look(PLAN, ZERO[:12], b[:12], 0.2, previous=[first])
    assert second.n == 12
    nothing = look(PLAN, [], [], 0.2, lost=8)
    assert (nothing.label, nothing.reason, nothing.low) == ("undecided", "too few pairs", None)


def test_a_family_takes_its_share():
    plan = plan_looks(12, (8, 12), family_size=4)
    seen = look(plan, ZERO[:8], 5.0 + noise(8, 8))
    assert seen.p_threshold == pytest.approx(plan.spent()[0] / 4, rel=0.02)
    assert seen.label == "different"
    assert "Bonferroni over 4 comparisons" in seen.sentence


def test_more_than_twenty_pairs_use_random_patterns():
    plan = plan_looks(30, looks=(12, 30))
    seen = decide_by_looks(plan, [0.0] * 30, 2.0 + noise(9, 30), 0.5)
    assert (seen[-1].label, seen[-1].n) == ("different", 12)
    assert "random patterns" in seen[-1].method


@pytest.mark.parametrize("kind", ["normal", "lognormal", "t3"])
def test_errors_are_held_over_all_looks(kind):
    """A short form of benchmarks/planned_looks.py."""
    studies, plan = 150, plan_looks(12)
    rng = np.random.default_rng(30)
    draw = {"normal": rng.normal, "lognormal": rng.lognormal, "t3": lambda size: rng.standard_t(3, size=size)}[kind]
    zero, d = np.zeros(12), draw(size=(studies, 12)) - draw(size=(studies, 12))
    different = np.mean([decide_by_looks(plan, zero, row)[-1].sure_difference for row in d])
    equivalent = np.mean([decide_by_looks(plan, zero, row + 2.0, 2.0)[-1].within_margin for row in d])
    assert 0.005 < different <= at_most(0.05, studies)
    assert 0.005 < equivalent <= at_most(0.05, studies)


def test_refusals():
    first = look(PLAN, ZERO[:8], noise(10, 8) + 0.1, 0.01)
    assert first.label == "undecided"
    b = np.concatenate([noise(10, 8) + 0.1, noise(11, 4)])
    with pytest.raises(ValueError, match="planned at 8 pairs"):
        look(PLAN, ZERO[:7], ZERO[:7])
    with pytest.raises(ValueError, match="planned at 12 pairs"):
        look(PLAN, ZERO[:8], b[:8], 0.01, previous=[first])
    with pytest.raises(ValueError, match="may not change"):
        look(PLAN, ZERO[:12], b, 0.02, previous=[first])
    with pytest.raises(ValueError, match="unchanged values"):
        look(PLAN, ZERO[:12], b[::-1], 0.01, previous=[first])
    with pytest.raises(ValueError, match="lost=-1"):
        look(PLAN, ZERO[:9], ZERO[:9], lost=-1)
    with pytest.raises(ValueError, match="Keep the earlier"):
        look(PLAN, ZERO[:7], b[:7], 0.01, previous=[first], lost=5)
    with pytest.raises(ValueError, match="finite"):
        look(PLAN, ZERO[:8], [*ZERO[:7], math.nan])
    with pytest.raises(ValueError, match="equal lengths"):
        look(PLAN, ZERO[:8], ZERO[:7])
    with pytest.raises(ValueError, match="margin"):
        look(PLAN, ZERO[:8], ZERO[:8], -1.0)
    with pytest.raises(ValueError, match="first look is planned at 8"):
        decide_by_looks(PLAN, ZERO[:5], ZERO[:5])
    decided = look(PLAN, ZERO[:8], ZERO[:8], 1.0)
    with pytest.raises(ValueError, match="has decided"):
        look(PLAN, ZERO[:12], ZERO[:12], 1.0, previous=[decided])
    three = decide_by_looks(PLAN, ZERO, noise(12), 0.01)
    with pytest.raises(ValueError, match="planned looks are taken"):
        look(PLAN, ZERO, noise(12), 0.01, previous=three)
