"""How often the interval of `trivet.stats.rank_agreement` covers the true τ.

    python benchmarks/rank_agreement.py [--samples 300]

Items drawn from a pair of normal variables with correlation ρ, for which τ = 2 / π · arcsin ρ. "difference": interval
of `agreement_difference` between two rankers with the same ρ and independent errors, whose true difference is 0.
Not covered: ties, other distributions.
"""

import argparse
import math

import numpy as np

from trivet.stats import agreement_difference, rank_agreement


def main() -> None:
    """Print the coverage for several sizes and correlations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=300)
    samples = parser.parse_args().samples
    print("| items | τ | interval of τ covers | mean width | difference covers |")
    print("|---|---|---|---|---|")
    for n in (20, 50, 100):
        for rho in (0.0, 0.4, 0.8, 0.95):
            rng = np.random.default_rng([n, int(100 * rho)])
            tau, hits, width = 2 / math.pi * math.asin(rho), np.zeros(2), 0.0
            for _ in range(samples):
                truth = rng.normal(size=n)
                first, second = rho * truth + math.sqrt(1 - rho**2) * rng.normal(size=(2, n))
                one = rank_agreement(first, truth, resamples=800)
                other = agreement_difference(first, second, truth, resamples=800)
                hits += [one.low <= tau <= one.high, other.low <= 0 <= other.high]
                width += (one.high - one.low) / samples
            covered = [f"{100 * hit / samples:.0f} %" for hit in hits]
            print(f"| {n} | {tau:.2f} | {covered[0]} | {width:.2f} | {covered[1]} |")
    print(f"\n{samples} samples a row; Monte-Carlo error at 95 %: {100 * math.sqrt(0.95 * 0.05 / samples):.1f} points")


if __name__ == "__main__":
    main()
