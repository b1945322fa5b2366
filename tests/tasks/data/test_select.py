"""Selection by hash: the rule, and what it promises."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trivet.tasks.data.select import hash_ranked, split_by_class


@given(st.sets(st.integers(0, 10_000), max_size=50), st.text(max_size=5))
def test_order_is_that_of_the_hashes(members: set[int], salt: str) -> None:
    ranked = hash_ranked(np.array(sorted(members), np.int64), salt)
    expected = sorted(members, key=lambda i: hashlib.sha256(f"{salt}/{i}".encode()).hexdigest())
    assert ranked.tolist() == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.sampled_from([0.1, 0.2, 0.5]))
def test_split_keeps_shares_and_loses_nothing(labels: list[int], share: float) -> None:
    array = np.array(labels)
    train, test = split_by_class(array, test_share=share, salt="s")
    assert sorted([*train, *test]) == list(range(len(labels)))
    for label in set(labels):
        assert (array[test] == label).sum() == round(share * labels.count(label))


def test_other_salt_other_order() -> None:
    members = np.arange(100)
    assert hash_ranked(members, "a").tolist() != hash_ranked(members, "b").tolist()
