"""Tables of rankers from the files that `trivet ghn rank` writes, as Markdown.

    trivet ghn rank fashion-small --networks 100
    python benchmarks/ghn_ranking.py ghn-rank/ranking-….json [more.json …] [--write docs/ranking.md]

With `--write`, what stands between the two marks in the document is replaced. Not covered: computing anything anew.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from blocks import show_or_put

KINDS = (("all", "all networks"), ("bn", "with batch normalization"), ("bn_free", "without"))


def labels(result: dict[str, Any]) -> dict[str, str]:
    """How the rankers are called."""
    return {
        "predicted": "accuracy with predicted parameters",
        "embedding": "fitted: node embeddings",
        "size": "fitted: parameters and MACs",
        "parameters": "parameters",
        "macs": "multiply-accumulates",
        "loss": f"loss after {result['early_steps']} steps",
    }


def cell(one: dict[str, Any] | None) -> str:
    """A coefficient with its interval."""
    return f"{one['tau']:.2f} ({one['low']:.2f} to {one['high']:.2f})" if one else "–"


def markdown(result: dict[str, Any]) -> str:
    """A paragraph, the table, and the differences."""
    names, agreement = labels(result), result["agreement"]
    count = {kind: next((found[kind]["n"] for found in agreement.values() if kind in found), 0) for kind, _ in KINDS}
    head = [f"{label} (n = {count[kind]})" for kind, label in KINDS if count[kind]]
    text = (
        f"`{Path(result['ghn']).name}` on {result['networks']} networks of the split {result['split']}, "
        f"{result['data']}: "
        f"Kendall τ with its 95 % interval (percentile bootstrap over networks). Truth: accuracy on "
        f"{result['truth_images']:,} test images after {result['truth_steps']} SGD steps, one run a network, "
        f"{100 * min(result['truth']):.0f} to {100 * max(result['truth']):.0f} %, "
        f"{result['truth_seconds_per_network']:.3g} CPU seconds a network."
    )
    if result["fit"]:
        text += (
            f" Fitted on {result['fit']['networks']} networks of the split {result['fit_split']}, whose training took "
            f"{result['fit']['seconds']:,.0f} CPU seconds."
        )
    lines = [text, "", f"| ranker | {' | '.join(head)} | CPU seconds a network |", "|---" * (len(head) + 2) + "|"]
    for name, found in result["methods"].items():
        cells = [cell(agreement[name].get(kind)) for kind, _ in KINDS if count[kind]]
        lines.append(f"| {names[name]} | {' | '.join(cells)} | {found['seconds_per_network']:.2g} |")
    lines += ["", "| difference of τ, all networks | |", "|---|---|"]
    for one in result["differences"]:
        pair = f"{names[one['of']]} minus {names[one['minus']]}"
        lines.append(f"| {pair} | {one['difference']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f}) |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables, or put them into a document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    text = "\n\n".join(markdown(json.loads(file.read_text(encoding="utf-8"))) for file in arguments.files)
    show_or_put(text, arguments.write, "benchmarks/ghn_ranking.py")


if __name__ == "__main__":
    main()
