"""The sizes of a weight as a hypernetwork reads them: the nearest entry of a fixed vocabulary, for each of four sizes.

Knyazev et al. (2021): channels are known one by one at 1 and 3, in steps of 8, 16 and 32 up to 8192, and at the number
of classes; heights and widths at odd numbers, 14 and 16. The order of the entries is part of a checkpoint.

Not covered: sizes beyond the largest entry; they read as the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LARGEST = 8192
"""Largest number of channels in the vocabulary."""


@dataclass(frozen=True)
class ShapeVocabulary:
    """Sizes with an embedding of their own.

    Examples:
        >>> sizes = ShapeVocabulary(num_classes=10, max_kernel=11)
        >>> len(sizes.channels), sizes.kernels.tolist()
        (391, [1, 3, 5, 7, 9, 11, 14, 16])
        >>> sizes.index((64, 5, 2, 12)).tolist() == sizes.index((64, 8, 3, 11)).tolist()
        True
    """

    num_classes: int
    """Classes of the data, one of the channel sizes."""
    max_kernel: int
    """Largest kernel that is decoded; from 12 on, odd sizes up to it are known."""

    @cached_property
    def channels(self) -> NDArray[np.int64]:
        """Numbers of channels, ascending."""
        steps = [*range(8, 64, 8), *range(64, 4096, 16), *range(4096, LARGEST + 1, 32)]
        return np.unique([1, 3, self.num_classes, *steps])

    @cached_property
    def kernels(self) -> NDArray[np.int64]:
        """Heights and widths, ascending."""
        return np.unique([*range(1, max(12, self.max_kernel), 2), 14, 16])

    @property
    def absent(self) -> NDArray[np.int64]:
        """Indices of a node that has no weight: one entry after the last."""
        return np.array([len(self.channels)] * 2 + [len(self.kernels)] * 2)

    def index(self, shape: tuple[int, int, int, int]) -> NDArray[np.int64]:
        """Indices of a weight's (out, in, height, width): int array [4], two of channels, two of kernels."""
        channels, kernels = self._channel_table, self._kernel_table
        return np.array(
            [channels[min(n, len(channels) - 1)] for n in shape[:2]]
            + [kernels[min(n, len(kernels) - 1)] for n in shape[2:]]
        )

    @cached_property
    def _channel_table(self) -> NDArray[np.int64]:
        table = _nearest(self.channels)
        # 4 to 7 read as 8, and not as 3 or, if there are so few, as the number of classes.
        table[4:8] = table[8]
        return table

    @cached_property
    def _kernel_table(self) -> NDArray[np.int64]:
        table = _nearest(self.kernels)
        table[2] = table[3]
        return table


def _nearest(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the entry nearest to each number from 0 to the largest entry; the smaller one of two equally near."""
    numbers = np.arange(values[-1] + 1)
    above = np.searchsorted(values, numbers)
    below = np.maximum(above - 1, 0)
    return np.where(values[above] - numbers < np.abs(numbers - values[below]), above, below)
