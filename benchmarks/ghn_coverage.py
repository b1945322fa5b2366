"""How much of the models people use does a hypernetwork predict, and why not the rest?

    python benchmarks/ghn_coverage.py [--only torchvision timm …] [--largest 120e6] [--out table.md]

The models are those of `graph_coverage.py` (beside this file). A GHN-2 of ImageNet size with random weights predicts
each one's parameters from its graph, classifiers decoded at their own size (`head="resize"`). A model passes if there
is no exception, every parameter tensor is predicted or kept with a reason, and every predicted one is finite and has
its parameter's shape. Models with more parameters than `--largest` are only counted, not decoded. Whether predicted
parameters are any good is not asked here.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from graph_coverage import GROUPS, Case, cases_of

from trivet.ghn import GHN, GHNConfig
from trivet.graph import graph_of


@dataclass
class Row:
    """What became of one model."""

    name: str
    tensors: int = 0
    predicted: int = 0
    parameters: int = 0
    predicted_parameters: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    decoded: bool = False
    error: str = ""


def examine(ghn: GHN, case: Case, largest: float) -> Row:
    """Predict one model's parameters and compare them with the model's."""
    name, build, example = case
    row = Row(name)
    try:
        model = build()
        wanted = {key: tuple(parameter.shape) for key, parameter in model.named_parameters()}
        keywords = dict(example) if isinstance(example, dict) else None
        graph = graph_of(model, () if keywords else example, kwargs=keywords)
        coverage = ghn.coverage(graph, head="resize")
        sizes = {key: torch.Size(shape).numel() for key, shape in wanted.items()}
        row.tensors, row.parameters = len(wanted), sum(sizes.values())
        row.predicted, row.kept = len(coverage.predicted), dict(coverage.kept)
        row.predicted_parameters = sum(sizes[key] for key in coverage.predicted)
        if sorted([*coverage.predicted, *coverage.kept]) != sorted(wanted):
            row.error = "parameters are not accounted for"
        elif row.parameters <= largest:
            row.decoded = True
            with torch.no_grad():
                found = ghn.predict_batch([graph], head="resize")[0]
            wrong = [
                key for key, value in found.items() if tuple(value.shape) != wanted[key] or not value.isfinite().all()
            ]
            if sorted(found) != sorted(coverage.predicted) or wrong:
                row.error = f"wrong shape or not finite: {wrong[:3]}"
    except Exception as error:
        row.error = f"{type(error).__name__}: {error}"
    return row


def table(groups: dict[str, list[Row]]) -> str:
    """Groups, and the reasons for which tensors are kept, as Markdown."""
    lines = [
        "| group | models | no exception | decoded | fully predicted | tensors | predicted | kept | parameters |",
        "|---" * 9 + "|",
    ]
    for group, rows in groups.items():
        share = sum(row.predicted_parameters for row in rows) / max(1, sum(row.parameters for row in rows))
        lines.append(
            f"| {group} | {len(rows)} | {sum(not row.error for row in rows)} | {sum(row.decoded for row in rows)} "
            f"| {sum(not row.kept and not row.error for row in rows)} | {sum(row.tensors for row in rows)} "
            f"| {sum(row.predicted for row in rows)} | {sum(len(row.kept) for row in rows)} | {share:.1%} |"
        )
    reasons: Counter[str] = Counter()
    models: dict[str, set[str]] = {}
    for row in (row for rows in groups.values() for row in rows):
        for reason in row.kept.values():
            reasons[reason] += 1
            models.setdefault(reason, set()).add(row.name)
    lines += ["", "| tensors kept | in models | reason |", "|---|---|---|"]
    lines += [f"| {count} | {len(models[reason])} | {reason} |" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def main() -> int:
    """Run the groups that are asked for and write the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--largest", type=float, default=120e6, help="most parameters of a model that is decoded")
    parser.add_argument("--out", type=Path, help="write the table here as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ghn = GHN(GHNConfig.named("ghn2", num_classes=1000), seed=0)
    groups: dict[str, list[Row]] = {}
    for group, cases in cases_of(options.only):
        groups[group] = []
        for case in cases:
            row = examine(ghn, case, options.largest)
            groups[group].append(row)
            if row.error:
                print(f"{group} {row.name}: {row.error}", file=sys.stderr)
    text = table(groups)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    return int(any(row.error for rows in groups.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
