"""What makes a hypernetwork learn: the recipe for Fashion-MNIST with one thing changed at a time.

    OMP_NUM_THREADS=1 python benchmarks/ghn_ablation.py why  [--steps 300] [--seeds 1] [--out runs/ghn-ablation]
    OMP_NUM_THREADS=1 python benchmarks/ghn_ablation.py kind [--cpu-seconds 200] [--seeds 3] [--write DOCUMENT.md]

`why` starts from the published recipe for GHN-2 at equal steps: which of normalized gradients, larger initial weights,
a wider state, Muon, own images for each network and anchors lets it learn? `kind` is the ablation of the GHN-2 paper at
equal processor time: GHN-2, GHN-1 (no virtual edges, no normalization, one network a step) and an MLP that sees no
graph, all with anchors and normalized gradients.

Every run trains on the pool of `recipes/ghn-train-fashion.yaml` (made once) and is tested as `trivet ghn eval` does:
unseen test networks, test images, one prediction each. The seed decides initial weights, and the order of networks and
images; differences between arms are paired by seed. One JSON file a run, so that a killed benchmark goes on; the table
is printed as Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from blocks import show_or_put

from trivet.core.config import build, load_yaml, merge
from trivet.core.io import write_json
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.loop import meta_train
from trivet.ghn.meta.networks import Pool, predict
from trivet.ghn.meta.start import start_with
from trivet.stats import decide
from trivet.tasks.ghn import Setting, new_ghn
from trivet.training.checkpoint import Checkpoints
from trivet.training.metrics import MetricsLog

RECIPE = Path(__file__).parents[1] / "recipes" / "ghn-train-fashion.yaml"
PUBLISHED = {"ghn": {"anchor": "none"}, "training": {"net_gradients": "mean", "start_std": 0.0, "shared_images": True}}
OWN_IMAGES = merge(PUBLISHED, {"training": {"shared_images": False}})
ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "why": {
        "published": PUBLISHED,
        "own images": OWN_IMAGES,
        "normalized gradients": merge(PUBLISHED, {"training": {"net_gradients": "normalized"}}),
        "larger weights": merge(PUBLISHED, {"training": {"start_std": 0.5}}),
        "wider state": merge(PUBLISHED, {"ghn": {"hid": 64}}),
        "muon": merge(PUBLISHED, {"training": {"optimizer": "muon"}}),
        "anchors": merge(PUBLISHED, {"ghn": {"anchor": "identity"}, "training": {"start_std": 0.03}}),
        "all of the recipe": {},
    },
    "kind": {
        "GHN-2": {},
        "GHN-1": {
            "ghn": {"virtual_edges": 0, "weight_norm": False, "layer_norm": False},
            "training": {"meta_batch": 1},
        },
        "MLP": {"ghn": {"encoder": "mlp"}},
    },
}


def configuration(arm: Mapping[str, Any], limit: Mapping[str, Any], seed: int) -> MetaConfig:
    content = merge(merge(load_yaml(RECIPE), {"training": limit, "seed": seed}), arm)
    return build(MetaConfig, content, file=str(RECIPE))


def run(config: MetaConfig, train: Pool, test: Pool, folder: Path) -> dict[str, Any]:
    setting = Setting(config, torch.device("cpu"))
    ghn = new_ghn(config)
    ghn.remember(len(train))
    if config.training.start_std:
        start_with(ghn, [test[number] for number in range(8)], config.training.start_std)
    fit = meta_train(
        ghn,
        predict,
        train,
        setting.images,
        config.training,
        seed=config.seed,
        log=MetricsLog(folder / "metrics.jsonl"),
        checkpoints=Checkpoints(folder / "checkpoint"),
    )
    images = setting.images.test.head(config.evaluation.images)
    scores = setting.score(fit.module, test, images).summary()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    scores["train_accuracy"] = fmean(row["train_accuracy"] for row in rows[-4:])
    return {"steps": fit.step, "cpu_seconds": fit.cpu_seconds, **scores}


def table(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """Means over seeds, and the paired difference from the first arm with its 95 % interval."""
    first = next(iter(results))
    lines = [
        f"| arm | seeds | steps | CPU-s | mean of all | with batch norm | without | all, minus {first} (95 %) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm, rows in results.items():
        mean = {name: fmean(row[name] for row in rows) for name in ("steps", "cpu_seconds")}
        shown = [
            f"{100 * fmean(row[name] for row in rows):.1f}" for name in ("accuracy", "accuracy_bn", "accuracy_bn_free")
        ]
        pairs = list(zip((row["accuracy"] for row in rows), (row["accuracy"] for row in results[first]), strict=False))
        difference = "–"
        if arm != first and pairs:
            difference = f"{100 * fmean(a - b for a, b in pairs):+.1f}"
        if arm != first and len(pairs) > 2:
            found = decide([b for _, b in pairs], [a for a, _ in pairs]).comparison
            difference += f" ({100 * found.low:+.1f}..{100 * found.high:+.1f})" if found else ""
        cells = [arm, str(len(rows)), f"{mean['steps']:.0f}", f"{mean['cpu_seconds']:.0f}", *shown, difference]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=sorted(ARMS))
    parser.add_argument("--steps", type=int, default=300, help="steps of each run of `why`")
    parser.add_argument("--cpu-seconds", type=float, default=200.0, help="processor seconds of each run of `kind`")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--arms", nargs="*", help="only these")
    parser.add_argument("--out", type=Path, default=Path("runs/ghn-ablation"))
    parser.add_argument("--write", type=Path, help="document whose part is replaced")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arms = {name: arm for name, arm in ARMS[arguments.family].items() if not arguments.arms or name in arguments.arms}
    limit = {"cpu_seconds": arguments.cpu_seconds}
    if arguments.family == "why":
        limit = {"cpu_seconds": 0.0, "steps": arguments.steps}
    setting = Setting(configuration({}, limit, 0), torch.device("cpu"), arguments.out)
    arguments.out.mkdir(parents=True, exist_ok=True)
    train = setting.networks("train", setting.config.pool.size)
    test = setting.networks("test", setting.config.evaluation.networks)
    results: dict[str, list[dict[str, Any]]] = {}
    for seed in range(arguments.seeds):
        for name, arm in arms.items():
            key = f"{arguments.family}-{name.replace(' ', '-')}-{'-'.join(str(v) for v in limit.values())}-{seed}"
            path = arguments.out / f"{key}.json"
            if not path.is_file():
                started = time.perf_counter()
                train.prepare()
                write_json(path, run(configuration(arm, limit, seed), train, test, arguments.out / key))
                print(f"{key}: {time.perf_counter() - started:.0f} s", flush=True)
            results.setdefault(name, []).append(json.loads(path.read_text(encoding="utf-8")))
    show_or_put(table(results), arguments.write, f"benchmarks/ghn_ablation.py {arguments.family}")


if __name__ == "__main__":
    main()
