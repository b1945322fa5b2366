"""Do networks agree on what a hypernetwork should change? Cosines between the gradients that each of them sends back.

    OMP_NUM_THREADS=1 python benchmarks/ghn_alignment.py [--networks 24] [--ghn FOLDER] [--write DOCUMENT.md]

For networks of the pool of `recipes/ghn-train-fashion.yaml`, the gradient of each one's loss on the same images is
taken with respect to the hypernetwork's weights. Mean cosine over all pairs: 0 says that a step which helps one network
does nothing for the others, 1 that they all ask for the same. New hypernetworks are compared: as published, with
initial weights of half the size of He et al., and with anchors; and, with `--ghn`, a trained one of that recipe.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import fmean, stdev

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from blocks import show_or_put
from torch import Tensor

from trivet.core.config import build, load_yaml, merge
from trivet.ghn import GHN
from trivet.ghn.meta.config import MetaConfig
from trivet.ghn.meta.networks import Pool, predict
from trivet.ghn.meta.start import start_with
from trivet.ghn.meta.step import Batch, StepConfig, meta_step
from trivet.tasks.ghn import Setting, new_ghn

RECIPE = Path(__file__).parents[1] / "recipes" / "ghn-train-fashion.yaml"
VARIANTS = {
    "as published": {"ghn": {"anchor": "none"}, "training": {"start_std": 0.0}},
    "larger initial weights": {"ghn": {"anchor": "none"}, "training": {"start_std": 0.5}},
    "anchors": {},
}


def gradients(ghn: GHN, networks: Pool, batch: Batch, count: int) -> tuple[list[Tensor], list[float]]:
    """Flat gradient of each network's loss, and the deviation of its logits over images."""
    found, spreads = [], []
    parameters = [parameter for parameter in ghn.parameters() if parameter.requires_grad]
    for number in range(count):
        network = networks[number]
        with torch.no_grad():
            logits = network.skeleton(predict(ghn, [network])[0], batch.images)
            spreads.append(logits.std(0).mean().item())
        ghn.zero_grad()
        meta_step(lambda nets: predict(ghn, nets), [network], [batch], StepConfig(meta_batch=1))
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        found.append(torch.cat([part.flatten() for part in parts]).clone())
    return found, spreads


def mean_cosine(vectors: list[Tensor]) -> float:
    """Over all pairs of different vectors."""
    units = torch.stack(vectors)
    units = units / units.norm(dim=1, keepdim=True).clamp_min(1e-30)
    count = len(vectors)
    return float((units.sum(0).square().sum() - count) / (count * (count - 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=24)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3, help="of new hypernetworks")
    parser.add_argument("--ghn", default="", help="a trained hypernetwork of the same recipe")
    parser.add_argument("--write", type=Path, help="document whose part is replaced")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    config = build(MetaConfig, load_yaml(RECIPE), file=str(RECIPE))
    setting = Setting(config, torch.device("cpu"))
    networks = setting.networks("train", arguments.networks)
    images, labels = setting.images.batch(step=0, place=0, size=arguments.images, places=1)
    batch = Batch(images, labels, 0)
    kinds = {True: "with batch norm", False: "without"}
    lines = [
        "| hypernetwork | networks | n | mean cosine | deviation of the logits over images |",
        "|---|---|---|---|---|",
    ]
    for name, patch in {**VARIANTS, **({"trained": {}} if arguments.ghn else {})}.items():
        cosines: dict[bool, list[float]] = {True: [], False: []}
        logits: dict[bool, list[float]] = {True: [], False: []}
        for seed in range(1 if name == "trained" else arguments.seeds):
            own = build(MetaConfig, merge(merge(load_yaml(RECIPE), {"seed": seed}), patch), file=str(RECIPE))
            ghn = GHN.from_pretrained(arguments.ghn) if name == "trained" else new_ghn(own)
            if own.training.start_std and name != "trained":
                start_with(ghn, [networks[number] for number in range(8)], own.training.start_std)
            found, spreads = gradients(ghn, networks, batch, arguments.networks)
            for kind in kinds:
                chosen = [i for i in range(arguments.networks) if networks[i].skeleton.has_batch_norm == kind]
                cosines[kind].append(mean_cosine([found[i] for i in chosen]))
                logits[kind] += [spreads[i] for i in chosen]
        for kind, label in kinds.items():
            values = cosines[kind]
            error = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            seeds = f"{len(logits[kind]) // len(values)} × {len(values)} seeds"
            lines.append(f"| {name} | {label} | {seeds} | {fmean(values):.3f}{error} | {fmean(logits[kind]):.2g} |")
    show_or_put("\n".join(lines), arguments.write, "benchmarks/ghn_alignment.py")


if __name__ == "__main__":
    main()
