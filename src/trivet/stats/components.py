"""Where the variance comes from: seeds, environments, their interaction, repeats of the same run.

Every seed is run in every environment, r times each:

    y_ser = μ + S_s + E_e + (SE)_se + ε_ser

with n seeds and k environments taken at random from many. The mean squares of the two-way table have expectations

    E[MS_S] = σ² + r σ_SE² + r k σ_S²,   E[MS_E] = σ² + r σ_SE² + r n σ_E²,   E[MS_SE] = σ² + r σ_SE²,   E[MS_ε] = σ²

which give the components (ANOVA = REML as long as none is negative; a negative one is reported as 0). With r = 1 the
interaction and the repeats cannot be told apart and are one component. Where repeats are bit-equal, σ² is exactly 0 and
the interaction *is* what an environment does to a run by chance.

Intervals: generalized confidence intervals (Weerahandi 1993). In each of 20,000 draws every E[MS] is replaced by
df · MS / χ²_df, and percentiles of any function of them are read off; for σ² and, with r = 1, for the pairing
correlation this is the exact χ² and F interval. Two environments leave one degree of freedom: the interval of σ_E² is
then as wide as it should be.

Not covered: more than two factors, fixed environments of interest (compare those with `decide`), covariates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trivet.stats.result import Result
from trivet.stats.values import FloatArray, Values, as_values, check_alpha
from trivet.stats.wording import percent

__all__ = ["Component", "VarianceComponents", "variance_components"]

DRAWS = 20_000

Outcomes = Mapping[str, Mapping[int, float | Sequence[float]]]
"""Environment → seed → outcome, or outcomes of repeats."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Component(Result):
    """One part of the variance."""

    name: str
    """ "seed", "environment", "seed × environment" or "repeat"; with one run a cell the last two are one."""
    variance: float
    """Estimate, in the metric's unit squared; 0 when the unbiased one is negative."""
    low: float
    """Lower end of the variance's interval."""
    high: float
    """Upper end of the variance's interval."""
    share: float
    """Share of the total variance of one run; 0 when nothing varies."""
    share_low: float
    """Lower end of the share's interval."""
    share_high: float
    """Upper end of the share's interval."""
    df: int
    """Degrees of freedom of its mean square."""
    p: float | None
    """F-test of "this component is 0"; `None` for the last one, which has none."""

    @property
    def sd(self) -> float:
        """Standard deviation, in the metric's unit."""
        return math.sqrt(self.variance)

    def __str__(self) -> str:
        """Write SD with its interval and the share on one line."""
        return (
            f"{self.name}: SD {self.sd:.3g} ({math.sqrt(self.low):.3g} to {math.sqrt(self.high):.3g}, {self.df} df), "
            f"{100 * self.share:.0f} % of the variance ({100 * self.share_low:.0f} to {100 * self.share_high:.0f} %)"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class VarianceComponents(Result):
    """The variance of one run, split."""

    components: tuple[Component, ...]
    """Seed, environment, seed × environment, repeat (the last two are one with one run a cell)."""
    mean: float
    """Mean of all outcomes."""
    seeds: int
    """Seeds used."""
    environments: int
    """Environments."""
    repeats: int
    """Runs of each seed in each environment."""
    dropped: tuple[int, ...]
    """Seeds left out because an environment lacks them."""
    pairing: float
    """Correlation over seeds of two environments, σ_S² / (σ_S² + σ_SE² + σ²): how far pairing by seed carries."""
    pairing_low: float
    """Lower end of its interval."""
    pairing_high: float
    """Upper end of its interval."""
    reliability: float
    """Share of the seed in the whole variance, environments included: ICC for absolute agreement."""
    reliability_low: float
    """Lower end of its interval."""
    reliability_high: float
    """Upper end of its interval."""
    confidence: float
    """Coverage of all intervals, such as 0.95."""
    method: str
    """How the intervals were made, in words."""

    def __getitem__(self, name: str) -> Component:
        """The component of a name.

        Raises:
            KeyError: There is none of that name.
        """
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(f"{name!r}; the components are {', '.join(c.name for c in self.components)}")

    def __str__(self) -> str:
        """Write one line a component, and the design."""
        repeats = f" × {self.repeats} repeats" if self.repeats > 1 else ""
        lost = f"; {len(self.dropped)} seeds left out because an environment lacks them" if self.dropped else ""
        head = (
            f"{self.seeds} seeds × {self.environments} environments{repeats}{lost} "
            f"({percent(self.confidence)} {self.method}):"
        )
        pairing = (
            f"pairing by seed carries: correlation of two environments {self.pairing:.2f} "
            f"({self.pairing_low:.2f} to {self.pairing_high:.2f})"
        )
        return "\n  ".join([head, *map(str, self.components), pairing])


def variance_components(outcomes: Outcomes, *, confidence: float = 0.95, seed: int = 0) -> VarianceComponents:
    """Split the variance of a crossed seeds × environments design.

    Args:
        outcomes: Environment → seed → outcome (or a list of outcomes of repeated runs, equally many everywhere). Seeds
            that an environment lacks are left out everywhere and named in the result.
        confidence: Coverage of the intervals, in (0.5, 1).
        seed: Seed of the draws behind the intervals.

    Raises:
        TypeError: Not a mapping of mappings, or an outcome is not a number.
        ValueError: Fewer than 2 environments or 2 common seeds, unequal numbers of repeats, a value that is not finite,
            or an option out of range.

    Examples:
        >>> cpu = {0: 0.90, 1: 0.94, 2: 0.91, 3: 0.95, 4: 0.92, 5: 0.93}
        >>> gpu = {0: 0.91, 1: 0.94, 2: 0.91, 3: 0.96, 4: 0.92, 5: 0.93}
        >>> split = variance_components({"cpu": cpu, "gpu": gpu})
        >>> round(split["seed"].share, 2), round(split.pairing, 2)
        (0.95, 0.96)
    """
    check_alpha(1.0 - confidence, "1 - confidence")
    table, dropped = _table(outcomes)
    k, n, r = table.shape
    middle = float(np.median(table))
    scale = float(np.abs(table - middle).max())
    if scale <= 8.0 * _EPSILON * float(np.abs(table).max()):
        scale = 0.0
    squares, dfs = _mean_squares((table - middle) / (scale or 1.0) * (scale > 0.0))
    found = _solve(squares[:, None], k, n, r)[:, 0]
    drawn = _solve(_pivots(squares, dfs, seed), k, n, r)
    names = ["seed", "environment", "seed × environment"] + ["repeat"] * (r > 1)
    if r == 1:
        names[2] = "seed × environment and repeat"
    values, draws = np.maximum(0.0, found), np.maximum(0.0, drawn)
    shares, share_draws = _ratio(values, values.sum()), _ratio(draws, draws.sum(axis=0))
    rest = np.delete(values, 1).sum()
    pairing = _ratio(values[:1], rest)[0]
    # the exact F interval needs the untruncated ratio
    raw = drawn[0] / np.where(_noise(drawn) + drawn[0] > 0, _noise(drawn) + drawn[0], np.inf)
    ends = [_ends(row, confidence) for row in (*draws, *share_draws, np.clip(raw, 0.0, 1.0))]
    p_values = _p_values(squares, dfs)
    components = tuple(
        Component(
            name=name,
            variance=float(values[i]) * scale**2,
            low=ends[i][0] * scale**2,
            high=ends[i][1] * scale**2,
            share=float(shares[i]),
            share_low=ends[len(names) + i][0],
            share_high=ends[len(names) + i][1],
            df=dfs[i],
            p=p_values[i],
        )
        for i, name in enumerate(names)
    )
    return VarianceComponents(
        components=components,
        mean=float(table.mean()),
        seeds=n,
        environments=k,
        repeats=r,
        dropped=dropped,
        pairing=float(pairing),
        pairing_low=ends[-1][0],
        pairing_high=ends[-1][1],
        reliability=float(shares[0]),
        reliability_low=ends[len(names)][0],
        reliability_high=ends[len(names)][1],
        confidence=confidence,
        method="generalized intervals",
    )


def _table(outcomes: Outcomes) -> tuple[FloatArray, tuple[int, ...]]:
    """Outcomes `[environments, seeds, repeats]` of the seeds that all environments have, and the seeds left out."""
    if not isinstance(outcomes, Mapping) or not all(isinstance(row, Mapping) for row in outcomes.values()):
        raise TypeError(f"`outcomes` is a {type(outcomes).__name__}; give environment → seed → outcome.")
    if len(outcomes) < 2:
        raise ValueError(f"{len(outcomes)} environment(s) given; variance between them needs at least 2.")
    everyone = list(dict.fromkeys(seed for row in outcomes.values() for seed in row))
    common = [seed for seed in everyone if all(seed in row for row in outcomes.values())]
    if len(common) < 2:
        raise ValueError(
            f"{len(common)} seed(s) are in every environment; at least 2 are needed. Run the missing seeds, or pair "
            "what is there with `decide`."
        )
    cells: list[list[FloatArray]] = [
        [_cell(row[seed], f"{environment}, seed {seed}") for seed in common] for environment, row in outcomes.items()
    ]
    sizes = {cell.size for row in cells for cell in row}
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(
            f"the cells hold {', '.join(map(str, sorted(sizes)))} runs; every seed needs equally many in every "
            "environment. Leave the surplus out, or run what is missing."
        )
    return np.array(cells), tuple(seed for seed in everyone if seed not in common)


def _cell(content: float | Values, name: str) -> FloatArray:
    return as_values([content] if isinstance(content, (int, float, np.number)) else content, name)


def _mean_squares(table: FloatArray) -> tuple[FloatArray, list[int]]:
    """Mean squares of seed, environment, interaction and (with repeats) repeat, and their degrees of freedom."""
    k, n, r = table.shape
    cells, grand = table.mean(axis=2), float(table.mean())
    by_seed, by_environment = cells.mean(axis=0), cells.mean(axis=1)
    inner = cells - by_seed[None, :] - by_environment[:, None] + grand
    sums = [
        r * k * float(((by_seed - grand) ** 2).sum()),
        r * n * float(((by_environment - grand) ** 2).sum()),
        r * float((inner**2).sum()),
    ]
    dfs = [n - 1, k - 1, (n - 1) * (k - 1)]
    if r > 1:
        sums.append(float(((table - cells[:, :, None]) ** 2).sum()))
        dfs.append(n * k * (r - 1))
    tiny = (64.0 * _EPSILON) ** 2 * table.size
    return np.array([0.0 if s <= tiny else s / df for s, df in zip(sums, dfs, strict=True)]), dfs


def _solve(squares: FloatArray, k: int, n: int, r: int) -> FloatArray:
    """Components from (expected) mean squares, `[3 or 4, draws]`; may be negative."""
    seed, environment, inner = squares[:3]
    noise = squares[3] if len(squares) > 3 else np.zeros_like(inner)
    rows = [(seed - inner) / (r * k), (environment - inner) / (r * n), (inner - noise) / r]
    return np.array(rows + ([noise] if len(squares) > 3 else []))


def _noise(components: FloatArray) -> FloatArray:
    """Everything but seed and environment."""
    return components[2:].sum(axis=0)


def _pivots(squares: FloatArray, dfs: Sequence[int], seed: int) -> FloatArray:
    generator = np.random.default_rng(seed)
    return np.array([ms * df / generator.chisquare(df, DRAWS) for ms, df in zip(squares, dfs, strict=True)])


def _ratio(part: FloatArray, whole: FloatArray | float) -> FloatArray:
    whole = np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0.0)


def _ends(draws: FloatArray, confidence: float) -> tuple[float, float]:
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return float(low), float(high)


def _p_values(squares: FloatArray, dfs: Sequence[int]) -> list[float | None]:
    """F-tests against the next mean square in the hierarchy."""
    from scipy import special

    below = [2, 2, 3] if len(squares) > 3 else [2, 2]
    found: list[float | None] = []
    for i, j in enumerate(below):
        if squares[j] > 0.0:
            found.append(float(special.fdtrc(dfs[i], dfs[j], squares[i] / squares[j])))
        else:
            found.append(0.0 if squares[i] > 0.0 else 1.0)
    return [*found, None]
