"""Step time of simulated 8/8-bit training over float32 training, and the time of the gradient quantizer.

    OMP_NUM_THREADS=1 python benchmarks/precision.py [--steps 11] [--batch 128] [--model resnet20] [--compile]

Float32 and quantized steps alternate, so that a busy machine slows both. Times are process CPU time on one thread;
shown are medians with the number of steps, and median and quartiles of the ratio of neighbors.
Published code, measured elsewhere on ResNet-20, batch 128: 1.50 to 1.61.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from trivet.models import build_model
from trivet.precision import PrecisionController, PrecisionSchedule, quantize_
from trivet.precision.counters import Counter
from trivet.precision.quantizer import quantize_output_gradient


def make_step(
    name: str, batch: int, layout: torch.memory_format, quantizer: str, *, compiled: bool
) -> Callable[[], float]:
    torch.manual_seed(0)
    model = build_model(name, num_classes=10, in_channels=3).to(memory_format=layout)
    x = torch.randn(batch, 3, 32, 32).contiguous(memory_format=layout)
    y = torch.randint(0, 10, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    ctl = None
    if quantizer:
        quantize_(model, quantizer=quantizer)
        ctl = PrecisionController(model, PrecisionSchedule.static(8, total_steps=10**6), grad_bits=8)
    forward = torch.compile(model) if compiled else model

    def step() -> float:
        start = time.process_time()
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(x), y).backward()
        optimizer.step()
        if ctl is not None:
            ctl.step()
        return time.process_time() - start

    step()
    step()
    return step


def compare(title: str, plain: Callable[[], float], quantized: Callable[[], float], steps: int) -> tuple[float, float]:
    """Print and return the medians of both, in seconds."""
    pairs = [(plain(), quantized()) for _ in range(steps)]
    base, other = (statistics.median(times) for times in zip(*pairs, strict=True))
    low, middle, high = statistics.quantiles([b / a for a, b in pairs], n=4)
    print(
        f"{title:34s} float32 {base * 1e3:7.1f} ms   8/8 {other * 1e3:7.1f} ms   ratio {middle:.3f} "
        f"(quartiles {low:.3f} to {high:.3f}, n = {steps})"
    )
    return base, other


def gradient_quantizer(repeats: int) -> None:
    grad = torch.randn(128, 16, 32, 32)
    y = torch.zeros_like(grad, requires_grad=True)
    counter, levels = Counter(grad.device), torch.tensor(255.0)

    def keyed() -> None:
        out = quantize_output_gradient(y.clone(), levels, 12345, counter, published=False, by_position=False)
        torch.autograd.grad(out * 2.0, y, grad)  # the product hands on a gradient of its own, as layers do

    def nothing() -> None:
        torch.autograd.grad(y.clone() * 2.0, y, grad)

    def drawn() -> None:
        low, high = grad.min(), grad.max()
        scale = (high - low) / 255
        ((grad - low) / scale + torch.rand_like(grad) - 0.5).clamp(0, 255).round() * scale + low

    times: dict[str, list[float]] = {"keyed": [], "nothing": [], "drawn": []}
    for _ in range(repeats):
        for name, function in (("keyed", keyed), ("nothing", nothing), ("drawn", drawn)):
            start = time.process_time()
            function()
            times[name].append(time.process_time() - start)
    keyed_ms, nothing_ms, drawn_ms = (statistics.median(times[name]) * 1e3 for name in ("keyed", "nothing", "drawn"))
    own_ms = keyed_ms - nothing_ms
    print(
        f"gradient quantizer, 8.4 MB: {own_ms:.2f} ms; eager torch.rand rounding: {drawn_ms:.2f} ms, "
        f"{drawn_ms / own_ms:.1f} times as long (medians, n = {repeats})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--compile", action="store_true", help="compile both models (takes minutes)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for layout, title in ((torch.contiguous_format, "contiguous"), (torch.channels_last, "channels_last")):
        for quantizer in ("default", "published"):
            plain = make_step(options.model, options.batch, layout, "", compiled=options.compile)
            quantized = make_step(options.model, options.batch, layout, quantizer, compiled=options.compile)
            found[title, quantizer] = compare(f"{options.model}, {title}, {quantizer}", plain, quantized, options.steps)
    ratio = found["channels_last", "default"][1] / found["contiguous", "default"][0]
    print(
        f"8/8 in channels_last over contiguous float32, the layout of the published code: {ratio:.3f}; "
        f"published 1.50 to 1.61, so {1.50 / ratio:.2f} to {1.61 / ratio:.2f} times faster relative to its own float32"
    )
    gradient_quantizer(31)


if __name__ == "__main__":
    main()
