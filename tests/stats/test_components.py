"""Variance components against published values, statsmodels, exact intervals and simulation."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trivet.stats import variance_components

JUDGES = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], dtype=float)


def design(rng, n, k, r, sds):
    seed, environment, inner, repeat = sds
    return (
        seed * rng.normal(size=(1, n, 1))
        + environment * rng.normal(size=(k, 1, 1))
        + inner * rng.normal(size=(k, n, 1))
        + repeat * rng.normal(size=(k, n, r))
    )


def as_outcomes(table):
    return {f"e{e}": {s: list(cell) for s, cell in enumerate(row)} for e, row in enumerate(table)}


def test_the_published_example_of_shrout_and_fleiss():
    """Shrout and Fleiss 1979: ICC(2,1) = .29, ICC(3,1) = .71; McGraw and Wong 1996: 95 % interval of the latter."""
    found = variance_components({f"judge {j}": dict(enumerate(JUDGES[:, j].tolist())) for j in range(4)})
    assert found.reliability == pytest.approx(0.2898, abs=5e-4)
    assert found.pairing == pytest.approx(0.7148, abs=5e-4)
    assert (found.pairing_low, found.pairing_high) == pytest.approx((0.342, 0.946), abs=0.01)
    assert found.reliability_low < 0.05
    assert 0.6 < found.reliability_high < 0.9


def test_components_agree_with_statsmodels():
    import pandas
    from statsmodels.regression.mixed_linear_model import MixedLM

    table = design(np.random.default_rng(1), 12, 4, 2, (1.0, 0.8, 0.5, 0.3))
    found = variance_components(as_outcomes(table))
    index = np.indices(table.shape).reshape(3, -1)
    frame = pandas.DataFrame({"y": table.ravel(), "e": index[0], "s": index[1], "one": 1})
    parts = {"s": "0 + C(s)", "e": "0 + C(e)", "se": "0 + C(s):C(e)"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = MixedLM.from_formula("y ~ 1", frame, groups="one", vc_formula=parts).fit(reml=True)
    wanted = dict(zip(fit.model.exog_vc.names, fit.vcomp, strict=True))
    assert found["seed"].variance == pytest.approx(wanted["s"], rel=0.02)
    assert found["environment"].variance == pytest.approx(wanted["e"], rel=0.02)
    assert found["seed × environment"].variance == pytest.approx(wanted["se"], rel=0.02)
    assert found["repeat"].variance == pytest.approx(fit.scale, rel=0.02)


def test_exact_intervals_of_the_residual_and_of_pairing():
    table = design(np.random.default_rng(2), 10, 3, 2, (1.0, 0.5, 0.3, 0.4))
    found = variance_components(as_outcomes(table), confidence=0.9)
    repeat = found["repeat"]
    df = 10 * 3
    assert repeat.df == df
    wanted = [repeat.variance * df / stats.chi2.ppf(q, df) for q in (0.95, 0.05)]
    assert (repeat.low, repeat.high) == pytest.approx(tuple(wanted), rel=0.03)
    single = variance_components(as_outcomes(table[:, :, :1]), confidence=0.9)
    cells = table[:, :, 0]
    by_seed = 3 * cells.mean(axis=0).var(ddof=1)
    inner = cells - cells.mean(axis=0) - cells.mean(axis=1)[:, None] + cells.mean()
    ratio = by_seed / ((inner**2).sum() / 18)
    exact = [(ratio / stats.f.ppf(q, 9, 18) - 1) / (ratio / stats.f.ppf(q, 9, 18) + 2) for q in (0.95, 0.05)]
    assert (single.pairing_low, single.pairing_high) == pytest.approx(tuple(exact), abs=0.01)
    assert single["seed"].p == pytest.approx(stats.f.sf(ratio, 9, 18))


def test_intervals_cover():
    """A short form of benchmarks/more_statistics.py."""
    rng, studies, sds = np.random.default_rng(3), 80, (1.0, 0.5, 0.5, 0.3)
    hits = np.zeros(4)
    for _ in range(studies):
        found = variance_components(as_outcomes(design(rng, 8, 4, 2, sds)))
        hits += [c.low <= sd**2 <= c.high for c, sd in zip(found.components, sds, strict=True)]
    assert (hits / studies >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / studies)).all()


def test_bit_equal_repeats_and_bit_equal_environments():
    row = {s: [0.9 + s / 100] * 2 for s in range(6)}
    found = variance_components({"a": row, "b": row})
    assert [c.variance for c in found.components[1:]] == [0.0, 0.0, 0.0]
    assert [c.high for c in found.components[1:]] == [0.0, 0.0, 0.0]
    assert (found.pairing, found["seed"].share, found["environment"].p) == (1.0, 1.0, 1.0)
    flat = variance_components({"a": dict.fromkeys(range(3), 0.5), "b": dict.fromkeys(range(3), 0.5)})
    assert [c.variance for c in flat.components] == [0.0, 0.0, 0.0]
    assert (flat.pairing, flat.reliability) == (0.0, 0.0)
    chaos = variance_components({"a": {s: [float(s)] * 2 for s in range(6)}, "b": {s: [6.0 - s] * 2 for s in range(6)}})
    assert chaos["repeat"].variance == 0.0
    assert chaos["seed × environment"].share > 0.5


@settings(max_examples=25)
@given(st.floats(-1000, 1000), st.floats(0.001, 1000))
def test_shift_does_nothing_and_scale_scales(shift, factor):
    table = design(np.random.default_rng(4), 6, 3, 1, (1.0, 0.5, 0.5, 0.0))
    one, two = (variance_components(as_outcomes(t)) for t in (table, shift + factor * table))
    for a, b in zip(one.components, two.components, strict=True):
        assert b.variance == pytest.approx(factor**2 * a.variance, rel=1e-4, abs=1e-12)
        assert b.share == pytest.approx(a.share, abs=1e-4)


def test_missing_seeds_are_left_out_and_told():
    full = {s: float(s % 3) + s / 10 for s in range(8)}
    found = variance_components({"a": full, "b": {s: v + 0.1 for s, v in full.items() if s != 3}})
    assert (found.seeds, found.dropped) == (7, (3,))
    assert "1 seeds left out" in str(found)
    with pytest.raises(KeyError, match="the components are"):
        found["noise"]


def test_bad_input_is_refused():
    row = {0: 1.0, 1: 2.0, 2: 3.0}
    with pytest.raises(ValueError, match="at least 2"):
        variance_components({"a": row})
    with pytest.raises(ValueError, match=r"0 seed\(s\) are in every"):
        variance_components({"a": row, "b": {7: 1.0, 8: 2.0}})
    with pytest.raises(ValueError, match="1, 2 runs"):
        variance_components({"a": row, "b": {0: [1.0, 2.0], 1: 2.0, 2: 3.0}})
    with pytest.raises(ValueError, match="b, seed 1"):
        variance_components({"a": row, "b": {0: 1.0, 1: math.nan, 2: 3.0}})
    with pytest.raises(TypeError):
        variance_components({"a": row, "b": [1.0, 2.0]})
    with pytest.raises(TypeError):
        variance_components({"a": row, "b": {0: "x", 1: 2.0, 2: 3.0}})
    with pytest.raises(ValueError, match="confidence"):
        variance_components({"a": row, "b": row}, confidence=1.0)
