"""Random numbers for stochastic rounding: a counter hash, keyed instead of drawn.

Number i of the stream at an offset is

    u(offset + i),   u(c) = (h(c mod 2²¹) + ½) / 2²¹ − ½   in (−½, ½)

where h is a bijection of 21-bit whole numbers (odd multiplications and xor-shifts, with factors below 2¹⁰, so that
32-bit arithmetic never overflows and a vector unit computes many at once). Over one period every value occurs exactly
once, so the mean is exactly 0. The offset is a hash of (seed, step, rank), layer and call, so a gradient is
rounded the same way again after a restart, whatever else draws random numbers.

Because u depends on the counter alone, eager code reads it from a table made once per device: adding the noise then
costs no pass over the data beyond the scaling it is fused with. Under `torch.compile` the hash is computed in the
kernel, with the same result.

Not covered: cryptographic or long-period use. Within one tensor the numbers repeat after 2²¹ elements, and two tensors
may share a stretch of the stream at different places.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import torch

from trivet.core.seeding import derive
from trivet.precision.layout import as_laid_out

Count = TypeVar("Count", int, torch.Tensor)

PERIOD = 2**21
_MASK = PERIOD - 1
_ROUNDS = ((669, 11), (1011, 7), (731, 7), (853, 10))
"""Factors and shifts; chosen among random ones for a flat spectrum and small correlations."""
_PIECE = 2**15
"""Counters hashed at a time when a table is made, few enough to stay in a processor's cache."""
_LARGEST_INT32 = 2**31 - PERIOD
_LARGEST_TABLE = 2**24
"""Elements of the largest table that is kept; larger tensors compute their noise."""


def stream_key(seed: int, step: int, rank: int) -> int:
    """31-bit key of a training step.

    Examples:
        >>> stream_key(0, 1, 0) == stream_key(0, 1, 0), stream_key(0, 1, 0) == stream_key(0, 2, 0)
        (True, False)
    """
    return derive(seed, "precision", step, rank) & 0x7FFFFFFF


def layer_salt(name: str) -> int:
    """31-bit salt of a layer, from its qualified name.

    Examples:
        >>> 0 <= layer_salt("layer1.0.conv1") < 2**31
        True
    """
    return derive(0, "layer", name) & 0x7FFFFFFF


def stream_offset(key: Count, salt: int, call: Count) -> Count:
    """Where in the stream a layer's call begins; the same for whole numbers and for 0-d int64 tensors.

    Examples:
        >>> stream_offset(123, 456, 0) == int(stream_offset(torch.tensor(123), 456, torch.tensor(0)))
        True
    """
    return ((((key ^ salt) + call * 40503) * 1640531527) >> 20) & _MASK


def hashed_noise(counter: torch.Tensor) -> torch.Tensor:
    """u(c) for each counter.

    Args:
        counter: Whole numbers ≥ 0, any shape.

    Returns:
        float32 in (−½, ½), same shape.

    Examples:
        >>> float(hashed_noise(torch.arange(PERIOD)).double().mean())
        0.0
    """
    x = (counter & _MASK).to(torch.int32)
    for multiplier, shift in _ROUNDS:
        x = (x * multiplier + 40503) & _MASK
        x = x ^ (x >> shift)
    return (x.to(torch.float32) + 0.5) * (1.0 / PERIOD) - 0.5


def noise_like(x: torch.Tensor, offset: int | torch.Tensor) -> torch.Tensor:
    """Noise for every element of a tensor, element i in memory order taking number offset + i.

    Args:
        x: Any shape.
        offset: From `stream_offset`; a whole number in eager code, a 0-d tensor under `torch.compile`.

    Returns:
        float32, shape and memory layout of x.

    Examples:
        >>> x = torch.zeros(2, 3)
        >>> bool((noise_like(x, 5) == noise_like(x, torch.tensor(5))).all())
        True
    """
    count = x.numel()
    if isinstance(offset, torch.Tensor):
        # Shorter integers, as far as they reach: twice as many fit a vector.
        dtype = torch.int32 if count < _LARGEST_INT32 else torch.int64
        flat = hashed_noise(torch.arange(count, dtype=dtype, device=x.device) + offset.to(dtype))
    elif count + PERIOD > _LARGEST_TABLE:
        flat = hashed_noise(torch.arange(offset, offset + count, device=x.device))
    else:
        periods = -(-count // PERIOD) + 1
        table = _table(x.device, 2 ** (periods - 1).bit_length())
        flat = table[offset : offset + count]
    return as_laid_out(flat, x)


def noise_of_part(x: torch.Tensor, offset: int | torch.Tensor, *, rank: int, size: int, blocks: int) -> torch.Tensor:
    """The noise that a part of a larger tensor has inside it.

    Args:
        x: Part number `rank` of `size` equal ones, in memory order; of `blocks` blocks one after another, each was cut.
        offset: Where the noise of the larger tensor begins.
        rank: Which part.
        size: How many.
        blocks: 1 where the first dimension was cut; more where it was the second, such as time steps.

    Examples:
        >>> whole = torch.zeros(2, 4)
        >>> part = noise_of_part(whole[:, 2:], 5, rank=1, size=2, blocks=2)
        >>> torch.equal(part, noise_like(whole, 5)[:, 2:])
        True
    """
    if size == 1:
        return noise_like(x, offset)
    if blocks == 1:
        return noise_like(x, (offset + rank * x.numel()) % PERIOD)
    whole = x.new_empty((blocks, size, x.numel() // blocks))
    return noise_like(whole, offset)[:, rank].reshape(x.shape)


@lru_cache(maxsize=8)
def _table(device: torch.device, periods: int) -> torch.Tensor:
    with torch.inference_mode(False), torch.no_grad():
        pieces = torch.arange(PERIOD, device=device).split(_PIECE)
        return torch.cat([hashed_noise(piece) for piece in pieces]).repeat(periods)
