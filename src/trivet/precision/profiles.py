"""Growth profiles: how the precision rises inside one cycle.

A profile `p` maps the position `z` in a cycle, 0 ≤ z < 1, to a height; 0 stands for `q_min`, 1 for `q_max`. All
profiles rise and start at 0:

| name | p(z) | constant |
|---|---|---|
| cosine | (1 − cos πz) / 2 | |
| linear | z | |
| exponential | 1 − exp(−k z) | k = 4, so p(1) = 0.982; rounding to whole bits hides the gap |
| rex | 1 − (1 − z) / ((1 − d) + d (1 − z)) | d = 0.9 in the published code, 0.5 as the formula was published |

Source: "Better Schedules for Low Precision Training of Deep Neural Networks" (arXiv 2403.02243) and its code; the
cosine is the original cyclic precision training (arXiv 2101.09868). The two REX constants give very different
schedules: RR from 3 to 8 bits saves 60 % of the static BitOPs with 0.9 and 45 % with 0.5, so both carry a name.

Not covered: profiles given as functions of the user's own.
"""

from __future__ import annotations

import math

from trivet.core.errors import unknown_name

EXPONENT = 4.0
"""k of the exponential profile."""

REX_CODE = 0.9
"""d of the REX profile in the published code of precision schedules; the default."""

REX_PUBLISHED = 0.5
"""d of the REX profile as its formula was published for learning rates."""

PROFILES = ("cosine", "linear", "exponential", "rex")
"""Names of the profiles."""

SYMMETRIC = frozenset({"cosine", "linear"})
"""Profiles that are their own mirror image, so that a vertical and a horizontal reflection agree."""


def growth(profile: str, z: float, *, exponent: float = EXPONENT, rex_constant: float = REX_CODE) -> float:
    """Height of a profile at a position in its cycle.

    Args:
        profile: One of `PROFILES`.
        z: Position, 0 at the start of the cycle and 1 at its end.
        exponent: k of the exponential profile.
        rex_constant: d of the REX profile.

    Returns:
        p(z), 0 at z = 0 and at most 1.

    Raises:
        ValueError: No profile has that name.

    Examples:
        >>> [round(growth("exponential", z), 3) for z in (0.0, 0.5, 1.0)]
        [0.0, 0.865, 0.982]
    """
    if profile == "cosine":
        return (1.0 - math.cos(math.pi * z)) / 2.0
    if profile == "linear":
        return z
    if profile == "exponential":
        return 1.0 - math.exp(-exponent * z)
    if profile == "rex":
        return 1.0 - (1.0 - z) / ((1.0 - rex_constant) + rex_constant * (1.0 - z))
    raise ValueError(unknown_name("profile", profile, PROFILES))


def check_constants(exponent: float, rex_constant: float) -> None:
    """Refuse constants with which a profile would not rise.

    Raises:
        ValueError: The exponent is not > 0, or the REX constant not in (0, 1).

    Examples:
        >>> check_constants(EXPONENT, REX_PUBLISHED)
    """
    if not (math.isfinite(exponent) and exponent > 0):
        raise ValueError(f"`exponent={exponent}` must be a finite number > 0; the published one is 4")
    if not 0 < rex_constant < 1:
        raise ValueError(f"`rex_constant={rex_constant}` must lie in (0, 1); published: 0.9 (code), 0.5 (formula)")
