r"""A 64-bit checksum of a tensor's bytes that sees every change of one element.

The bytes are read as 32-bit words $w_i$ and multiplied by fixed random odd 64-bit keys $k_i$:

$$h = \sum_i w_i k_i \bmod 2^{64}.$$

A change of a single word by $0 < |\delta| < 2^{32}$ changes $h$ by $\delta k_i \ne 0$, because an odd number is
invertible modulo $2^{64}$. Any other change is missed with probability at most $2^{-32}$ over the choice of the keys
(multilinear hashing: Lemire and Kaser, "Strongly universal string hashing is fast", The Computer Journal 57, 2014).
A sum of the elements would miss a swap, and a sum of 64-bit words times keys two flipped signs: hence words of half
the width. Longer tensors are cut into blocks, whose sums are the coefficients of a polynomial at an odd point.

Not covered: an adversary who knows the keys; sparse, quantized and nested tensors (`Unreadable`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 1 << 14
"""Words that are summed at a time: they and their products stay in the cache."""

_POINT = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Unreadable(Exception):
    """The bytes of this tensor cannot be read; the message says why."""


def checksum(tensor: Tensor) -> int:
    """Checksum of the elements of a tensor in their order in memory; two views of other shape may agree.

    Args:
        tensor: Any strided tensor on any device; reading one on a GPU waits for it.

    Raises:
        Unreadable: It has no bytes of its own, such as a fake or sparse tensor.

    Examples:
        >>> x = torch.zeros(1000)
        >>> before = checksum(x)
        >>> x.numpy()[123] = -0.0  # equal in value, not in bits
        >>> checksum(x) == before
        False
    """
    flat = flat_bytes(tensor)
    if flat.device.type == "cpu":
        content = flat.numpy()
        whole = len(content) // 4 * 4
        rest, sums = content[whole:].tobytes(), _sums_on_cpu(content[:whole].view(np.int32))
    else:
        whole = len(flat) // 4 * 4
        rest, sums = bytes(flat[whole:].tolist()), _sums(flat[:whole].view(torch.int32))
    total = int.from_bytes(rest, "little") + len(rest)
    for value in sums:
        total = (total * _POINT + value) & _MASK
    return total


def flat_bytes(tensor: Tensor) -> Tensor:
    """The elements of a tensor as uint8 [bytes], in the order of memory; a view where they lie densely.

    Elements that are one and the same in memory (stride 0) are read once.

    Raises:
        Unreadable: See `checksum`.

    Examples:
        >>> flat_bytes(torch.ones(1, 2, dtype=torch.int16).expand(50, 2)).tolist()
        [1, 0, 1, 0]
    """
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise Unreadable(f"a {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        raise Unreadable(f"a tensor of layout {tensor.layout}, quantized or nested")
    if tensor.device.type == "meta":
        raise Unreadable("a tensor without memory (meta)")
    with torch.no_grad():
        plain = tensor.detach().resolve_conj().resolve_neg()
        if not plain.is_contiguous():
            for place, (size, stride) in enumerate(zip(plain.shape, plain.stride(), strict=True)):
                if stride == 0 and size > 1:
                    plain = plain.narrow(place, 0, 1)
            order = sorted(range(plain.dim()), key=lambda place: -plain.stride(place))
            plain = plain.permute(order).contiguous()
        return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def _sums_on_cpu(words: np.ndarray[Any, np.dtype[np.int32]]) -> list[int]:
    keys = _keys()
    products = np.empty(min(BLOCK, len(words)), dtype=np.int64)
    found: list[int] = []
    for start in range(0, len(words), BLOCK):
        part = words[start : start + BLOCK]
        out = products[: len(part)]
        np.multiply(part, keys[: len(part)], out=out)
        found.append(int(out.sum()) & _MASK)
    return found


def _sums(words: Tensor) -> list[int]:
    """The same sums with torch's own operations."""
    keys = _keys_on(str(words.device))
    blocks = words.split(BLOCK) if len(words) else ()
    sums = [(block.long() * keys[: len(block)]).sum() for block in blocks]
    return [int(value) & _MASK for value in torch.stack(sums).tolist()] if sums else []


@functools.cache
def _keys() -> np.ndarray[Any, np.dtype[np.int64]]:
    drawn = np.random.Generator(np.random.PCG64(20170)).integers(0, 2**64, BLOCK, dtype=np.uint64)
    return (drawn | np.uint64(1)).view(np.int64)


@functools.cache
def _keys_on(device: str) -> Tensor:
    return torch.from_numpy(_keys()).to(device)
