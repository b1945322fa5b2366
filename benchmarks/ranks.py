"""One process and two with the same batch: are the curves equal, through torchrun and a study as a user runs them?

    python benchmarks/ranks.py

Runs a study of two arms (float32; few bits) with `resources: {devices: 1}`, `{devices: 2}` and `{devices: 2, strategy:
fsdp2}`, and prints the largest relative difference of any logged loss as a line of a table for docs/scale.md.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from trivet.core.io import read_jsonl
from trivet.study import Study, StudySpec

BASE: dict[str, Any] = {
    "task": {"name": "image-classification", "data": "fashion-mnist", "model": "resnet8", "width": 4},
    "training": {"steps": 10, "batch_size": 32, "log_every": 1, "optimizer": {"name": "sgd", "lr": 0.05}},
    "environment": {"device": "cpu"},
}
ARMS = {"fp32": {}, "RR": {"schedule": "RR", "q_min": 3, "q_max": 8, "num_cycles": 1}}


def main(root: Path) -> None:
    losses: dict[str, dict[str, list[float]]] = {}
    print(
        "| resources | arm | runs finished | seconds | largest relative difference of a loss |\n|---|---|---|---|---|"
    )
    for name, resources in {
        "one process": {},
        "two, ddp": {"devices": 2},
        "two, fsdp2": {"devices": 2, "strategy": "fsdp2"},
    }.items():
        content = {"name": "ranks", "base": BASE, "factors": {"precision": ARMS}, "seeds": 1, "resources": resources}
        study = Study(StudySpec.from_mapping({**content, "metric": {"name": "test_accuracy"}}), root / name)
        begun = time.monotonic()
        results = study.run(slots=1)
        seconds = time.monotonic() - begun
        losses[name] = {
            record.arm: [row["train_loss"] for row in read_jsonl(record.folder / "metrics.jsonl")]
            for record in results.records
        }
        for record in results.records:
            one, here = losses["one process"][record.arm], losses[name][record.arm]
            same = len(one) == len(here) and one
            apart = max(abs(a - b) / a for a, b in zip(one, here, strict=True)) if same else float("nan")
            print(
                f"| {name} | {record.arm} | {record.state} {record.reason} | {seconds:.0f} | {apart:.1e} |", flush=True
            )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trivet-ranks-") as scratch:
        main(Path(scratch))
