"""What a finished study of the user's own says about the choice of a schedule.

The arms come as plain rows (this package knows nothing of studies), each compared with one reference arm, the dearest:

    cost      the cheapest arm that is equivalent to the reference, or surely better
    balance   the cheapest arm that is not surely worse and whose mean lies within the margin
    quality   the arm with the best mean

Not covered: making the comparisons; interpolation to arms that were not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

AIMS = ("cost", "balance", "quality")
"""What one can aim at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyArm:
    """One arm of a finished study.

    Examples:
        >>> StudyArm(name="RR", precision={"schedule": "RR"}, bitops=1e9, cost=0.4, gain=0.0, margin=0.01).label
        'undecided'
    """

    name: str
    """Name of the arm."""
    precision: Mapping[str, Any]
    """Its `precision` section."""
    bitops: float
    """BitOPs of one run."""
    cost: float
    """BitOPs as a share of static 8-bit training."""
    gain: float
    """Mean outcome minus that of the reference arm, signed so that more is better; 0 for the reference itself."""
    margin: float
    """Differences below this do not matter."""
    label: str = "undecided"
    """Verdict against the reference: different, equivalent, undecided; reference for the arm itself."""
    pairs: int = 0
    """Seeds compared."""

    @property
    def surely_worse(self) -> bool:
        """Different from the reference, to the bad side."""
        return self.label == "different" and self.gain < 0

    @property
    def as_good(self) -> bool:
        """Equivalent to the reference, surely better, or the reference."""
        return self.label in ("equivalent", "reference") or (self.label == "different" and self.gain > 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """An arm, and why."""

    arm: StudyArm
    """The arm."""
    reason: str
    """Why, in a sentence."""


def choose(aim: str, arms: Sequence[StudyArm], budget: float = 0.0) -> Choice | None:
    """Choose among the arms of a study, or None where no arm qualifies.

    Args:
        aim: One of `AIMS`.
        arms: The arms.
        budget: Most BitOPs as a share of static 8-bit training; 0 for no limit. Arms above it do not qualify.

    Examples:
        >>> full = StudyArm(name="fp32", precision={}, bitops=9.0, cost=16.0, gain=0.0, margin=0.01, label="reference")
        >>> rr = StudyArm(name="RR", precision={"schedule": "RR"}, bitops=1.0, cost=0.4, gain=-0.002, margin=0.01,
        ...               label="equivalent", pairs=8)
        >>> choose("cost", [full, rr]).arm.name
        'RR'
    """
    usable = [arm for arm in arms if not budget or arm.cost <= budget]
    reference = next((arm.name for arm in arms if arm.label == "reference"), "the reference")
    if aim == "cost":
        qualified = [arm for arm in usable if arm.as_good]
        word = "the cheapest arm of your study that is as good as"
    elif aim == "balance":
        qualified = [arm for arm in usable if not arm.surely_worse and arm.gain >= -arm.margin]
        word = "the cheapest arm of your study that is not worse than its margin allows against"
    else:
        qualified = usable
        word = "the arm of your study with the best mean, compared with"
    if not qualified:
        return None
    cheapest = min(qualified, key=lambda arm: arm.bitops)
    best = cheapest if aim != "quality" else max(qualified, key=lambda arm: (arm.gain, -arm.bitops))
    if best.label == "reference":
        return Choice(arm=best, reason=f"{best.name}: no other arm of your study qualifies")
    word_of_gain = "better" if best.gain >= 0 else "worse"
    verdict = f"{best.label}, {abs(best.gain):.4g} {word_of_gain} on average, {best.pairs} pairs"
    return Choice(arm=best, reason=f"{best.name} is {word} {reference} ({verdict})")
