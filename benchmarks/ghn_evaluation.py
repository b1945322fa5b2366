"""What a hypernetwork's predictions are worth: tables from `trivet ghn eval --json`, as Markdown.

    trivet ghn eval fashion-small --networks 100 --images 2000 --split test --split wide … --json > evaluation.json
    trivet ghn eval fashion-small --networks 16 --images 2000 --twins 16 --json > twins.json
    python benchmarks/ghn_evaluation.py evaluation.json twins.json [--write DOCUMENT.md --part NAME]

Not covered: computing anything anew.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from blocks import show_or_put

KINDS = (("all", "all"), ("bn", "with batch norm"), ("bn_free", "without"))


def cell(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return "–"
    error = row.get(f"{name}_se", math.nan)
    return f"{100 * row[name]:.1f}" + (
        "" if math.isnan(error) else f" ± {100 * error:.1f} (n = {row[f'{name}_n']:.0f})"
    )


def splits_table(rows: list[dict[str, Any]]) -> str:
    """One row a split: means ± standard errors over networks, and the mean relative to the first split's."""
    first = rows[0]
    lines = [
        f"| split | all | with batch norm | without | best | relative to {first['split']} |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [cell(row, name) for name in ("accuracy", "accuracy_bn", "accuracy_bn_free")]
        share = f"{100 * row['accuracy'] / first['accuracy']:.0f} %"
        lines.append(f"| {row['split']} | {' | '.join(cells)} | {100 * row['accuracy_max']:.1f} | {share} |")
    return "\n".join(lines)


def twins_table(row: dict[str, Any]) -> str:
    """Predictions beside the same networks after steps of SGD, and the sentences."""
    twins = row["twins"]
    steps = [f"{count} steps" for count in twins["steps"]]
    lines = [
        f"| {row['split']} | n | predicted | {' | '.join(steps)} | equivalent SGD steps |",
        "|" + "---|" * (len(steps) + 4),
    ]
    for name, label in KINDS:
        found = twins[name]
        if found:
            curve = " | ".join(f"{100 * value:.1f}" for value in found["curve"])
            worth = found["sentence"].split(", n =")[0].replace(" SGD steps", "") + ")"
            lines.append(f"| {label} | {found['networks']} | {100 * found['predicted']:.1f} | {curve} | {worth} |")
    ratio = twins["seconds_per_prediction"] / twins["seconds_per_step"]
    return "\n".join([*lines, "", f"A prediction takes as long as {ratio:.2f} SGD steps of 64 images (CPU time)."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--write", type=Path, help="document whose part is replaced")
    parser.add_argument("--part", default="fashion-small", help="which of its parts")
    arguments = parser.parse_args()
    rows = [row for file in arguments.files for row in json.loads(file.read_text(encoding="utf-8"))["splits"]]
    plain, with_twins = [row for row in rows if "twins" not in row], [row for row in rows if "twins" in row]
    parts = [splits_table(plain)] if plain else []
    parts += [twins_table(row) for row in with_twins]
    show_or_put("\n\n".join(parts), arguments.write, f"benchmarks/ghn_evaluation.py {arguments.part}")


if __name__ == "__main__":
    main()
