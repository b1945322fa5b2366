"""What the alias detector costs: CPU time of a step inside the block over that of a step outside.

Usage: python benchmarks/audit_cost.py [--rounds 5]
One thread; blocks of steps with and without the audit alternate, so that other work on the machine hits both alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F

from trivet import audit
from trivet.models import LSTMLanguageModel, resnet20


def image_step() -> Callable[[], None]:
    model, images, labels = resnet20(), torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    return lambda: F.cross_entropy(model(images), labels).backward()


def text_step() -> Callable[[], None]:
    model, words = LSTMLanguageModel(2000, hidden=128, dropout=0.2), torch.randint(2000, (20, 35))
    return lambda: F.cross_entropy(model(words)[0].flatten(0, 1), words.flatten()).backward()


def mlp_step() -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = torch.randn(32, 64), torch.randint(10, (32,))
    return lambda: F.cross_entropy(model(x), y).backward()


def ratio(step: Callable[[], None], repeats: int, rounds: int) -> tuple[float, float, float]:
    """Median ratio of CPU time, and seconds of a step without and with."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for audited in (False, True) * (rounds + 1):
        started = time.process_time()
        with audit.alias() if audited else nullcontext():
            for _ in range(repeats):
                step()
        seconds[audited].append((time.process_time() - started) / repeats)
    plain, checked = (statistics.median(seconds[audited][1:]) for audited in (False, True))
    pairs = zip(seconds[True][1:], seconds[False][1:], strict=True)
    return statistics.median(one / other for one, other in pairs), plain, checked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"{'step':34s} {'without':>10s} {'with':>10s} {'ratio':>6s}   (CPU time, median of {rounds} rounds)")
    cases = {
        "resnet20, 32 images of 32×32": (image_step(), 2),
        "LSTM 2×128, 20×35 words": (text_step(), 3),
        "MLP 64-64-10, 32 examples": (mlp_step(), 60),
    }
    for name, (step, repeats) in cases.items():
        found, plain, checked = ratio(step, repeats, rounds)
        print(f"{name:34s} {plain * 1e3:7.2f} ms {checked * 1e3:7.2f} ms {found:6.2f}")


if __name__ == "__main__":
    main()
