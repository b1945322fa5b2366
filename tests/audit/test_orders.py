"""Hash of the data in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from trivet import audit
from trivet.audit.orders import batch_digest

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core


def loader(seed: int, **more: Any) -> DataLoader[Any]:
    shuffled = torch.Generator().manual_seed(seed)
    return DataLoader(torch.arange(60.0).view(20, 3), batch_size=4, shuffle=True, generator=shuffled, **more)  # type: ignore[arg-type]


def test_same_seed_same_hash_also_with_workers() -> None:
    one = audit.order(loader(0))
    assert one.digest == audit.order(loader(0, num_workers=2)).digest
    assert one.first_difference(audit.order(loader(1))) == 0
    assert len(one.batches) == 5
    assert not one.findings
    assert one.digest in str(one)
    assert one.to_dict()["digest"] == one.digest


def test_first_difference_and_count() -> None:
    batches = [np.full(3, step) for step in range(6)]
    changed = [*batches[:4], np.full(3, 9), batches[5]]
    assert audit.order(batches).first_difference(audit.order(changed)) == 4
    assert audit.order(batches).first_difference(audit.order(batches[:5])) == 5
    assert audit.order(batches, count=4).digest == audit.order(changed, count=4).digest
    assert audit.order(batches).first_difference(audit.order(batches)) is None


def test_batches_kept_in_one_buffer() -> None:
    def reused() -> Iterator[torch.Tensor]:
        buffer = np.zeros(4, np.float32)
        for step in range(5):
            buffer[:] = step
            yield torch.from_numpy(buffer)

    assert not audit.order(reused()).findings  # read one by one they are right
    found = audit.order(list(reused()))
    assert found.findings[0].where == "batch 1, counted from 0"
    assert found.findings[0].size == "4 of 4 batches after the first"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=8), st.integers(0, 7), st.integers(1, 255))
def test_one_value_changes_the_hash(values: list[int], place: int, by: int) -> None:
    other = list(values)
    other[place % len(values)] = (other[place % len(values)] + by) % 256
    one, two = (batch_digest({"x": np.array(content, np.uint8)}) for content in (values, other))
    assert one != two
    assert one == batch_digest({"x": torch.tensor(values, dtype=torch.uint8)})


def test_order_type_and_shape_count() -> None:
    x = torch.arange(6)
    assert (
        len({batch_digest(value) for value in (x, x.float(), x.view(2, 3), x.flip(0), [x, 1], [1, x], {"a": x})}) == 7
    )


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no batch"):
        audit.order([])
    with pytest.raises(ValueError, match="count=-1"):
        audit.order([1], count=-1)
