"""Learning deficits and probing windows: stretches of steps at other bits than the schedule says.

A deficit at the start of training is how the critical learning period is measured (arXiv 2403.02243): R steps at
q_min, then normal training. Exactly `length` steps are changed; one published script changed one more.

Not covered: finding the critical period from the results.
"""

from __future__ import annotations

from dataclasses import dataclass

from trivet.precision.checks import check_bits, plain_ints


@dataclass(frozen=True, kw_only=True, slots=True)
class Deficit:
    """A stretch of steps computed at other bits than the schedule says: a learning deficit, or a probing window.

    Examples:
        >>> Deficit(start=0, length=100, bits=3).covers(99)
        True
    """

    start: int = 0
    """First step of the stretch."""
    length: int
    """Number of steps."""
    bits: int
    """Bits inside the stretch."""

    def __post_init__(self) -> None:
        plain_ints(self, "start", "length", "bits")
        if self.start < 0:
            raise ValueError(f"`start={self.start}` must be ≥ 0; steps count from 0")
        if self.length < 1:
            raise ValueError(f"`length={self.length}` must be ≥ 1; leave the deficit out instead")
        check_bits("bits", self.bits)

    def covers(self, step: int) -> bool:
        """Whether the stretch contains the step.

        Examples:
            >>> Deficit(start=5, length=2, bits=3).covers(7)
            False
        """
        return self.start <= step < self.start + self.length

    def check_within(self, total_steps: int) -> None:
        """Refuse a stretch that goes on after the training has ended.

        Raises:
            ValueError: It ends after `total_steps`.

        Examples:
            >>> Deficit(start=5, length=2, bits=3).check_within(7)
        """
        end = self.start + self.length
        if end > total_steps:
            raise ValueError(
                f"the deficit ends at step {end}, after `total_steps={total_steps}`; shorten it or train longer"
            )
