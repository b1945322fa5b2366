"""Arms whose runs are not pairs: Welch's interval, and an exact permutation test of Welch's t.

Runs on two machines with seeds of their own have no partner. With means m, standard deviations s and sizes n

    t = (m_b − m_a) / √(s_a²/n_a + s_b²/n_b),   df = (v_a + v_b)² / (v_a²/(n_a − 1) + v_b²/(n_b − 1)),   v = s²/n

(Welch 1947). If the arms have the same distribution, every split of all runs into groups of these sizes is equally
likely: p is the share of splits with |t| at least the observed one, counted over all splits up to 200,000 of them,
else over 19,999 random ones and the observed one. Because t is studentized, the test stays valid in large samples when
the arms differ in spread (Janssen 1997). *Different* needs both, p and Welch's interval; *equivalent* is TOST on
Welch's t.

Pair whenever you can: pairing takes the variation between seeds out of the comparison.
Not covered: devices or machines as experimental units (see `devices`), families.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from trivet.stats.compare import Comparison, compare
from trivet.stats.margins import Region, region_of
from trivet.stats.result import Result
from trivet.stats.sentences import Label, Reason
from trivet.stats.values import FloatArray, Values, as_values, check_alpha, check_margin
from trivet.stats.wording import NumberStyle, p_text, percent, plain_number

__all__ = ["MIN_RUNS", "UnpairedVerdict", "decide_unpaired", "permutation_p"]

MIN_RUNS = 4
"""Fewest runs of each arm on which a verdict is given: with 4 and 4 the smallest exact p is 2/70."""

SPLITS_LIMIT = 200_000
"""Largest number of splits that are all counted."""

DRAWS = 19_999
"""Random splits above that."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpairedVerdict(Result):
    """The verdict on two arms whose runs are not pairs."""

    label: Label
    """ "different", "equivalent" or "undecided"."""
    sentence: str
    """The verdict in plain English."""
    reason: Reason
    """When undecided: why; otherwise empty."""
    sure_difference: bool
    """Whether a difference is established (may hold beside "equivalent")."""
    n_a: int
    """Runs of arm a."""
    n_b: int
    """Runs of arm b."""
    p: float | None
    """Permutation p; `None` with fewer than 2 runs in an arm."""
    p_method: str
    """How it was counted."""
    comparison: Comparison | None
    """Means, spreads and Welch's interval; `None` with fewer than 2 runs in an arm."""
    region: Region | None
    """Effect against the margin, with TOST and ROPE; `None` likewise."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def permutation_p(a: Values, b: Values, *, seed: int = 0) -> tuple[float, str]:
    """Two-sided permutation p of Welch's t, and how it was counted.

    Args:
        a: Outcomes of the first arm, at least 2.
        b: Outcomes of the second arm, at least 2.
        seed: Seed of the random splits, used only above 200,000 splits.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, or an arm has fewer than 2 values.

    Examples:
        >>> permutation_p([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.5])
        (0.02857142857142857, 'exact permutation')
    """
    first, second = as_values(a, "a"), as_values(b, "b")
    if min(first.size, second.size) < 2:
        raise ValueError(f"`a` has {first.size} and `b` has {second.size} values; each arm needs at least 2.")
    both = np.concatenate([np.sort(first), np.sort(second)])
    n, size = both.size, second.size
    # centered and scaled: the same for every split, and squares neither overflow nor lose digits
    middle = float(both.mean())
    scale = float(np.abs(both - middle).max())
    if scale <= 8.0 * _EPSILON * float(np.abs(both).max()):
        return 1.0, "all values equal"
    unit = (both - middle) / scale
    observed = np.zeros((1, n))
    observed[0, first.size :] = 1.0
    if math.comb(n, size) <= SPLITS_LIMIT:
        reach = np.concatenate([_welch_t(unit, chunk, size) for chunk in splits(n, size)])
        hits, number, method = _hits(reach, unit, observed, size), reach.size, "exact permutation"
    else:
        drawn = np.random.default_rng([seed, n, size]).permuted(np.repeat(observed, DRAWS, axis=0), axis=1)
        hits = 1 + _hits(_welch_t(unit, drawn, size), unit, observed, size)
        number, method = DRAWS + 1, f"permutation with {DRAWS:,} random splits"
    return hits / number, method


def splits(n: int, size: int) -> list[FloatArray]:
    """All splits of n values into two groups: rows of 0 and 1, 1 for the `size` values of the second, in chunks."""
    chosen = np.fromiter(itertools.chain.from_iterable(itertools.combinations(range(n), size)), dtype=np.int64).reshape(
        -1, size
    )
    chunks: list[FloatArray] = []
    for part in np.array_split(chosen, max(1, len(chosen) // 50_000)):
        mask = np.zeros((len(part), n))
        np.put_along_axis(mask, part, 1.0, axis=1)
        chunks.append(mask)
    return chunks


def _welch_t(unit: FloatArray, masks: FloatArray, size: int) -> FloatArray:
    """|t| of each split; infinite when both groups are constant and differ."""
    n = unit.size
    other = n - size
    total, squares = float(unit.sum()), float((unit**2).sum())
    sums, sums_of_squares = masks @ unit, masks @ (unit**2)
    mean_b, mean_a = sums / size, (total - sums) / other
    var_b = np.maximum(0.0, sums_of_squares / size - mean_b**2) / (size - 1)
    var_a = np.maximum(0.0, (squares - sums_of_squares) / other - mean_a**2) / (other - 1)
    error = np.sqrt(var_a + var_b)
    flat = error <= 64.0 * _EPSILON
    gap = np.abs(mean_b - mean_a)
    return np.where(flat, np.where(gap > 64.0 * _EPSILON, np.inf, 0.0), gap / np.where(flat, 1.0, error))


def _hits(reach: FloatArray, unit: FloatArray, observed: FloatArray, size: int) -> int:
    target = float(_welch_t(unit, observed, size)[0])
    slack = 1e-9 * (1.0 + target) if math.isfinite(target) else 0.0
    return int(np.count_nonzero(reach >= target - slack))


def decide_unpaired(
    a: Values,
    b: Values,
    margin: float = 0.0,
    alpha: float = 0.05,
    names: tuple[str, str] = ("a", "b"),
    metric: str = "",
    *,
    seed: int = 0,
) -> UnpairedVerdict:
    """Decide whether two arms whose runs are not pairs are different, equivalent or undecided.

    Args:
        a: Outcomes of the first arm; fewer than 4 runs in an arm are always undecided.
        b: Outcomes of the second arm.
        margin: Largest difference of means that does not matter; 0 means "none given".
        alpha: Error rate, in (0, 0.5).
        names: Names of the two arms.
        metric: Name of the metric.
        seed: Seed of the random splits, used only above 200,000 splits.

    Raises:
        TypeError: An arm is not a flat sequence of numbers.
        ValueError: A value is not finite, or another argument is out of range.

    Examples:
        >>> cpu, gpu = [0.90, 0.91, 0.89, 0.92, 0.90], [0.95, 0.97, 0.96, 0.94, 0.95, 0.96]
        >>> verdict = decide_unpaired(cpu, gpu, margin=0.01, names=("CPU", "GPU"))
        >>> verdict.label, round(verdict.p, 5)
        ('different', 0.00216)
    """
    check_alpha(alpha)
    check_margin(margin, zero=True)
    first, second = as_values(a, "a"), as_values(b, "b")
    n_a, n_b = first.size, second.size
    on_metric = f" on {metric}" if metric else ""
    question = f"Undecided whether {names[1]} and {names[0]} differ{on_metric}"
    if min(n_a, n_b) < 2:
        return UnpairedVerdict(
            label="undecided", reason="too few pairs", sure_difference=False, n_a=n_a, n_b=n_b, p=None, p_method="",
            comparison=None, region=None,
            sentence=f"{question}: {n_a} and {n_b} runs; each arm needs at least {MIN_RUNS} for a verdict.",
        )  # fmt: skip
    found = compare(first, second, paired=False, confidence=1.0 - alpha, names=names)
    held = region_of(found.effect, found.standard_error, found.df, margin, alpha)
    p, method = permutation_p(first, second, seed=seed)
    enough = min(n_a, n_b) >= MIN_RUNS
    sure = enough and p <= alpha and held.excludes_zero
    label: Label = "undecided"
    if enough and held.within_margin and (not sure or held.label == "equivalent"):
        label = "equivalent"
    elif sure:
        label = "different"
    reason: Reason = ""
    if label == "undecided":
        reason = _reason(held, p, alpha, enough=enough)
    return UnpairedVerdict(
        label=label, reason=reason, sure_difference=sure, n_a=n_a, n_b=n_b, p=p, p_method=method, comparison=found,
        region=held, sentence=_sentence(label, reason, found, held, p, method, question, on_metric),
    )  # fmt: skip


def _reason(held: Region, p: float, alpha: float, *, enough: bool) -> Reason:
    if not enough:
        return "too few pairs"
    if held.excludes_zero != (p <= alpha):
        return "tests disagree"
    return "interval too wide" if held.margin > 0.0 else "no margin"


def _sentence(
    label: Label,
    reason: Reason,
    c: Comparison,
    held: Region,
    p: float,
    method: str,
    question: str,
    on_metric: str,
) -> str:
    write = NumberStyle((c.high - c.low) / 2, c.effect)
    effect = (
        f"difference of means {c.names[1]} − {c.names[0]} = {write(c.effect)} ({percent(c.confidence)} {c.method} "
        f"{write(c.low)} to {write(c.high)}, n = {c.n_a} and {c.n_b} runs, {method} {p_text(p)})"
    )
    margin, tost = plain_number(held.margin), p_text(held.p_equivalent)
    if label == "equivalent":
        inner = f"{percent(1 - 2 * held.alpha)} interval {write(held.inner_low)} to {write(held.inner_high)}"
        both = f"{c.names[1]} and {c.names[0]} are equivalent{on_metric}"
        return f"{both}: {effect}; the {inner} lies inside ±{margin} (TOST {tost})."
    if label == "different":
        way = "higher" if c.effect > 0 else "lower"
        return f"{c.names[1]} is {way} than {c.names[0]}{on_metric}: {effect}."
    why = {
        "too few pairs": f"No verdict is given below {MIN_RUNS} runs in each arm.",
        "tests disagree": "Welch's interval and the permutation test disagree.",
        "no margin": "Without a margin, equivalence cannot be shown.",
        "interval too wide": f"Equivalence within ±{margin} is not shown (TOST {tost}).",
    }
    return f"{question}: {effect}. {why[reason]}"
