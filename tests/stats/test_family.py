"""Several comparisons at once."""

import numpy as np
import pytest

from trivet.stats import ArmPair, decide, decide_family, decide_pairs, holm

RNG = np.random.default_rng(11)
BASE = RNG.normal(size=10)
ARMS = {
    "far": BASE + RNG.normal(3.0, 0.5, 10),
    "near": BASE + RNG.normal(0.9, 1.0, 10),
    "same": BASE + RNG.normal(0.0, 0.2, 10),
}


def test_equals_single_decisions_with_holm():
    family = decide_family(BASE, ARMS, margin=0.5, metric="loss", baseline_name="fp32")
    adjusted = holm([decide(BASE, values).p for values in ARMS.values()])
    assert list(family) == list(ARMS)
    for (name, v), p in zip(family.items(), adjusted, strict=True):
        assert v.p == p
        assert v.family_size == 3
        assert v.names == ("fp32", name)
        assert v == decide(BASE, ARMS[name], 0.5, 0.05, ("fp32", name), "loss", p, family_size=3)
    assert family["far"].label == "different"
    assert "after Holm over 3 comparisons" in family["far"].sentence
    assert family["same"].label == "equivalent"


def test_a_family_of_one_is_a_plain_decision():
    assert decide_family(BASE, {"far": ARMS["far"]}, 0.5)["far"] == decide(
        BASE, ARMS["far"], 0.5, names=("baseline", "far")
    )
    assert decide_family(BASE, {}) == {}


def test_pairs_of_different_length_and_lost_runs():
    pairs = [
        ArmPair(names=("fp32", "far"), a=BASE, b=ARMS["far"]),
        ArmPair(names=("fp32", "near"), a=BASE[:7], b=ARMS["near"][:7], lost=3),
        ArmPair(names=("fp32", "gone"), a=[], b=[], lost=10),
    ]
    far, near, gone = decide_pairs(pairs, margin=0.5)
    assert (far.n, near.n, gone.n) == (10, 7, 0)
    assert far.p == pytest.approx(3 * 2 / 2**10)
    assert "3 further pairs could not be compared" in near.sentence
    assert (gone.label, gone.comparison) == ("undecided", None)


def test_errors_reach_the_caller():
    with pytest.raises(ValueError, match="equal lengths"):
        decide_family(BASE, {"short": BASE[:5]})
