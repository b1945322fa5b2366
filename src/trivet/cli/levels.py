"""What a training step of a classifier really takes at each number of bits, on this machine: the torch side.

Each level is a copy of the model with its own `PrecisionController`; the steps of all levels alternate, so that other
work on the machine slows all of them alike. One step is forward pass, cross-entropy, backward pass and SGD with
momentum on random images. BitOPs and seconds stand side by side and are never derived from one another.

Not covered: models that are not classifiers of images.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from trivet.precision import LayerCost

LEVELS = ((32, "simulated"), (16, "auto"), (8, "auto"), (8, "simulated"))
"""Bits of forward and backward pass, and how they are executed; 32 bits are plain fp32."""

REPEATS = 7
BUDGET_SECONDS = 60.0
"""No further round is timed once this much time has passed; two always are."""


def measure_levels(
    model: nn.Module, shape: Sequence[int], classes: int, batch: int, layers: Sequence[LayerCost]
) -> list[dict[str, Any]]:
    """BitOPs and wall seconds of one training step at each level.

    Args:
        model: An untrained classifier, not quantized; it is copied.
        shape: Of an image: channels, height, width.
        classes: Outputs.
        batch: Images a step.
        layers: Of the model, from `layer_macs`.

    Returns:
        One mapping a level: bits, execution, bitops, seconds (median, wall time), processor_seconds (of all threads),
        relative (processor seconds to those of fp32, which other work on the machine disturbs less), repeats, kernels.
    """
    import torch

    from trivet.precision import training_bitops
    from trivet.precision.schedules import PrecisionSchedule

    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, *shape, generator=generator).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), generator=generator)
    steps = [_step(model, bits, execution, images, labels) for bits, execution in LEVELS]
    times: list[list[tuple[float, float]]] = [[] for _ in LEVELS]
    began = time.monotonic()
    for done in range(REPEATS + 1):
        if done > 2 and time.monotonic() - began > BUDGET_SECONDS:
            break
        for (step, _), found in zip(steps, times, strict=True):
            started = time.perf_counter(), time.process_time()
            step()
            found.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    wall, processor = ([statistics.median(pair[i] for pair in found[1:]) for found in times] for i in (0, 1))
    rows = []
    for (bits, execution), (_, kernels), taken, worked in zip(LEVELS, steps, wall, processor, strict=True):
        schedule = None if bits == 32 else PrecisionSchedule.static(bits, total_steps=1)
        rows.append(
            {
                "bits": bits,
                "execution": "fp32" if bits == 32 else execution,
                "bitops": training_bitops(layers, schedule, bits, batch, 1),
                "seconds": taken,
                "processor_seconds": worked,
                "relative": worked / processor[0],
                "repeats": len(times[0]) - 1,
                "kernels": kernels(),
            }
        )
    return rows


def _step(
    model: nn.Module, bits: int, execution: str, images: Any, labels: Any
) -> tuple[Callable[[], None], Callable[[], dict[str, int]]]:
    """A training step of a copy at some bits, and what counts the kernels its layers used."""
    import torch
    from torch.nn import functional

    from trivet.precision import PrecisionController, quantize_
    from trivet.precision.schedules import PrecisionSchedule

    own = copy.deepcopy(model).to(memory_format=torch.channels_last).train()
    controller = None
    if bits < 32:
        schedule = PrecisionSchedule.static(bits, total_steps=REPEATS + 1)
        controller = PrecisionController(quantize_(own), schedule, grad_bits=bits, execution=execution)
    optimizer = torch.optim.SGD(own.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(own(images), labels).backward()
        optimizer.step()
        if controller is not None:
            controller.step()

    def kernels() -> dict[str, int]:
        counts: dict[str, int] = {}
        for layer in controller.report() if controller is not None else ():
            name = layer.execution if layer.quantised else "fp32"
            counts[name] = counts.get(name, 0) + 1
        return counts

    return step, kernels
