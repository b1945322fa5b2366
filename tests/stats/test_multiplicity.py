"""Holm's correction against statsmodels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from trivet.stats import holm

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.mark.parametrize("m", [1, 2, 3, 7, 12])
def test_equals_statsmodels(m):
    rng = np.random.default_rng(m)
    for power in (1, 4):
        p = rng.uniform(size=m) ** power
        assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    tied = np.repeat([0.01, 0.2, 1.0], 2)[:m]
    assert holm(tied) == pytest.approx(multipletests(tied, method="holm")[1])


@given(p_values, st.randoms(use_true_random=False))
def test_order_does_not_matter(p, random):
    order = list(range(len(p)))
    random.shuffle(order)
    assert holm([p[i] for i in order]).tolist() == [holm(p)[i] for i in order]


@given(p_values)
def test_between_raw_and_bonferroni(p):
    adjusted = holm(p)
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(1.0, np.array(p) * len(p)) + 1e-15).all()


def test_edges():
    assert holm([]).size == 0
    assert holm([0.04]).tolist() == [0.04]
    with pytest.raises(ValueError, match=r"`p\[1\]=1.2` must lie in \[0, 1\]"):
        holm([0.1, 1.2])
    with pytest.raises(ValueError, match="finite"):
        holm([0.1, float("nan")])
