"""Random choices that stay the same for ever.

Python guarantees that `random.Random(seed).random()` gives the same numbers in every version and on every machine; it
does not for its other methods, nor does numpy for those of its generators. So every choice here is the floor of one
such number times the number of options.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of choices.

    Args:
        seed: A whole number, such as `core.seeding.derive` makes.

    Examples:
        >>> draws = Draws(7)
        >>> draws.integer(1, 6), draws.choice("abc"), draws.flip()
        (2, 'a', False)
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included, each as likely."""
        return low + int(self._random.random() * (high - low + 1))

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, each as likely."""
        return options[int(self._random.random() * len(options))]

    def flip(self, probability: float = 0.5) -> bool:
        """True with that probability."""
        return self._random.random() < probability

    def pair(self, count: int) -> tuple[int, int]:
        """Two different numbers below `count` (≥ 2), in random order."""
        first = self.integer(0, count - 1)
        second = self.integer(0, count - 2)
        return first, second + (second >= first)
