"""Which kernel computes a product: the first that can, or the fastest, measured once on the operands themselves.

Measurements are kept for the process, by device, threads, product and shapes, so that layers of equal shape share one.
A kernel is replaced by a dearer format only where that is clearly faster. What was chosen decides which rounding
errors of the arithmetic occur, so a controller saves the choices and a resumed training takes them over.

Not covered: choices that depend on what else runs on the machine; measurements on a busy machine may choose otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

CLEARLY = 0.93
"""A later kernel has to take less than this share of the time of an earlier one."""

_REPEATS = 3
_CHOSEN: dict[str, str] = {}


def choice_key(product: str, kernels: Sequence[str], device: torch.device, *parts: object) -> str:
    """Under which name a choice is kept.

    Examples:
        >>> choice_key("forward", ("int8", "fp32"), torch.device("cpu"), (8, 16)).startswith("forward|int8,fp32|cpu|")
        True
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return "|".join((product, ",".join(kernels), name, str(torch.get_num_threads()), *map(str, parts)))


def choose(key: str, kernels: Sequence[str], compute: Callable[[str], torch.Tensor]) -> str:
    """The fastest of some kernels, measured unless that has been done.

    Args:
        key: From `choice_key`.
        kernels: In the order of preference.
        compute: Computes the product with a kernel.

    Examples:
        >>> choose("example", ["only"], lambda kernel: torch.zeros(1))
        'only'
    """
    if len(kernels) == 1:
        return kernels[0]
    if key not in _CHOSEN:
        best, fastest = kernels[0], _seconds(kernels[0], compute)
        for kernel in kernels[1:]:
            if (taken := _seconds(kernel, compute)) < CLEARLY * fastest:
                best, fastest = kernel, taken
        _CHOSEN[key] = best
    return _CHOSEN[key]


def _seconds(kernel: str, compute: Callable[[str], torch.Tensor]) -> float:
    """Least time of a few calls after one that does not count; processor time on a CPU, which others disturb less."""
    on_cpu = compute(kernel).device.type == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    found = []
    for _ in range(_REPEATS):
        _wait(on_cpu)
        started = clock()
        compute(kernel)
        _wait(on_cpu)
        found.append(clock() - started)
    return min(found)


def _wait(on_cpu: bool) -> None:
    if not on_cpu:
        torch.cuda.synchronize()


def chosen() -> dict[str, str]:
    """Every choice of this process, for saving."""
    return dict(_CHOSEN)


def take_over(choices: dict[str, str]) -> None:
    """Make these choices, rather than measuring."""
    _CHOSEN.update(choices)
