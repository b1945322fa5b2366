"""Which settings of this machine move a training, and how far: the table of docs/doctor.md.

Usage: python benchmarks/doctor_table.py [--quick] [--write docs/doctor.md]
One training of a small network under each setting, each in a process of its own; what `trivet doctor --all` prints.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from blocks import show_or_put

from trivet.cli.moving import STEPS, Row, absent, broken_controls, columns, measured, readings
from trivet.training.fingerprint import available_cores, fingerprint


def machine() -> str:
    """What was measured on, in words."""
    cpu = fingerprint()["cpu"]
    best = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in cpu["flags"]), "no AVX2")
    return f"{available_cores()} processors of an {cpu['model']} ({best}), torch {metadata.version('torch')}"


def document(rows: Sequence[Row], steps: int) -> str:
    """The table and what it says, as Markdown."""
    titles, cells = columns(rows)
    ends = [row.accuracy for row in rows if row.setting.zero and row.accuracy is not None]
    text = [
        f"{datetime.date.today()}, {machine()}, Python {platform.python_version()}; {steps} steps, n = 1 "
        f"training a row; test accuracy of the baseline {ends[0]:.1%} of 2,000 images.",
        "",
        f"| {' | '.join(titles)} |",
        f"|{'---|' * len(titles)}",
        *(f"| {' | '.join(_marked(line, row))} |" for line, row in zip(cells, _compared(rows), strict=True)),
        "",
        *(f"- {line}." for line in (*readings(rows), *absent(rows))),
    ]
    return "\n".join(text)


def _compared(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.moved is not None]


def _marked(cells: Sequence[str], row: Row) -> list[str]:
    """The line with its name in italics when it must be zero."""
    return [f"*{cells[0]}*" if row.setting.zero else cells[0], *cells[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a third of the settings, 30 steps")
    parser.add_argument("--write", type=Path, help="document whose generated part is replaced")
    options = parser.parse_args()
    group = "quick" if options.quick else "all"
    rows = measured(group)
    broken = broken_controls(rows)
    if broken:
        sys.exit("\n".join(broken))
    show_or_put(document(rows, STEPS[group]), options.write, "settings")


if __name__ == "__main__":
    main()
