"""What is promised about error rates, checked on simulated studies with the real `decide`."""

import math

import numpy as np
import pytest

from trivet.stats import decide, decide_family, power_different

STUDIES = 2_000


def draw(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Outcomes of one arm: normal, log-normal (σ = 1, skewness 6.2) or heavy-tailed (t with 3 degrees of freedom)."""
    if kind == "lognormal":
        return rng.lognormal(size=shape)
    return rng.standard_t(3, size=shape) if kind == "heavy" else rng.normal(size=shape)


def at_most(rate: float, runs: int) -> float:
    """Upper limit for an observed rate: three Monte-Carlo standard errors above the nominal one."""
    return rate + 3 * math.sqrt(rate * (1 - rate) / runs)


@pytest.mark.parametrize("kind", ["normal", "lognormal", "heavy"])
def test_false_alarms_at_eight_pairs(kind):
    rng = np.random.default_rng(20)
    a, b = draw(kind, rng, (STUDIES, 8)), draw(kind, rng, (STUDIES, 8))
    rate = np.mean([decide(x, y, margin=0.5).sure_difference for x, y in zip(a, b, strict=True)])
    assert 0.005 < rate <= at_most(0.05, STUDIES)


def test_false_alarms_in_a_family_of_four_arms():
    rng = np.random.default_rng(21)
    runs = 500
    arms = draw("normal", rng, (runs, 4, 8))
    alarms = [
        any(v.label == "different" for v in decide_family(study[0], {str(k): study[k] for k in (1, 2, 3)}).values())
        for study in arms
    ]
    assert np.mean(alarms) <= at_most(0.05, runs)


def test_false_equivalence_at_the_margin():
    rng = np.random.default_rng(22)
    runs = 1_000
    d = rng.normal(2.0, 1.0, size=(runs, 8))
    labels = [decide(np.zeros(8), x, margin=2.0).within_margin for x in d]
    assert 0.02 < np.mean(labels) <= at_most(0.05, runs)


@pytest.mark.parametrize(("n", "unit"), [(6, 1.9), (8, 1.2), (12, 0.9)])
def test_power_is_near_the_planned_one(n, unit):
    rng = np.random.default_rng(23)
    runs = 1_000
    d = rng.normal(unit, 1.0, size=(runs, n))
    rate = np.mean([decide(np.zeros(n), x).label == "different" for x in d])
    planned = power_different(n, unit)
    assert 0.7 < planned < 0.9
    assert planned - 0.06 - 3 * math.sqrt(0.16 / runs) < rate < planned + 3 * math.sqrt(0.16 / runs)
