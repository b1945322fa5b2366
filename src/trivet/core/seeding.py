"""Seeds: one number of the user's, many independent streams.

Every stream is keyed by names, never by the order in which streams are made, so adding one moves no other.
"""

from __future__ import annotations

import hashlib
import random
import sys


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream called `names`, the same on every machine.

    The first eight bytes of SHA-256 over the seed and the names, top bit cleared.

    Args:
        seed: The user's seed.
        names: What the stream is for, such as `("augment", step)`.

    Examples:
        >>> derive(0, "data") == derive(0, "data"), derive(0, "data") == derive(1, "data")
        (True, False)
    """
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and, when it is loaded already, torch.

    Args:
        seed: A whole number ≥ 0.

    Raises:
        ValueError: `seed` is negative.

    Examples:
        >>> seed_everything(3)
    """
    if seed < 0:
        raise ValueError(f"`seed={seed}` must be ≥ 0; give a whole number from 0 on")
    random.seed(seed)
    import numpy

    numpy.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
