"""How often "larger than rounding can explain" and "no larger" are wrong, and how often they are found. Simulated.

    python benchmarks/null_arm.py [--studies 2000] [--write docs/null-arm.md]

Baseline, null arm and arm all have seeds in common and each its own rounding, of one distribution; the arm has a shift
on top, as a multiple of what rounding explains (2 RMS of the differences of null arm and baseline).
"""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from blocks import show_or_put

from trivet.stats import against_null, null_arm

Draw = Callable[[np.random.Generator, int], np.ndarray]
ROUNDINGS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "t, 3 degrees of freedom": lambda rng, n: rng.standard_t(3, n) / math.sqrt(3),
    "in steps, many zeros": lambda rng, n: np.round(0.8 * rng.normal(size=n)) / 0.8544,
    "large in 1 seed of 8": lambda rng, n: (
        np.where(rng.random(n) < 1 / 8, 1.0, 0.01) * rng.normal(size=n) / math.sqrt(0.1250875)
    ),
}
"""Distributions of rounding, each with SD 1."""
RATIOS = (0.0, 1.0, 3.0)


def rates(draw: Draw, n: int, ratio: float, studies: int) -> tuple[float, float]:
    """Share of studies that end "larger" and "no larger"."""
    rng, labels = np.random.default_rng(n), []
    for _ in range(studies):
        seeds = 10.0 * rng.normal(size=n)
        base, null, arm = (seeds + draw(rng, n) for _ in range(3))
        labels.append(against_null(base, arm + ratio * 2.0 * math.sqrt(2.0), null_arm(base, null)).label)
    return labels.count("larger") / studies, labels.count("no larger") / studies


def table(studies: int) -> str:
    """All rates as Markdown."""
    cells = " | ".join(f"true ratio {ratio:g}" for ratio in RATIOS)
    lines = [f"| rounding | pairs | {cells} |", "|---|---|" + "---|" * len(RATIOS)]
    for name, draw in ROUNDINGS.items():
        for n in (6, 8, 16):
            found = [rates(draw, n, ratio, studies) for ratio in RATIOS]
            shown = " | ".join(f"{100 * larger:.1f} % / {100 * smaller:.1f} %" for larger, smaller in found)
            lines.append(f"| {name} | {n} | {shown} |")
    lines += ["", f'Each cell: share that ends "larger" / "no larger"; {studies:,} simulated studies a cell.']
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print, or write into a document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--write", type=Path, help="document whose marked part is replaced")
    options = parser.parse_args(arguments)
    show_or_put(table(options.studies), options.write, "benchmarks/null_arm.py")


if __name__ == "__main__":
    main()
