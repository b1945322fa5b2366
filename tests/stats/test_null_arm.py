"""Effects against what rounding alone does: figures against scipy, error rates by simulation, the odd cases."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import against_null, null_arm, seeds_from_pilot

BASE = [0.30, 0.32, 0.31, 0.29, 0.33, 0.30, 0.28, 0.31]
ROUNDED = [x + d for x, d in zip(BASE, [1e-4, -2e-4, 1e-4, 0.0, 2e-4, -1e-4, 1e-4, -1e-4], strict=True)]
SHIFTED = [x + 0.01 + 0.001 * (i % 3) for i, x in enumerate(BASE)]


def test_spread_reach_and_plan_are_those_of_scipy_and_of_the_pilot() -> None:
    found = null_arm(BASE, ROUNDED, name="null", margin=0.001)
    differences = np.array(ROUNDED) - np.array(BASE)
    rms = math.sqrt(np.mean(differences**2))
    assert found.rms == pytest.approx(rms)
    assert found.reach == pytest.approx(2 * rms)
    assert found.largest == pytest.approx(2e-4)
    ends = [rms * math.sqrt(8 / stats.chi2.ppf(q, 8)) for q in (0.975, 0.025)]
    assert [found.rms_low, found.rms_high] == pytest.approx(ends)
    assert found.ratio == pytest.approx(np.std(differences, ddof=1) / np.std(BASE, ddof=1))
    assert found.plan == seeds_from_pilot(BASE, ROUNDED, margin=0.001)
    unplanned = null_arm(BASE, ROUNDED).plan
    assert unplanned is not None
    assert f"±{0.2 * np.std(BASE, ddof=1):g}" in unplanned.target


def test_the_interval_of_the_ratio_joins_t_and_chi_squared() -> None:
    null = null_arm(BASE, ROUNDED, name="null")
    found = against_null(BASE, SHIFTED, null)
    differences = np.array(SHIFTED) - np.array(BASE)
    low, high = stats.t.interval(0.95, 7, loc=differences.mean(), scale=stats.sem(differences))
    assert found.ratio == pytest.approx(differences.mean() / null.reach)
    assert found.ratio_low == pytest.approx(low / (2 * null.rms_high))
    assert found.ratio_high == pytest.approx(high / (2 * null.rms_low))
    assert found.in_seed_sds == pytest.approx(differences.mean() / np.std(BASE, ddof=1))
    assert found.label == "larger"
    assert "43 × larger than rounding can explain (at least 21 ×)" in found.sentence


@given(st.floats(1e-6, 1e6), st.floats(-1e3, 1e3), st.booleans())
def test_units_and_direction_do_not_matter(scale: float, shift: float, flip: bool) -> None:
    sign = -1.0 if flip else 1.0

    def moved(values: list[float]) -> list[float]:
        return [sign * scale * x + scale * shift for x in values]

    first = against_null(BASE, SHIFTED, null_arm(BASE, ROUNDED))
    second = against_null(moved(BASE), moved(SHIFTED), null_arm(moved(BASE), moved(ROUNDED)))
    assert second.label == first.label
    assert second.ratio == pytest.approx(first.ratio, rel=1e-6)
    assert abs(second.in_seed_sds or 0) == pytest.approx(abs(first.in_seed_sds or 0), rel=1e-6)


Draw = Callable[[np.random.Generator, int], np.ndarray]
ROUNDINGS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "t with 3 degrees": lambda rng, n: rng.standard_t(3, n),
    "rarely chaotic": lambda rng, n: np.where(rng.random(n) < 1 / 8, 1.0, 0.01) * rng.normal(size=n),
    "in steps": lambda rng, n: np.round(0.8 * rng.normal(size=n)),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1.0,
}


def rates(draw: Draw, n: int, shift: float, studies: int, *, shared: bool) -> tuple[float, float]:
    """Share of studies that end "larger" and "no larger"; `shared`: the baseline is rounded by chance too."""
    rng, found = np.random.default_rng(n), []
    for _ in range(studies):
        seeds = 10.0 * rng.normal(size=n)
        base = seeds + (draw(rng, n) if shared else 0.0)
        null, arm = seeds + draw(rng, n), seeds + draw(rng, n) + shift
        found.append(against_null(base, arm, null_arm(base, null)).label)
    return found.count("larger") / studies, found.count("no larger") / studies


@pytest.mark.parametrize("name", ROUNDINGS)
def test_an_arm_that_changes_rounding_alone_is_not_larger(name: str) -> None:
    larger, no_larger = rates(ROUNDINGS[name], 8, 0.0, 300, shared=True)
    assert larger <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert no_larger > 0.5


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("n", [6, 8, 16])
def test_at_a_ratio_of_one_both_claims_err_rarely(n: int, shared: bool) -> None:
    shift = 2.0 * (math.sqrt(2.0) if shared else 1.0)
    for rate in rates(ROUNDINGS["normal"], n, shift, 300, shared=shared):
        assert rate <= 0.05


def test_a_large_effect_is_found() -> None:
    assert rates(ROUNDINGS["normal"], 8, 12.0, 100, shared=False)[0] > 0.9


def test_below_six_pairs_nothing_is_claimed() -> None:
    found = against_null(BASE[:5], SHIFTED[:5], null_arm(BASE, ROUNDED))
    assert found.label == "undecided"
    assert "Below 6 pairs nothing is claimed" in found.sentence
    assert against_null(BASE, SHIFTED, null_arm(BASE[:5], ROUNDED[:5])).label == "undecided"


def test_rounding_that_changes_nothing() -> None:
    null = null_arm(BASE, BASE, name="null")
    assert (null.reach, null.ratio) == (0.0, 0.0)
    assert "changes nothing" in str(null)
    assert null.plan is not None
    assert null.plan.pairs == 6
    larger = against_null(BASE, SHIFTED, null)
    assert (larger.label, larger.ratio) == ("larger", None)
    assert larger.sentence.startswith("Larger than rounding can explain")
    equal = against_null(BASE, BASE, null)
    assert equal.label == "no larger"
    unsure = against_null(BASE, [*SHIFTED[:4], *(2 * x - y for x, y in zip(BASE[4:], SHIFTED[4:], strict=True))], null)
    assert unsure.label == "undecided"


def test_a_family_asks_for_more() -> None:
    null = null_arm(BASE, ROUNDED)
    assert against_null(BASE, SHIFTED, null, adjusted_p=0.2).label == "undecided"
    assert "not sure (p = 0.2)" in against_null(BASE, SHIFTED, null, adjusted_p=0.2).sentence


def test_seeds_that_do_not_vary_give_no_ratio() -> None:
    null = null_arm([1.0] * 6, [1.0, 1.1, 0.9, 1.0, 1.1, 0.9])
    assert (null.ratio, null.plan) == (None, None)
    assert against_null([1.0] * 6, [1.1] * 6, null).in_seed_sds is None


def test_a_spread_beyond_planning_gives_no_plan() -> None:
    assert null_arm([0.0, 0.0, 1e-9], [0.0, 1.0, -1.0], margin=1e-6).plan is None


@pytest.mark.parametrize(
    ("base", "null", "margin", "text"),
    [
        ([1.0], [1.0], 0.0, "at least 2"),
        ([1.0, 2.0], [1.0], 0.0, "equal lengths"),
        ([1.0, 2.0], [1.0, math.nan], 0.0, "finite"),
        ([1.0, 2.0], [1.0, 2.0], -1.0, "margin"),
    ],
)
def test_bad_input_is_refused(base: list[float], null: list[float], margin: float, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        null_arm(base, null, margin=margin)
