"""Streaming a folder of pictures against holding it in memory: peak memory, and how long a step waits for its batch.

    python benchmarks/image_stream.py [--pictures 3000] [--side 256] [--size 64] [--steps 30] [--workers 1 2]
        [--write docs/tasks/image-classification.md]

Makes a folder of JPEG photos (noise with smooth shapes, about the bytes of a photo) and trains a ResNet-18 on it, each
way in a process of its own. Waiting: time inside `drawn`, decoding and changes of the program included, over the time
of the step; by the clock, median over the steps, after the first.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from blocks import show_or_put
from PIL import Image
from torch.nn import functional as F

from trivet.core.config import build
from trivet.tasks.config import RunConfig
from trivet.tasks.image_batches import Batches
from trivet.tasks.image_classification import _model, _pictures


def make_folder(root: Path, pictures: int, side: int) -> int:
    """Write the pictures; returns their mean size in bytes."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:side, 0:side] / side
    total = 0
    for i in range(pictures + pictures // 10):
        folder = root / ("train" if i < pictures else "test") / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        waves = [np.sin(2 * np.pi * (rng.random(2) * 6 @ np.stack([x.ravel(), y.ravel()]))) for _ in range(3)]
        pixels = 127 + 80 * np.stack(waves, 1).reshape(side, side, 3) + rng.normal(0, 12, (side, side, 3))
        path = folder / f"{i}.jpg"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        total += path.stat().st_size
    return total // (pictures + pictures // 10)


def measure(root: str, size: int, steps: int, task: dict[str, Any]) -> dict[str, float]:
    torch.set_num_threads(1)
    content = {"task": {"data": f"image-folder:{root}@{size}", "model": "torchvision:resnet18", **task}, "seed": 0}
    run = build(RunConfig, {**content, "training": {"steps": steps, "batch_size": 32}})
    started = time.perf_counter()
    pictures, classes, shape = _pictures(run.task, run.training, 0, torch.device("cpu"))
    ready = time.perf_counter() - started
    model, _ = _model(run.task, classes, shape, torch.device("cpu"))
    batches, waits, whole = Batches(pictures, channels_last=False), [], []
    for step in range(steps):
        started = time.perf_counter()
        images, labels = batches.batch(step)
        waits.append(time.perf_counter() - started)
        F.cross_entropy(model(images), labels).backward()
        whole.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ready s": ready, "wait": median(w / t for w, t in zip(waits[1:], whole[1:], strict=True)), "MB": peak}


def main(options: argparse.Namespace) -> None:
    ways: dict[str, dict[str, Any]] = {"in memory": {"stream": False}}
    for workers in options.workers:
        ways[f"streamed, {workers} threads"] = {"stream": True, "workers": workers}
        crop = {"crop": [0.08, 1.0], "flip": True}
        ways[f"streamed, {workers} threads, crops"] = {"augment": crop, "workers": workers}
    with tempfile.TemporaryDirectory(prefix="trivet-stream-") as root:
        mean = make_folder(Path(root), options.pictures, options.side)
        lines = [
            f"{options.pictures:,} JPEG pictures of {options.side} × {options.side} (mean {mean / 1000:.0f} kB), at "
            f"{options.size} × {options.size}; ResNet-18, batch 32, one thread of arithmetic, {options.steps} steps.",
            "",
            "| way | ready after, s | share of a step that waits | peak memory of the process, MB |",
            "|---|---|---|---|",
        ]
        for name, task in ways.items():
            arguments = json.dumps([root, options.size, options.steps, task])
            done = subprocess.run([sys.executable, __file__, "--inner", arguments], check=True, stdout=subprocess.PIPE)
            found = json.loads(done.stdout)
            lines.append(f"| {name} | {found['ready s']:.1f} | {found['wait']:.1%} | {found['MB']:,.0f} |")
    show_or_put("\n".join(lines), options.write, "image-stream")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, default in (("pictures", 3000), ("side", 256), ("size", 64), ("steps", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--inner")
    given = parser.parse_args()
    print(json.dumps(measure(*json.loads(given.inner)))) if given.inner else main(given)
