"""When a study may look at its data, and how much error each look may spend.

Looking again after every few pairs and stopping when the result pleases raises the error far above 5 %. A plan made
beforehand gives the whole error alpha out bit by bit: up to the share t of all pairs at most f(t) ≤ alpha is spent
(Lan and DeMets 1983), with

    Pocock-like:           f(t) = alpha · ln(1 + (e − 1) · t)
    O'Brien–Fleming-like:  f(t) = 2 − 2 · Φ(z / √t),   z = Φ⁻¹(1 − alpha/2)

The first spends evenly, the second keeps almost everything for the end. The exact tests used here cannot give
p-values below 2/2ⁿ with n pairs, so at 6 to 10 pairs an O'Brien–Fleming-like plan can hardly ever stop; that is why
the Pocock-like one is the default. In a family of m comparisons "different" is given alpha/m each (Bonferroni);
"equivalent" is given the whole alpha (each claim of "all are equivalent" must succeed by itself).

Not covered: looks whose number or times depend on the data, spending functions for harm or futility.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trivet.stats.power import MIN_PAIRS
from trivet.stats.result import Result
from trivet.stats.values import check_alpha

__all__ = ["LookPlan", "Spending", "plan_looks"]

Spending = Literal["pocock", "obrien-fleming"]

SPENDING: tuple[Spending, ...] = ("pocock", "obrien-fleming")

SMALLEST_STEP = 3
"""Fewest pairs between two looks of an automatic plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LookPlan(Result):
    """The looks of one study, fixed before its first run.

    Examples:
        >>> plan = LookPlan(pairs=(8, 12, 16))
        >>> plan.max_pairs, [round(x, 4) for x in plan.spent()]
        (16, [0.031, 0.0414, 0.05])
    """

    pairs: tuple[int, ...]
    """Number of pairs at each look, increasing, each at least 6; the last is the most that are ever run."""
    alpha: float = 0.05
    """Error of each of the two decisions over all looks."""
    spending: Spending = "pocock"
    """How the error is given out."""
    family_size: int = 1
    """Comparisons that are looked at together."""

    def __post_init__(self) -> None:
        """Refuse what is no plan."""
        check_alpha(self.alpha)
        if self.spending not in SPENDING:
            raise ValueError(f"`spending={self.spending!r}` must be one of {', '.join(SPENDING)}; use 'pocock'.")
        if self.family_size < 1:
            raise ValueError(f"`family_size={self.family_size}` must be at least 1; give the number of comparisons.")
        if not self.pairs or self.pairs[0] < MIN_PAIRS:
            raise ValueError(
                f"`pairs={self.pairs}` must begin with at least {MIN_PAIRS} pairs; with fewer the exact test cannot "
                "reach 5 %, so a look could decide nothing."
            )
        if any(later <= earlier for earlier, later in zip(self.pairs, self.pairs[1:], strict=False)):
            raise ValueError(f"`pairs={self.pairs}` must increase; give the number of pairs at each look.")

    @property
    def max_pairs(self) -> int:
        """The most pairs that are ever run."""
        return self.pairs[-1]

    def spent(self, *, family: bool = False) -> tuple[float, ...]:
        """Error that may have been spent up to and including each look; the last is all of it.

        Args:
            family: Of one "different" in the family (alpha / family_size in all) rather than of one "equivalent".
        """
        alpha = self.alpha / self.family_size if family else self.alpha
        return tuple(_spent(n / self.max_pairs, alpha, self.spending) for n in self.pairs)

    def __str__(self) -> str:
        """Say when is looked and how much error is spent by then."""
        spent = ", ".join(f"{100 * share:.2g} %" for share in self.spent())
        when = ", ".join(map(str, self.pairs))
        return f"looks at {when} pairs; error spent by then at most {spent} ({self.spending})"


def plan_looks(
    max_pairs: int,
    looks: int | Sequence[int] = 4,
    *,
    alpha: float = 0.05,
    spending: Spending = "pocock",
    family_size: int = 1,
) -> LookPlan:
    """Plan when to look, before the first run.

    Args:
        max_pairs: The most pairs (seeds) that may be run, at least 6.
        looks: How many looks, or the number of pairs at each. A number places the first look where the exact test
            can first reach "different", the last at `max_pairs` and the others evenly between them, at least 3 pairs
            apart: closer looks cost more power than they save runs, so there may be fewer.
        alpha: Error of each of the two decisions over all looks, in (0, 0.5).
        spending: "pocock" (evenly) or "obrien-fleming" (almost all at the end).
        family_size: Number of comparisons that are looked at together.

    Raises:
        ValueError: An argument is out of range, or the looks do not increase up to `max_pairs`.

    Examples:
        >>> print(plan_looks(16))
        looks at 7, 10, 13, 16 pairs; error spent by then at most 2.8 %, 3.6 %, 4.4 %, 5 % (pocock)
        >>> plan_looks(24, looks=(8, 16, 24), family_size=3).spent(family=True)[-1] == 0.05 / 3
        True
    """
    if max_pairs < MIN_PAIRS:
        raise ValueError(
            f"`max_pairs={max_pairs}` must be at least {MIN_PAIRS}; with fewer pairs no verdict is possible. "
            "Plan more seeds."
        )
    if isinstance(looks, int):
        if looks < 1:
            raise ValueError(f"`looks={looks}` must be at least 1; 1 is a study without early looks.")
        probe = LookPlan(pairs=(max_pairs,), alpha=alpha, spending=spending, family_size=family_size)
        pairs = _evenly(probe, looks)
    else:
        pairs = tuple(looks)
        if not pairs or pairs[-1] != max_pairs:
            raise ValueError(f"`looks={pairs}` must end at `max_pairs={max_pairs}`; add the last look.")
    return LookPlan(pairs=pairs, alpha=alpha, spending=spending, family_size=family_size)


def _evenly(probe: LookPlan, looks: int) -> tuple[int, ...]:
    most = probe.max_pairs
    first = next((n for n in range(MIN_PAIRS, most) if _can_decide(n, probe)), most)
    looks = min(looks, (most - first) // SMALLEST_STEP + 1)
    if looks == 1:
        return (most,)
    step = (most - first) / (looks - 1)
    return tuple(math.floor(first + step * k + 0.5) for k in range(looks))


def _can_decide(n: int, probe: LookPlan) -> bool:
    alpha = probe.alpha / probe.family_size
    return 2.0 ** (1 - n) <= _spent(n / probe.max_pairs, alpha, probe.spending)


@functools.lru_cache(maxsize=1024)
def _spent(share: float, alpha: float, spending: str) -> float:
    if share >= 1.0:
        return alpha
    if spending == "pocock":
        return alpha * math.log1p((math.e - 1.0) * share)
    from scipy import special

    return float(2.0 * special.ndtr(special.ndtri(alpha / 2.0) / math.sqrt(share)))


def read_plan(content: Any) -> LookPlan:
    """The plan of a mapping that `LookPlan.to_dict` made.

    Raises:
        ValueError: It is no such mapping.

    Examples:
        >>> read_plan(LookPlan(pairs=(8, 16)).to_dict()) == LookPlan(pairs=(8, 16))
        True
    """
    try:
        return LookPlan(
            pairs=tuple(int(n) for n in content["pairs"]),
            alpha=float(content["alpha"]),
            spending=content["spending"],
            family_size=int(content["family_size"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a plan of looks ({error}); allowed: what `LookPlan.to_dict` gives.") from None
