"""Are *all* arms equivalent? The intersection–union test of a family of equivalences.

The claim "every difference lies within the margin" is shown when each single TOST shows its own at alpha: the union of
the null hypotheses "difference i is at or beyond the margin" is refuted only when all of them are (Berger 1982). So the
p-value of the joint claim is the largest single one, and its error is at most alpha without any correction, however
many arms there are and however they depend on each other. The price is power: one noisy arm is enough to fail.

Not covered: "at least one arm is equivalent", which does need a correction (`holm` on the TOST p-values).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trivet.stats.equivalence import Equivalence, equivalence_of_pairs
from trivet.stats.family import ArmPair
from trivet.stats.power import MIN_PAIRS
from trivet.stats.result import Result
from trivet.stats.values import as_pairs, check_alpha, check_margin
from trivet.stats.wording import p_text, pairs_text, plain_number

__all__ = ["AllEquivalent", "all_equivalent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AllEquivalent(Result):
    """The joint claim that all comparisons of a family are equivalent."""

    equivalent: bool
    """Whether the joint claim is established at alpha."""
    p: float
    """p-value of the joint claim: the largest single one; 1 when a comparison has fewer than 6 pairs."""
    sentence: str
    """The outcome in plain English."""
    failing: tuple[tuple[str, str], ...]
    """Names of the comparisons that are not shown to be equivalent, in the order given."""
    tests: tuple[Equivalence | None, ...]
    """The single tests; `None` below 6 pairs."""
    margin: float
    """Largest difference that does not matter."""
    alpha: float
    """Error rate of the joint claim."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def all_equivalent(pairs: Sequence[ArmPair], margin: float, alpha: float = 0.05, metric: str = "") -> AllEquivalent:
    """Test whether all comparisons of a family lie within one margin.

    Args:
        pairs: The comparisons: each arm with the baseline, or each two arms.
        margin: Largest difference that does not matter, above 0.
        alpha: Error rate of the joint claim.
        metric: Name of the metric.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: There is no comparison, a value is not finite, two arms differ in length, or an argument is out of
            range.

    Examples:
        >>> from trivet.stats import ArmPair
        >>> base = [0.1, 0.2, 0.3, 0.2, 0.1, 0.3]
        >>> near = [0.11, 0.2, 0.29, 0.2, 0.11, 0.3]
        >>> family = [ArmPair(names=("base", name), a=base, b=near) for name in ("one", "two")]
        >>> print(all_equivalent(family, margin=0.05))
        All 2 comparisons are equivalent within ±0.05 (largest TOST p < 0.0001, base and one, n = 6 pairs; \
intersection–union, no correction needed).
    """
    check_alpha(alpha)
    check_margin(margin, zero=False)
    if not pairs:
        raise ValueError("no comparison given; a family needs at least one `ArmPair`.")
    tests: list[Equivalence | None] = []
    for pair in pairs:
        checked = as_pairs(pair.a, pair.b)
        tests.append(equivalence_of_pairs(checked, margin, alpha) if checked.n >= MIN_PAIRS else None)
    found = [1.0 if test is None else test.p for test in tests]
    weakest = max(range(len(pairs)), key=lambda i: found[i])
    failing = tuple(pair.names for pair, test in zip(pairs, tests, strict=True) if test is None or not test.equivalent)
    lost = sum(pair.lost for pair in pairs)
    return AllEquivalent(
        equivalent=not failing, p=found[weakest], failing=failing, tests=tuple(tests), margin=margin, alpha=alpha,
        sentence=_sentence(pairs, tests, weakest, failing, margin, metric, lost),
    )  # fmt: skip


def _sentence(
    pairs: Sequence[ArmPair],
    tests: Sequence[Equivalence | None],
    weakest: int,
    failing: Sequence[tuple[str, str]],
    margin: float,
    metric: str,
    lost: int,
) -> str:
    what, test = " and ".join(pairs[weakest].names), tests[weakest]
    of = f"{what}, n = {pairs_text(len(pairs[weakest].a))}"
    largest = f"{of}: fewer than {MIN_PAIRS}" if test is None else f"largest TOST {p_text(test.p)}, {of}"
    on_metric = f" on {metric}" if metric else ""
    end = f" {lost} further pairs could not be compared: a run diverged or failed." if lost else ""
    if not failing:
        head = f"All {len(pairs)} comparisons are" if len(pairs) > 1 else "The comparison is"
        return (
            f"{head} equivalent{on_metric} within ±{plain_number(margin)} ({largest}; intersection–union, no "
            f"correction needed).{end}"
        )
    names = "; ".join(" and ".join(pair) for pair in failing[:5]) + ("; …" if len(failing) > 5 else "")
    return (
        f"Not shown that all {len(pairs)} comparisons are equivalent{on_metric} within ±{plain_number(margin)}: "
        f"{len(failing)} of them {'is' if len(failing) == 1 else 'are'} not ({names}; {largest}).{end}"
    )
