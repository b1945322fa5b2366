"""Time and memory of predicting parameters, relative to one forward pass of the same network in the same run.

    OMP_NUM_THREADS=1 python benchmarks/ghn.py [--repeats 9] [--networks resnet50 densenet121] [--skip-batch]

Times are process CPU time on one thread; the kinds alternate, so that a busy machine slows all of them; shown are
medians with n, and the ratio to the median of the forward pass (224 pixels, batch 1, evaluation mode, no gradients).
"first" makes the graph, plans, predicts and writes; "cached" does so with a graph that was met before. The meta-batch
holds generated networks (`DeepNets("train")`, 64 images of 32 pixels): forward and backward pass of the hypernetwork
over the forward pass of its networks. Memory is what the peak of the process grows by, in units of the network's
parameters. Published code, measured elsewhere: ResNet-50 first 1.8 (GHN-2) and 2.6 (GHN-3-T), meta-batch 0.625 (GHN-2,
1.75 s of 2.8 s).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from trivet.ghn import GHN, DeepNets, GHNConfig
from trivet.graph import graph_of


def cpu_ms(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def forget(ghn: GHN) -> None:
    """Drop what it knows of graphs that it met."""
    ghn._plans, ghn._batches = type(ghn._plans)(ghn._plans.size), type(ghn._batches)(ghn._batches.size)


def alternate(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median CPU milliseconds of each, after one round that does not count."""
    rounds = [{name: cpu_ms(run) for name, run in runs.items()} for _ in range(repeats + 1)][1:]
    return {name: statistics.median(times[name] for times in rounds) for name in runs}


def single(name: str, config: str, repeats: int) -> None:
    network = torchvision_model(name)
    image = torch.zeros(1, 3, 224, 224)
    ghn = GHN(GHNConfig.named(config, num_classes=1000), seed=0)
    graph = graph_of(network, image)

    def forward() -> None:
        with torch.no_grad():
            network(image)

    def first() -> None:
        forget(ghn)
        ghn.predict_(network, image)

    times = alternate(
        {
            "forward": forward,
            "graph": lambda: graph_of(network, image),
            "first": first,
            "cached": lambda: ghn.predict_(network, graph=graph),
        },
        repeats,
    )
    base = times.pop("forward")
    shown = "   ".join(f"{kind} {value:6.1f} ms = {value / base:.2f}" for kind, value in times.items())
    print(f"{name:14s} {config:7s} forward {base:6.1f} ms   {shown}   (n = {repeats})")


def torchvision_model(name: str) -> nn.Module:
    import torchvision

    torch.manual_seed(0)
    return getattr(torchvision.models, name)().eval()


def meta_batch(config: str, count: int, repeats: int) -> None:
    data = DeepNets("train")
    networks = [data[index].build() for index in range(count)]
    images = torch.randn(64, 3, 32, 32)
    graphs = [graph_of(network, images[:2]) for network in networks]
    ghn = GHN(GHNConfig.named(config), seed=0)

    def forward() -> None:
        for network in networks:
            network(images)

    def ghn_step() -> None:
        ghn.zero_grad()
        parameters = [value for own in ghn.predict_batch(graphs) for value in own.values()]
        torch.autograd.backward(parameters, [torch.ones_like(value) for value in parameters])

    def plan() -> None:
        forget(ghn)
        ghn._batch(graphs, "predict")

    times = alternate({"forward": forward, "step": ghn_step, "plan": plan}, repeats)
    nodes, size = (
        sum(len(graph.nodes) for graph in graphs),
        sum(p.numel() for net in networks for p in net.parameters()),
    )
    print(
        f"meta-batch of {count}, {config} ({nodes} nodes, {size / 1e6:.1f} M parameters): forward of the networks "
        f"{times['forward']:.0f} ms, hypernetwork forward + backward {times['step']:.0f} ms = "
        f"{times['step'] / times['forward']:.3f}, planning new graphs {times['plan']:.0f} ms (n = {repeats})"
    )


def peak_kib(run: Callable[[], object]) -> int:
    """By how much the peak of the process exceeds what it holds before, in KiB; Linux only."""

    def held(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key))

    Path("/proc/self/clear_refs").write_text("5")
    before = held("VmRSS")
    run()
    return held("VmHWM") - before


def memory(name: str, config: str) -> None:
    network = torchvision_model(name)
    image = torch.zeros(1, 3, 224, 224)
    ghn = GHN(GHNConfig.named(config, num_classes=1000), seed=0)
    small = torch.nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 1000))
    ghn.predict_(small, torch.zeros(1, 3, 8, 8))
    size = sum(value.numel() * 4 for value in network.parameters()) / 1024
    in_place = peak_kib(lambda: ghn.predict_(network, image))
    kept: list[object] = []

    def predict() -> None:
        with torch.no_grad():
            kept.append(ghn.predict(network, image))

    new = peak_kib(predict)
    print(
        f"{name:14s} {config:7s} peak memory over parameters: predict_ {in_place / size:.2f}, predict {new / size:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--networks", nargs="*", default=["resnet50", "densenet121"])
    parser.add_argument("--configs", nargs="*", default=["ghn2", "ghn3-t"])
    parser.add_argument("--skip-batch", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for config in options.configs:
        memory("resnet50", config)
    for name in options.networks:
        for config in options.configs:
            single(name, config, options.repeats)
    if not options.skip_batch:
        for config in options.configs:
            meta_batch(config, 8, max(3, options.repeats // 2))


if __name__ == "__main__":
    main()
