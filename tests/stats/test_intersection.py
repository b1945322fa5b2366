"""Intersection–union: the largest p, no correction, error held, bad input."""

import math

import numpy as np
import pytest

from trivet.stats import ArmPair, all_equivalent, equivalence


def family(rng, arms, n, shift=0.0):
    base = rng.normal(size=n)
    return [
        ArmPair(names=("base", str(k)), a=base, b=base + rng.normal(shift if k == 0 else 0.0, 0.3, size=n))
        for k in range(arms)
    ]


def test_the_joint_p_is_the_largest_single_one():
    pairs = family(np.random.default_rng(0), 4, 9)
    found = all_equivalent(pairs, 0.8, metric="loss")
    single = [equivalence(pair.a, pair.b, 0.8) for pair in pairs]
    assert found.p == max(one.p for one in single)
    assert found.equivalent == all(one.equivalent for one in single)
    assert "All 4 comparisons are equivalent on loss" in found.sentence


def test_one_arm_at_the_margin_is_enough_to_fail_and_the_error_is_held():
    rng, studies = np.random.default_rng(1), 600
    wrong = [all_equivalent(family(rng, 3, 8, shift=0.8), 0.8).equivalent for _ in range(studies)]
    assert np.mean(wrong) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    found = all_equivalent(family(rng, 3, 8, shift=3.0), 0.8)
    assert found.failing == (("base", "0"),)
    assert "1 of them is not (base and 0" in found.sentence


def test_too_few_pairs_lost_pairs_and_equal_outcomes():
    same = [0.5] * 6
    few = ArmPair(names=("base", "few"), a=same[:5], b=same[:5], lost=1)
    found = all_equivalent([ArmPair(names=("base", "same"), a=same, b=same), few], 0.1)
    assert (found.equivalent, found.p, found.tests[1]) == (False, 1.0, None)
    assert "fewer than 6" in found.sentence
    assert "1 further pairs could not" in found.sentence
    assert all_equivalent([ArmPair(names=("base", "same"), a=same, b=same)], 0.1).equivalent


def test_bad_input_is_refused():
    pair = ArmPair(names=("a", "b"), a=[1.0] * 6, b=[1.0] * 6)
    with pytest.raises(ValueError, match="no comparison"):
        all_equivalent([], 0.1)
    for margin in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="margin"):
            all_equivalent([pair], margin)
    with pytest.raises(ValueError, match="equal lengths"):
        all_equivalent([ArmPair(names=("a", "b"), a=[1.0] * 6, b=[1.0] * 7)], 0.1)
