"""Training steps in executable number formats, relative to the same steps in fp32 (channels-last) of the same run.

    python benchmarks/native.py                     # steps of every case
    python benchmarks/native.py --part kernels      # what the kernels of this device reach, by shape
    python benchmarks/native.py --part shares       # where the time of a native step goes
    python benchmarks/native.py --part memory       # what is kept for the backward pass
    python benchmarks/native.py --part ladder       # a whole training with RR 8–32 against fp32: time and accuracy
    options: --threads 1 2, --cases, --repeats 7, --seeds 8, --write docs/native-precision.md

The arms of a case alternate, step by step, so that a busy machine slows all of them; shown are medians, of processor
time on one thread and of the clock on several (idle threads spin, which the processor's clock would count), and the
ratio of medians, n = repeats after two rounds that do not count (in the first the kernels of `auto` are measured). A
step is forward pass, loss, backward pass and SGD with momentum.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from blocks import show_or_put
from doctor_table import machine
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import trivet.tasks.data
from trivet.models import resnet20
from trivet.precision import PrecisionController, PrecisionSchedule, quantize_, snap
from trivet.precision.buffers import keep_freed_memory
from trivet.precision.codes import Operand
from trivet.precision.convproducts import ConvProducts
from trivet.precision.formats import support_of
from trivet.precision.matproducts import int_matmul
from trivet.stats import decide

Step = Callable[[], None]
LAST = torch.channels_last
CPU = torch.device("cpu")


class MLP(nn.Module):
    """Two blocks of width → 4 width → width with GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        parts = [(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(2)]
        self.net = nn.Sequential(*(layer for part in parts for layer in part))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Recurrent(nn.Module):
    """A single LSTM layer without its embedding and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(800, 800)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def mlp(width: int) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    x, y = torch.randn(1024, width), torch.randn(1024, width)
    return MLP(width), lambda model: F.mse_loss(model(x), y)


def encoder() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    x, y = torch.randn(8, 128, 512), torch.randn(8, 128, 512)
    block = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    return block, lambda model: F.mse_loss(model(x), y)


def resnet(width: int, batch: int) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    x, y = torch.randn(batch, 3, 32, 32).to(memory_format=LAST), torch.randint(10, (batch,))
    return resnet20(width=width).to(memory_format=LAST), lambda model: F.cross_entropy(model(x), y)


def recurrent() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    x, y = torch.randn(35, 20, 800), torch.randn(35, 20, 800)
    return Recurrent(), lambda model: F.mse_loss(model(x), y)


CASES = {
    "mlp-1024": ("MLP 1024–4096–1024 × 2, 1,024 tokens", lambda: mlp(1024), 0.42),
    "mlp-2048": ("MLP 2048–8192–2048 × 2, 1,024 tokens", lambda: mlp(2048), 0.48),
    "encoder": ("Transformer encoder block 512/2048, 8 × 128 tokens", encoder, 0.50),
    "resnet20-w16": ("ResNet-20 width 16, batch 128", lambda: resnet(16, 128), 0.68),
    "resnet20-w64": ("ResNet-20 width 64, batch 64", lambda: resnet(64, 64), 0.46),
    "lstm": ("LSTM 800/800, batch 20, length 35", recurrent, 0.60),
}
"""Name → description, model with loss, and the ratio that is wanted of the better of native and auto."""

ARMS = ("fp32", "bf16 autocast", "simulated 8/8", "native 8/8", "auto 8/8")


def everything(module: nn.Module, name: str) -> bool:
    """Quantize what multiplies, the last Linear layer too, but not a classifier called fc or linear."""
    return name.rpartition(".")[2] not in ("fc", "classifier", "head")


def make_step(arm: str, make: Callable[[], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]]) -> Step:
    """A training step of an arm; every arm starts at the same weights."""
    torch.manual_seed(0)
    model, loss_of = make()
    low = arm == "bf16 autocast"
    controller: PrecisionController | None = None
    if arm.endswith("8/8"):
        quantize_(model, everything)
        schedule = PrecisionSchedule.static(8, total_steps=10_000)
        controller = PrecisionController(model, schedule, execution=arm.split()[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if controller is not None:
            controller.step()

    return step


def measured(case: str, repeats: int, arms: tuple[str, ...] = ARMS) -> dict[str, tuple[float, float]]:
    """Arm → median milliseconds, and half the spread between the quartiles."""
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    steps = {arm: make_step(arm, CASES[case][1]) for arm in arms}
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(repeats + 2):
        for arm, step in steps.items():
            started = now()
            step()
            times[arm].append((now() - started) * 1e3)
    found = {}
    for arm, values in times.items():
        kept = sorted(values[2:])
        found[arm] = (statistics.median(kept), (kept[(3 * len(kept)) // 4] - kept[len(kept) // 4]) / 2)
    return found


def steps_part(options: argparse.Namespace) -> str:
    """The table of cases."""
    lines = [
        f"| case | threads | fp32, ms | {' | '.join(ARMS[1:])} | wanted |",
        f"|{'---|' * (len(ARMS) + 3)}",
    ]
    for threads in options.threads:
        torch.set_num_threads(threads)
        for case in options.cases:
            found = measured(case, options.repeats)
            full = found["fp32"][0]
            title, _, wanted = CASES[case]
            best = min(found[arm][0] for arm in ("native 8/8", "auto 8/8")) / full
            ratios = [f"{found[arm][0] / full:.2f}" for arm in ARMS[1:]]
            mark = "reached" if best <= wanted else "**not reached**"
            lines.append(
                f"| {title} | {threads} | {full:,.0f} ± {found['fp32'][1]:.0f} | {' | '.join(ratios)} "
                f"| {wanted} ({mark}) |"
            )
            print(lines[-1], flush=True)
    return "\n".join(
        [f"{about(options)} Ratios to fp32 of the same run; n = {options.repeats} steps an arm.", "", *lines]
    )


def about(options: argparse.Namespace) -> str:
    torch.set_num_threads(max(options.threads))
    found = support_of(CPU)
    return f"{datetime.date.today()}, {machine()}; formats {', '.join(found.formats)}; the machine was shared and busy."


def milliseconds(compute: Callable[[], object], repeats: int) -> float:
    compute()
    found = []
    for _ in range(repeats):
        started = time.process_time()
        compute()
        found.append((time.process_time() - started) * 1e3)
    return statistics.median(found)


MATRICES = (
    (1024, 1024, 4096),
    (1024, 4096, 1024),
    (1024, 2048, 8192),
    (1024, 512, 2048),
    (700, 800, 3200),
    (20, 800, 3200),
)
IMAGES = ((128, 16, 32), (128, 32, 16), (128, 64, 8), (64, 64, 32), (64, 128, 16), (64, 256, 8))


def kernels_part(options: argparse.Namespace) -> str:
    """Throughput of the products themselves, without rounding: billions of operations a second."""
    torch.set_num_threads(1)
    lines = ["| product | fp32 | bf16 | int8 |", "|---|---|---|---|"]
    for m, k, n in MATRICES:
        a, b = torch.randn(m, k), torch.randn(n, k)
        a8, b8 = (torch.randint(-127, 128, t.shape, dtype=torch.int8) for t in (a, b))
        half = a.bfloat16(), b.bfloat16()
        times = (
            milliseconds(lambda a=a, b=b: a @ b.t(), options.repeats),
            milliseconds(lambda h=half: h[0] @ h[1].t(), options.repeats),
            milliseconds(lambda a=a8, b=b8: int_matmul(a, b.t()), options.repeats),
        )
        rates = " | ".join(f"{2 * m * k * n / t / 1e6:.0f}" for t in times)
        lines.append(f"| matrix {m} × {k} × {n} | {rates} |")
    for batch, channels, size in IMAGES:
        products = ConvProducts((1, 1), (1, 1))
        shape, w_shape = torch.Size((batch, channels, size, size)), torch.Size((channels, channels, 3, 3))
        codes = torch.randint(0, 256, shape, dtype=torch.uint8).contiguous(memory_format=LAST)
        x = Operand(codes, 0.1, 128)
        w = Operand(torch.randint(-127, 128, w_shape, dtype=torch.int8), torch.ones(channels), 0, 127.0)
        work = 2 * shape.numel() * channels * 9 / 1e6
        runs: dict[str, Callable[[str], object]] = {
            "forward": lambda k, p=products, x=x, w=w: p.forward(k, x, w, None),
            "input gradient": lambda k, p=products, x=x, w=w: p.input(k, x, w, x.data.shape),
            "weight gradient": lambda k, p=products, x=x, w=w: p.weight(k, x, x, w.data.shape),
        }
        for name, run in runs.items():
            found = products.kernels("weight", ("int8",), shape, w_shape, CPU) if "weight" in name else ["int8"]
            third = found[0]
            times = [milliseconds(lambda k=k, run=run: run(k), options.repeats) for k in ("fp32", "bf16", third)]
            rates = " | ".join(f"{work / t:.0f}" for t in times)
            lines.append(f"| conv 3 × 3, {batch} × {channels} × {size}², {name} | {rates} |")
    return "\n".join([f"{about(options)} One thread, n = {options.repeats}; in 10⁹ operations a second.", "", *lines])


OTHER = "coding, decoding, copies, the rest"


def shares_part(options: argparse.Namespace) -> str:
    """Share of a native step by kind of operation."""
    torch.set_num_threads(1)
    kinds = {
        "integer products": ("_int_mm", "qconv_pointwise"),
        "rearranging weights for oneDNN": ("qconv_prepack",),
        "bf16 and fp32 products": ("convolution_backward", "mkldnn_convolution", "aten::mm", "addmm", "bmm"),
        "normalization": ("batch_norm", "layer_norm"),
        "activation functions": ("clamp_min", "threshold", "relu", "gelu", "sigmoid", "tanh", "softmax"),
        "ranges": ("aminmax", "amin", "amax"),
        "optimizer": ("Optimizer", "foreach"),
    }
    lines = []
    for case in options.cases:
        step = make_step("native 8/8", CASES[case][1])
        for _ in range(2):
            step()
        rounds = max(3, options.repeats)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            for _ in range(rounds):
                step()
        # Other work on the machine interrupts calls in proportion to their time, so sums keep the shares.
        sums = dict.fromkeys([*kinds, OTHER], 0.0)
        for event in seen.events():
            kind = next((k for k, parts in kinds.items() if any(part in event.name for part in parts)), OTHER)
            sums[kind] += event.self_cpu_time_total
        total = sum(sums.values())
        shares = ", ".join(f"{kind} {value / total:.0%}" for kind, value in sums.items() if value > 0.005 * total)
        lines.append(f"- {CASES[case][0]}: {shares}.")
        print(lines[-1], flush=True)
    head = f"{about(options)} One thread; {max(3, options.repeats)} steps of each."
    return "\n".join([head, "", *lines])


def memory_part(options: argparse.Namespace) -> str:
    """Megabytes that the autograd graph holds between forward and backward pass."""
    lines = ["| case | fp32, MB | simulated 8/8 | native 8/8 |", "|---|---|---|---|"]
    for case in options.cases:
        found = []
        for arm in ("fp32", "simulated 8/8", "native 8/8"):
            torch.manual_seed(0)
            model, loss_of = CASES[case][1]()
            if arm != "fp32":
                quantize_(model, everything)
                PrecisionController(model, PrecisionSchedule.static(8, total_steps=9), execution=arm.split()[0])
            own = {p.untyped_storage().data_ptr() for p in model.parameters()}
            kept: dict[int, int] = {}
            held: list[torch.Tensor] = []

            def keep(
                t: torch.Tensor, own: set[int] = own, kept: dict[int, int] = kept, held: list = held
            ) -> torch.Tensor:
                place = t.untyped_storage().data_ptr()
                if place not in own:
                    kept[place] = t.untyped_storage().nbytes()
                    held.append(t)
                return t

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
                loss_of(model)
            found.append(sum(kept.values()) / 1e6)
        lines.append(f"| {CASES[case][0]} | {found[0]:.0f} | {found[1]:.0f} | {found[2]:.0f} |")
    return "\n".join([f"{about(options)} Parameters are not counted.", "", *lines])


def ladder_part(options: argparse.Namespace) -> str:
    """A whole training with RR 8–32 on the ladder, against fp32: processor time and accuracy, seed by seed."""
    torch.set_num_threads(1)
    train, test = fashion()
    seconds: dict[str, list[float]] = {"fp32": [], "RR 8–32": []}
    accuracy: dict[str, list[float]] = {"fp32": [], "RR 8–32": []}
    levels: dict[int, tuple[int, float]] = {}
    for seed in range(options.seeds):
        for arm in seconds:
            taken, model, controller = trained(arm, seed, train, options)
            seconds[arm].append(taken)
            model.eval()
            with torch.no_grad():
                found = [model(part.contiguous(memory_format=LAST)).argmax(1) for part in test[0].split(100)]
            accuracy[arm].append(float((torch.cat(found) == test[1]).float().mean()))
            levels = controller.seconds if controller is not None else levels
            print(seed, arm, f"{taken:.1f} s, accuracy {accuracy[arm][-1]:.4f}", flush=True)
    verdict = decide(accuracy["fp32"], accuracy["RR 8–32"], margin=0.02, names=("fp32", "RR 8–32"), metric="accuracy")
    ratio = statistics.median(b / a for a, b in zip(*seconds.values(), strict=True))
    steps = ", ".join(f"{steps} steps at {bits} bits" for bits, (steps, _) in levels.items())
    return (
        f"{about(options)} ResNet-20 width 64 on Fashion-MNIST, batch {options.batch}, {options.steps} steps, one "
        f"thread. RR 8–32 on the levels 8, 16, 32 ({steps}, the first not counted) takes **{ratio:.2f}** of fp32's "
        f"processor time (median of n = {options.seeds} seeds). {verdict.sentence}"
    )


def trained(
    arm: str, seed: int, train: tuple[torch.Tensor, torch.Tensor], options: argparse.Namespace
) -> tuple[float, nn.Module, PrecisionController | None]:
    """Processor seconds of a training, its model and what moved its bits."""
    torch.manual_seed(seed)
    model = resnet20(width=64, in_channels=1).to(memory_format=LAST)
    controller = None
    if arm != "fp32":
        quantize_(model)
        rr = PrecisionSchedule.named("RR", q_min=8, q_max=32, num_cycles=4, total_steps=options.steps)
        controller = PrecisionController(model, snap(rr, (8, 16, 32)), execution="native", seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    # The rate falls to nothing, so that where a training happens to stop says little.
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.05, total_steps=options.steps, pct_start=0.15, cycle_momentum=False
    )
    order = torch.Generator().manual_seed(seed)
    started = time.process_time()
    for _ in range(options.steps):
        some = torch.randint(len(train[1]), (options.batch,), generator=order)
        optimizer.zero_grad()
        F.cross_entropy(model(train[0][some].contiguous(memory_format=LAST)), train[1][some]).backward()
        optimizer.step()
        rates.step()
        if controller is not None:
            controller.step()
    return time.process_time() - started, model, controller


def fashion() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The pictures [n, 1, 28, 28] that come with the package, and their classes: training, and 500 for the test."""
    arrays = np.load(Path(trivet.tasks.data.__file__ or "").parent / "embedded" / "fashion_mnist.npz")
    return [
        (
            torch.from_numpy(arrays[f"{part}_images"][:n]).float()[:, None] / 127.5 - 1,
            torch.from_numpy(arrays[f"{part}_labels"][:n]).long(),
        )
        for part, n in (("train", 10_000), ("test", 500))
    ]


PARTS = {
    "steps": steps_part,
    "kernels": kernels_part,
    "shares": shares_part,
    "memory": memory_part,
    "ladder": ladder_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, default="steps")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    show_or_put(PARTS[options.part](options), options.write, f"native-{options.part}")


if __name__ == "__main__":
    main()
