"""Why `trivet.stats.rank_correlation` gives an interval within seeds and none for the arms' means.

    python benchmarks/rank_correlation.py [--studies 300]

Simulated studies: 14 arms whose true means rise with cost over `spread` standard deviations of a run, unevenly;
8 seeds. Coverage of a nominal 95 % interval: the percentile and the basic bootstrap over seeds for the coefficient of
the true means, and the t-interval that trivet gives for the mean coefficient within a seed. Not covered: real runs.
"""

import argparse
import math

import numpy as np

from trivet.stats import estimate

ARMS, SEEDS, RESAMPLES = 14, 8, 400
COST = np.arange(ARMS, dtype=float)


def spearman(table: np.ndarray) -> np.ndarray:
    """Spearman's ρ of cost with each column (no ties)."""
    ranks = table.argsort(axis=0).argsort(axis=0) - (ARMS - 1) / 2
    centered = COST - COST.mean()
    return centered @ ranks / (centered @ centered)


def main() -> None:
    """Print the coverage for several spreads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=300)
    studies = parser.parse_args().studies
    columns = ("spread / SD of a run", "percentile bootstrap", "basic bootstrap", "within seeds, t-interval")
    print("| " + " | ".join(columns) + " |")
    print("|---|---|---|---|")
    for spread in (3.0, 1.0, 0.5):
        rng = np.random.default_rng([11, int(10 * spread)])
        hits = np.zeros(3)
        for _ in range(studies):
            means = np.linspace(0, spread, ARMS) + 0.3 * spread * rng.normal(size=ARMS)
            table = means[:, None] + rng.normal(size=(ARMS, SEEDS))
            truth, found = spearman(means[:, None])[0], spearman(table.mean(axis=1)[:, None])[0]
            weights = rng.multinomial(SEEDS, np.full(SEEDS, 1 / SEEDS), size=RESAMPLES)
            low, high = np.quantile(spearman(table @ weights.T), [0.025, 0.975])
            within = estimate(spearman(table))
            mean_within = spearman(means[:, None] + rng.normal(size=(ARMS, 4_000))).mean()
            hits += [
                low <= truth <= high,
                2 * found - high <= truth <= 2 * found - low,
                (within.low or -1) <= mean_within <= (within.high or 1),
            ]
        print(f"| {spread:g} | " + " | ".join(f"{100 * hit / studies:.0f} %" for hit in hits) + " |")
    print(f"\n{studies} studies a row; Monte-Carlo error at 95 %: {100 * math.sqrt(0.95 * 0.05 / studies):.1f} points")


if __name__ == "__main__":
    main()
