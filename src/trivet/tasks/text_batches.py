"""Batches of texts of unequal length: which texts share one, how they are padded, and what that costs in BitOPs.

A batch is as long as its longest text. So that little of it is padding, the texts of `POOL` batches are drawn at once,
as `BatchOrder` draws them, sorted by length and cut into batches, which are taken in random order. The batch of a step
is a pure function of (seed, step).

As the lengths of all batches are known before training, so is their cost: the sum over steps of the multiply-
accumulates at that step's length × those bits; equal to what `PrecisionController.cost` counts.

Not covered: a number of examples a step that varies with their length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from trivet.precision.bitops import LayerCost, training_bitops
from trivet.precision.runs import RoleRuns, Schedule
from trivet.training.batches import BatchOrder, keyed_generator

POOL = 16
"""Batches that are sorted together; fewer where the data have not so many."""

Batch = tuple[Tensor, Tensor, Tensor]
"""Token numbers, mask and segments, int64 [N, L]."""


class LengthBuckets:
    """Which texts each step takes.

    Examples:
        >>> buckets = LengthBuckets([3, 9, 3, 9], batch_size=2, seed=0)
        >>> sorted(buckets.length(step) for step in (0, 1)), sorted(buckets.indices(0).tolist()) in ([0, 2], [1, 3])
        ([3, 9], True)
    """

    def __init__(self, lengths: Sequence[int], *, batch_size: int, seed: int) -> None:
        """Args: lengths: tokens of each text; batch_size: texts a step; seed: of the run."""
        self.lengths = torch.tensor(lengths)
        self.batch_size, self.seed = batch_size, seed
        self.pool = max(1, min(POOL, len(lengths) // batch_size))
        self._order = BatchOrder(num_examples=len(lengths), batch_size=batch_size * self.pool, seed=seed)
        self._kept: dict[int, Tensor] = {}

    def indices(self, step: int) -> Tensor:
        """Positions of the texts of one step, int64 [batch_size], the shortest first."""
        pool, place = divmod(step, self.pool)
        if pool not in self._kept:
            drawn = self._order.indices(pool)
            batches = drawn[self.lengths[drawn].argsort(stable=True)].view(self.pool, self.batch_size)
            mixed = torch.randperm(self.pool, generator=keyed_generator(self.seed, "pool", pool))
            self._kept = {pool: batches[mixed]}
        return self._kept[pool][place]

    def length(self, step: int) -> int:
        """Tokens of the longest text of one step."""
        return int(self.lengths[self.indices(step)].max())


def padded(tokens: Sequence[Sequence[int]], segments: Sequence[Sequence[int]], padding: int) -> Batch:
    """Token numbers of some texts as a batch; `padding` stands behind the end of a text.

    Examples:
        >>> tokens, mask, segments = padded([[5], [6, 7]], [[0], [0, 1]], padding=0)
        >>> tokens.tolist(), mask.tolist(), segments.tolist()
        ([[5, 0], [6, 7]], [[1, 0], [1, 1]], [[0, 0], [0, 1]])
    """
    shape = (len(tokens), max(map(len, tokens)))
    found, mask, parts = np.full(shape, padding, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, (numbers, marks) in enumerate(zip(tokens, segments, strict=True)):
        found[row, : len(numbers)] = numbers
        mask[row, : len(numbers)] = 1
        parts[row, : len(marks)] = marks
    return torch.from_numpy(found), torch.from_numpy(mask), torch.from_numpy(parts)


class VaryingCost:
    """BitOPs of training when the multiply-accumulates of an example differ from step to step.

    Args:
        layers_at: Layers, as `layer_macs` gives them, of an example of so many tokens.
        length: Tokens of a step's examples.
        schedule: Bits of each step; None for full precision.
        grad_bits: As for `training_bitops`.
        batch_size: Examples a step.

    Examples:
        >>> layers_at = lambda n: [LayerCost(name="x", kind="Linear", macs=10 * n, quantised=True)]
        >>> VaryingCost(layers_at, lambda step: step + 1, None, 8, 2)(2) == 2 * (10 + 20) * 3072
        True
    """

    def __init__(
        self,
        layers_at: Callable[[int], Sequence[LayerCost]],
        length: Callable[[int], int],
        schedule: Schedule | RoleRuns | None,
        grad_bits: int,
        batch_size: int,
    ) -> None:
        self._layers_at, self._length = layers_at, length
        self._schedule, self._grad_bits, self._batch_size = schedule, grad_bits, batch_size
        self._macs: dict[int, tuple[int, int]] = {}
        self._done = [0]  # BitOPs of the first k steps, in whole numbers
        self._unit = [0, 0]  # BitOPs of one multiply-accumulate a step over those steps: quantized, and not

    def __call__(self, step: int) -> float:
        """BitOPs of the first `step` steps."""
        while len(self._done) <= step:
            self._add(len(self._done))
        return float(self._done[step])

    def _add(self, step: int) -> None:
        unit = [
            int(training_bitops([layer], self._schedule, self._grad_bits, 1, step))
            for layer in (_one(quantised=True), _one(quantised=False))
        ]
        macs = self._macs_at(self._length(step - 1))
        more = sum(count * (now - before) for count, now, before in zip(macs, unit, self._unit, strict=True))
        self._done.append(self._done[-1] + self._batch_size * more)
        self._unit = unit

    def _macs_at(self, length: int) -> tuple[int, int]:
        """Multiply-accumulates of an example of that length: quantized, and not."""
        if length not in self._macs:
            layers = self._layers_at(length)
            quantised = sum(layer.macs for layer in layers if layer.quantised)
            self._macs[length] = quantised, sum(layer.macs for layer in layers) - quantised
        return self._macs[length]


def _one(*, quantised: bool) -> LayerCost:
    return LayerCost(name="", kind="", macs=1, quantised=quantised)
