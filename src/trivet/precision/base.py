"""What every precision schedule can do, however it is made: a pure function of the optimizer step.

A schedule answers `bits(step)` from the step alone, so resuming needs nothing else, every rank of a distributed
training computes the same bits, and gradient accumulation cannot disturb it (a step is an optimizer step). Everything
else, costs and pictures included, follows from the stretches of equal bits that `runs()` lists.

Not covered: reacting to the loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from trivet.precision.bitops import bitops_per_mac
from trivet.precision.catalog import GROUPS
from trivet.precision.checks import check_bits, check_whole

FORMAT = 1
"""Version of the dictionary form of schedules."""


class Schedule(ABC):
    """Bits of the forward pass for every optimizer step of a training run; immutable and hashable."""

    __slots__ = ()

    if TYPE_CHECKING:  # fields in some schedules, computed in others

        @property
        def total_steps(self) -> int:
            """Optimizer steps T of the whole training."""
            ...

        @property
        def q_min(self) -> int:
            """Fewest bits."""
            ...

        @property
        def q_max(self) -> int:
            """Most bits."""
            ...

    @property
    @abstractmethod
    def name(self) -> str:
        """A short name."""

    @abstractmethod
    def runs(self) -> list[tuple[int, int, int]]:
        """The whole schedule as stretches of equal bits.

        Returns:
            Triples (first step, number of steps, bits), in order and without gaps; neighbors differ in their bits.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The schedule as plain values for JSON or YAML, with the version of the format."""

    @abstractmethod
    def _bits(self, step: int) -> int:
        """Bits at a step that lies in the training."""

    def bits(self, step: int) -> int:
        """Bits of the forward pass at a step.

        Args:
            step: Optimizer step, 0 ≤ step < total_steps.

        Raises:
            ValueError: The step lies outside the training; there is no silent clamping.
            TypeError: The step is not a whole number.

        Examples:
            >>> from trivet.precision import PrecisionSchedule
            >>> PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=2, total_steps=100).bits(49)
            8
        """
        step = check_whole("step", step)
        if not 0 <= step < self.total_steps:
            raise ValueError(
                f"`step={step}` must lie in [0, {self.total_steps - 1}]; the schedule was made for "
                f"total_steps={self.total_steps}"
            )
        return self._bits(step)

    def bits_array(self) -> np.ndarray:
        """Bits of every step.

        Returns:
            Whole numbers, shape [total_steps].

        Examples:
            >>> from trivet.precision import PrecisionSchedule
            >>> PrecisionSchedule.named("CR", q_min=2, q_max=4, num_cycles=2, total_steps=8).bits_array().tolist()
            [2, 2, 3, 4, 2, 2, 3, 4]
        """
        stretches = self.runs()
        return np.repeat(np.array([bits for _, _, bits in stretches]), [length for _, length, _ in stretches])

    @property
    def mean_bits(self) -> float:
        """Mean bits over the training.

        Examples:
            >>> from trivet.precision import PrecisionSchedule
            >>> PrecisionSchedule.static(8, total_steps=10).mean_bits
            8.0
        """
        return sum(length * bits for _, length, bits in self.runs()) / self.total_steps

    @property
    def group(self) -> str:
        """small, medium or large, by the compute the schedule uses.

        The mean height (mean bits − fewest) / (most − fewest) in thirds; of the ten published schedules RR and RTH
        are small, ER and ETH large, the other six medium. A static schedule is large.

        Examples:
            >>> from trivet.precision import PrecisionSchedule
            >>> PrecisionSchedule.named("ETH", q_min=3, q_max=8, num_cycles=8, total_steps=800).group
            'large'
        """
        levels = [bits for _, _, bits in self.runs()]
        low, high = min(levels), max(levels)
        height = (self.mean_bits - low) / (high - low) if high > low else 1.0
        return GROUPS[min(int(3 * height), 2)]

    def share_at(self, bits: int, *, first: float = 1.0) -> float:
        """Share of the steps that run at `bits` bits or fewer, in the first part of the training.

        Low precision early in training can do lasting damage (arXiv 2403.02243), so this is worth a look before a
        schedule is used. The first part has round(first · T) steps, at least one.

        Args:
            bits: The level asked about, such as the fewest bits of the schedule.
            first: Share of the training that is looked at, in (0, 1].

        Raises:
            ValueError: `first` or `bits` lies outside its range.

        Examples:
            >>> from trivet.precision import PrecisionSchedule
            >>> s = PrecisionSchedule.named("RR", q_min=3, q_max=8, num_cycles=8, total_steps=64_000)
            >>> round(s.share_at(3), 3), round(s.share_at(3, first=0.10), 3)
            (0.526, 0.658)
        """
        check_bits("bits", bits)
        if not 0 < first <= 1:
            raise ValueError(f"`first={first}` must lie in (0, 1]; 0.1 is the first tenth of the training")
        steps = max(1, round(first * self.total_steps))
        low = sum(max(0, min(length, steps - start)) for start, length, here in self.runs() if here <= bits)
        return low / steps

    def relative_cost(self, grad_bits: int = 8, reference: int = 32, reference_grad_bits: int = 0) -> float:
        """Cost in BitOPs, relative to training all the time at `reference` bits.

        mean over steps of (b_f² + 2 b_f b_g) / (r_f² + 2 r_f r_g): one forward product b_f × b_f and two backward
        products b_f × b_g for each multiply-accumulate. BitOPs, not seconds.

        Args:
            grad_bits: Bits b_g of the gradients.
            reference: Bits r_f of the reference.
            reference_grad_bits: Bits r_g of its gradients; 0 stands for `reference`.

        Examples:
            >>> from trivet.precision import PrecisionSchedule
            >>> s = PrecisionSchedule.named("RR", q_min=3, q_max=8, num_cycles=8, total_steps=64_000)
            >>> round(s.relative_cost(), 5), round(s.relative_cost(reference=8), 4)
            (0.02494, 0.399)
        """
        grad_bits, reference = check_bits("grad_bits", grad_bits), check_bits("reference", reference)
        reference_grad_bits = check_bits("reference_grad_bits", reference_grad_bits, low=0)
        own = sum(length * bitops_per_mac(bits, grad_bits) for _, length, bits in self.runs())
        return own / (self.total_steps * bitops_per_mac(reference, reference_grad_bits or reference))
