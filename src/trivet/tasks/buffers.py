"""How pictures of the host reach a model: each in memory of its own, or all through one buffer.

`torch.from_numpy` makes no copy, and torch cannot see that numpy writes: a buffer that is filled again before backward
has run changes what backward reads, and no error is raised. Values of the forward pass, and with them every logged
loss, stay right. On a CUDA device the transfer is a copy, so there the reuse is harmless.

This is the cause that reproduces the retracted comparison arXiv:2109.01451; `reuse` is here to be measured, and for the
alias detector of `trivet audit` to find. Not covered: buffers in pinned memory with transfers that do not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Buffer = Literal["copy", "reuse"]


def feeder(kind: Buffer, device: torch.device) -> Callable[[np.ndarray], Tensor]:
    """A function from pictures, uint8 of any shape, to float32 in [0, 1] on the device.

    Args:
        kind: `copy` gives new memory every time. `reuse` keeps one float32 buffer in numpy, writes every input into it,
            and gives a tensor that shares its memory (a copy of it on other devices than the CPU).
        device: Where the tensors are wanted.

    Examples:
        >>> one, two = np.zeros(1, np.uint8), np.full(1, 255, np.uint8)
        >>> copied, reused = (feeder(kind, torch.device("cpu")) for kind in ("copy", "reuse"))
        >>> [(first, feed(two))[0].item() for feed in (copied, reused) for first in [feed(one)]]
        [0.0, 1.0]
    """
    if kind == "copy":
        return lambda pictures: torch.from_numpy(_scaled(pictures)).to(device)
    buffers: dict[tuple[int, ...], np.ndarray] = {}

    def reuse(pictures: np.ndarray) -> Tensor:
        buffer = buffers.setdefault(pictures.shape, np.empty(pictures.shape, np.float32))
        buffer[...] = _scaled(pictures)
        return torch.from_numpy(buffer).to(device)

    return reuse


def _scaled(pictures: np.ndarray) -> np.ndarray:
    return pictures.astype(np.float32) / np.float32(255)
