"""Native execution on a CUDA device, within five minutes: is it right, and what does it save?

    python benchmarks/native_cuda.py [--repeats 20]

Prints the formats that the device passed the start-up tests for, the rate of its products by shape, and whole training
steps of an MLP and of ResNet-20 in fp32, TF32, bf16 autocast, simulated and native execution: medians of wall time with
the device synchronized, ratio to fp32 of the same run. Exits with code 1 where a native layer is not within the error
of the simulated one. Not measured so far: no such device was at hand.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch
from native import CASES, everything
from torch import nn

from trivet.precision import PrecisionController, PrecisionSchedule, quantize_
from trivet.precision.formats import support_of
from trivet.precision.matproducts import fp8_matmul, int_matmul

SIZES = (512, 1024, 2048, 4096, 8192)


def milliseconds(compute: Callable[[], object], repeats: int) -> float:
    for _ in range(3):
        compute()
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        compute()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - started) * 1e3)
    return statistics.median(found)


def products(device: torch.device, repeats: int) -> None:
    support = support_of(device)
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}; formats {', '.join(support.formats)}")
    for n in SIZES:
        a, b = torch.randn(n, n, device=device), torch.randn(n, n, device=device)
        half = a.bfloat16(), b.bfloat16()
        codes = [torch.randint(-7, 8, (n, n), dtype=torch.int8, device=device) for _ in range(2)]
        times = {
            "fp32": milliseconds(lambda a=a, b=b: a @ b.t(), repeats),
            "bf16": milliseconds(lambda h=half: h[0] @ h[1].t(), repeats),
        }
        if support.matmul:
            times["int8"] = milliseconds(lambda c=codes: int_matmul(c[0], c[1].t()), repeats)
        if support.fp8:
            times["fp8"] = milliseconds(lambda c=codes: fp8_matmul(c[0], c[1].t()), repeats)
        print(n, {name: f"{2 * n**3 / ms / 1e9:.1f} TOP/s" for name, ms in times.items()}, flush=True)


def is_right(device: torch.device) -> bool:
    """Whether layers compute as in simulation, to 2 % of the norm of each result."""
    torch.manual_seed(0)
    cases = (
        (nn.Linear(64, 128), torch.randn(64, 64)),
        (nn.Linear(37, 19), torch.randn(33, 37)),
        (nn.Conv2d(16, 32, 3, padding=1), torch.randn(8, 16, 9, 9)),
        (nn.Conv2d(16, 32, 3, 2, 1), torch.randn(8, 16, 9, 9)),
    )
    right = True
    for layer, x in cases:
        for bits in (3, 4, 8, 16):
            results = []
            for execution in ("simulated", "native"):
                model = quantize_(copy.deepcopy(layer).to(device))
                schedule = PrecisionSchedule.static(bits, total_steps=2)
                controller = PrecisionController(model, schedule, execution=execution)
                inputs = x.to(device).requires_grad_()
                y = model(inputs)
                (y * torch.linspace(0, 9, y.numel(), device=device).view(y.shape).sin()).sum().backward()
                results.append([y, inputs.grad, *(p.grad for p in model.parameters())])
            gaps = [float((a - b).norm() / a.norm()) for a, b in zip(*results, strict=True)]
            good = max(gaps) < 0.02
            right = right and good
            kernels = controller.report()[0].execution
            print(f"{layer}, {bits} bits: {kernels}, gaps {[f'{gap:.4f}' for gap in gaps]} {'' if good else 'WRONG'}")
    return right


def steps(device: torch.device, repeats: int) -> None:
    for case in ("mlp-1024", "mlp-2048", "resnet20-w16", "resnet20-w64"):
        found: dict[str, float] = {}
        for arm in ("fp32", "tf32", "bf16 autocast", "simulated 8/8", "native 8/8", "auto 8/8"):
            torch.manual_seed(0)
            with torch.device(device):
                model, loss_of = CASES[case][1]()
            controller = None
            if arm.endswith("8/8"):
                schedule = PrecisionSchedule.static(8, total_steps=10_000)
                controller = PrecisionController(quantize_(model, everything), schedule, execution=arm.split()[0])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = arm == "tf32"

            def step(model=model, loss_of=loss_of, optimizer=optimizer, controller=controller, arm=arm) -> None:
                with torch.autocast("cuda", torch.bfloat16, enabled=arm == "bf16 autocast"):
                    loss = loss_of(model)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if controller is not None:
                    controller.step()

            found[arm] = milliseconds(step, repeats)
        print(case, {arm: f"{ms:.2f} ms, {ms / found['fp32']:.2f}" for arm, ms in found.items()}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this needs a CUDA device")
    device = torch.device("cuda")
    products(device, options.repeats)
    steps(device, options.repeats)
    sys.exit(0 if is_right(device) else 1)


if __name__ == "__main__":
    main()
