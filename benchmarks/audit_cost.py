"""What the audits cost: a step under the alias detector over one without, and a weight checksum over a step.

Usage: python benchmarks/audit_cost.py [--rounds 5] [--only alias|checksum]
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
from trivet.audit.trace import weight_checksum
from trivet.models import LSTMLanguageModel, resnet20
from trivet.tasks.small_network import small_network


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


def checksum_share(model: nn.Module, step: Callable[[], None], rounds: int) -> tuple[float, float, float]:
    """Median share of a step that a checksum of all weights takes, and CPU seconds of both."""
    steps, sums = [], []
    for _ in range(rounds + 1):
        started = time.process_time()
        step()
        middle = time.process_time()
        for _ in range(5):
            weight_checksum(model)
        steps.append(middle - started)
        sums.append((time.process_time() - middle) / 5)
    shares = [one / other for one, other in zip(sums[1:], steps[1:], strict=True)]
    return statistics.median(shares), statistics.median(steps[1:]), statistics.median(sums[1:])


def update(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """One step of SGD with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def show_checksums(rounds: int) -> None:
    print(
        f"{'checksum of all weights after each step':40s} {'step':>10s} {'checksum':>10s} {'share':>7s}   (CPU time,",
        end="",
    )
    print(f" median of {rounds} rounds)")
    resnet, images, labels = resnet20(), torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    small, few, kinds = small_network(), torch.randn(32, 1, 14, 14), torch.randint(10, (32,))
    cases = {
        "resnet20, 128 images of 32×32": (resnet, lambda: F.cross_entropy(resnet(images), labels)),
        "the doctor's network, 32 images of 14×14": (small, lambda: F.cross_entropy(small(few), kinds)),
    }
    for name, (model, loss) in cases.items():
        share, step, one = checksum_share(model, update(model, loss), rounds)
        print(f"{name:40s} {step * 1e3:7.2f} ms {one * 1e3:7.3f} ms {share:7.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("alias", "checksum"), help="one of the two parts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only != "alias":
        show_checksums(options.rounds)
    if options.only != "checksum":
        show_alias(options.rounds)


def show_alias(rounds: int) -> None:
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
