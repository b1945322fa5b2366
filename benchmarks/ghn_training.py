"""Where a meta-training step's time goes, and how it compares with the published code's step on the same networks.

    python benchmarks/ghn_training.py [--small] [--meta-batch 8] [--images 64] [--steps 4] [--ghn ghn2] [--json FILE]

Times are processor seconds of one thread. The published GHN-2 code took 9.75 s for a meta-batch of 8 networks of
DeepNets-1M's training split with 64 images of 32 × 32 each, of which 7.5 s were the networks' own forward and backward
passes in torch's default layout. Machines differ, so the comparison is made in units of exactly that: this script
runs the passes of the same networks alone, in the default layout, in the same process, and takes the published step
to be 9.75 / 7.5 times as long.

`--small` takes the networks and sizes of `recipes/ghn-train-fashion.yaml` instead.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.nn import functional as F

from trivet.ghn import GHN, GHNConfig
from trivet.ghn.meta.clock import Clock
from trivet.ghn.meta.networks import Pool, PoolNetwork, predict
from trivet.ghn.meta.rules import PoolConfig, pool
from trivet.ghn.meta.step import Batch, StepConfig, meta_step

PUBLISHED_RATIO = 9.75 / 7.5


def plain_passes(networks: list[PoolNetwork], weights: list[dict[str, torch.Tensor]], batches: list[Batch]) -> float:
    """Processor seconds of the networks' forward and backward passes alone, in the default layout."""
    start = time.process_time()
    for network, parameters, batch in zip(networks, weights, batches, strict=True):
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
        loss = F.cross_entropy(network.skeleton(leaves, batch.images), batch.labels)
        torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return time.process_time() - start


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    rules = PoolConfig(attention=False, bn_free=0.5) if arguments.small else PoolConfig(published=True)
    count = arguments.meta_batch * 2
    start = time.process_time()
    networks = Pool(pool("train", rules, count))
    made = [networks[number] for number in range(count)]
    building = (time.process_time() - start) / count
    shape = (32, 32, 11, 11) if arguments.small else None
    ghn = GHN(GHNConfig.named(arguments.ghn, num_classes=10, max_shape=shape), seed=0)
    options = StepConfig(meta_batch=arguments.meta_batch)
    images, labels = torch.randn(arguments.images, 3, 32, 32), torch.randint(10, (arguments.images,))
    batches = [Batch(images, labels, 0)] * arguments.meta_batch
    clock, totals, plain = Clock(), [], []
    for step in range(arguments.steps + 1):
        chosen = [made[(step * arguments.meta_batch + place) % count] for place in range(arguments.meta_batch)]
        if step == 1:
            clock.take()  # the first step warms up
        start = time.process_time()
        meta_step(lambda nets: predict(ghn, nets), chosen, batches, options, clock)
        totals.append(time.process_time() - start)
        if not arguments.no_plain:
            with torch.no_grad():
                weights = predict(ghn, chosen)
            plain.append(plain_passes(chosen, weights, batches))
    parts = {name: seconds / arguments.steps for name, seconds in clock.take().items()}
    total = sum(totals[1:]) / arguments.steps
    found: dict[str, Any] = {
        "ghn": arguments.ghn,
        "meta_batch": arguments.meta_batch,
        "images": arguments.images,
        "steps": arguments.steps,
        "nodes": [len(network.graph.nodes) for network in made],
        "building_a_network": building,
        "step": total,
        "parts": parts,
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    if plain:
        alone = sum(plain[1:]) / arguments.steps
        found |= {"networks_alone": alone, "published_would_take": PUBLISHED_RATIO * alone}
        found["times_as_fast"] = PUBLISHED_RATIO * alone / total
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="networks of recipes/ghn-train-fashion.yaml")
    parser.add_argument("--meta-batch", type=int, default=8)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--ghn", default="ghn2", help=", ".join(GHNConfig.names()))
    parser.add_argument("--no-plain", action="store_true", help="leave out the comparison")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    found = measure(arguments)
    print(f"processor seconds a step, mean of {found['steps']}: {found['step']:.3f}")
    for name, seconds in found["parts"].items():
        print(f"  {name:24} {seconds:8.3f}  {seconds / found['step']:6.1%}")
    print(f"a network's graph, once: {found['building_a_network']:.3f}; peak memory {found['peak_memory_gb']:.2f} GB")
    if "times_as_fast" in found:
        print(
            f"the networks' passes alone, default layout: {found['networks_alone']:.3f}; the published step would take "
            f"{found['published_would_take']:.3f}: {found['times_as_fast']:.2f} times as fast"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
