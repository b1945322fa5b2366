from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.precision import PrecisionSchedule
from trivet.precision.bitops import LayerCost, training_bitops
from trivet.tasks.text_batches import LengthBuckets, VaryingCost


@given(lengths=st.lists(st.integers(1, 40), min_size=4, max_size=80), batch=st.integers(1, 4), seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_every_text_once_a_pass_and_the_same_in_any_order(lengths: list[int], batch: int, seed: int) -> None:
    buckets = LengthBuckets(lengths, batch_size=batch, seed=seed)
    steps = buckets.pool * len(lengths)  # whole pools, whole passes
    taken = [buckets.indices(step) for step in range(steps)]
    assert set(Counter(torch.cat(taken).tolist()).values()) == {buckets.pool * batch}
    again = LengthBuckets(lengths, batch_size=batch, seed=seed)
    assert torch.equal(again.indices(steps - 1), taken[-1])
    assert torch.equal(again.indices(0), taken[0])
    assert all(again.length(step) == max(lengths[i] for i in taken[step].tolist()) for step in (0, steps - 1))


def test_like_lengths_share_a_batch() -> None:
    torch.manual_seed(0)
    lengths = torch.randint(3, 30, (600,)).tolist()
    buckets = LengthBuckets(lengths, batch_size=16, seed=1)
    real = sum(lengths[i] for step in range(30) for i in buckets.indices(step).tolist())
    padded = sum(16 * buckets.length(step) for step in range(30))
    assert buckets.pool == 16
    assert real / padded > 0.9
    order = [buckets.length(step) for step in range(16)]
    assert order != sorted(order)


@pytest.mark.parametrize(
    "schedule", [None, PrecisionSchedule.named("CT", q_min=3, q_max=8, num_cycles=2, total_steps=20)]
)
def test_cost_is_that_of_each_step(schedule: PrecisionSchedule | None) -> None:
    """Against a sum over steps by the closed form; a constant length gives `training_bitops` itself."""

    def layers(length: int) -> list[LayerCost]:
        return [
            LayerCost(name="a", kind="Linear", macs=7 * length, quantised=True),
            LayerCost(name="b", kind="Linear", macs=length * length, quantised=False),
        ]

    cost = VaryingCost(layers, lambda step: 3 + step % 4, schedule, 8, 5)
    by_step = [
        training_bitops(layers(3 + step % 4), schedule, 8, 5, step + 1)
        - training_bitops(layers(3 + step % 4), schedule, 8, 5, step)
        for step in range(20)
    ]
    assert cost(20) == sum(by_step)
    assert [cost(step) for step in (0, 7)] == [0, sum(by_step[:7])]
    constant = VaryingCost(layers, lambda step: 6, schedule, 8, 5)
    assert constant(20) == training_bitops(layers(6), schedule, 8, 5, 20)
