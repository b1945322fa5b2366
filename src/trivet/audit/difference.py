"""Where two trainings part: first step, first tensor, and how fast the distance grows. Torch-free, plain values.

Two runs are compared by checksums of their bits, not by their loss: the loss of a step can agree to the last bit for
tens of steps after the weights have parted.

Not covered: making the checksums (`trace.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
"""One tensor of a step: `kind` (input, forward, backward, gradient, weight), `name`, `shape`, `checksum`."""


def first_difference(a: Sequence[object], b: Sequence[object]) -> int | None:
    """Position of the first pair that differs; None if none of the common length does.

    Examples:
        >>> first_difference(["x", "y", "z"], ["x", "q", "z"]), first_difference(["x"], ["x", "y"])
        (1, None)
    """
    return next((place for place, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDifference:
    """The first tensor of a step that differs, in the order of the computation."""

    kind: str
    """input, forward, backward, gradient or weight."""
    name: str
    """Module path, or name of the parameter."""
    shape: tuple[int, ...]
    """Its shape."""
    before: int
    """Tensors before it that are bit-equal."""
    differing: int
    """Tensors of the step that differ, of `total`."""
    total: int
    """Tensors of the step that were compared."""
    same_structure: bool
    """Whether both runs computed the same tensors in the same order, as far as they were compared."""

    def __str__(self) -> str:
        what = {
            "input": "an input of the model",
            "forward": "the output of",
            "backward": "the gradient of the output of",
            "gradient": "the gradient of the parameter",
            "weight": "the parameter after the update,",
        }[self.kind]
        name = f" {self.name}" if self.kind != "input" else f", {self.name}"
        return (
            f"{what}{name} {list(self.shape)} is the first of {self.total} tensors to differ "
            f"({self.before} before it are bit-equal, {self.differing} differ)"
        )


def first_tensor(a: Sequence[Row], b: Sequence[Row]) -> TensorDifference | None:
    """The first tensor of a step whose bits differ; None if all that both have are equal.

    Examples:
        >>> row = {"kind": "forward", "name": "conv", "shape": [2], "checksum": "1"}
        >>> first_tensor([row], [{**row, "checksum": "2"}]).name
        'conv'
    """
    shared = 0
    for one, other in zip(a, b, strict=False):
        if (one["kind"], one["name"]) != (other["kind"], other["name"]):
            break
        shared += 1
    equal = [one["checksum"] == other["checksum"] for one, other in zip(a[:shared], b[:shared], strict=True)]
    if all(equal):
        return None
    place = equal.index(False)
    row = a[place]
    return TensorDifference(
        kind=row["kind"],
        name=row["name"],
        shape=tuple(row["shape"]),
        before=place,
        differing=equal.count(False),
        total=shared,
        same_structure=shared == len(a) == len(b),
    )


def doubling_steps(steps: Sequence[int], distances: Sequence[float]) -> float | None:
    """Steps in which a distance doubles: ln 2 over the slope of a least-squares line through its logarithm.

    Args:
        steps: When it was measured.
        distances: How large it was; those that are 0 or not finite are left out.

    Returns:
        None with fewer than three distances, or when it does not grow.

    Examples:
        >>> round(doubling_steps([0, 10, 20, 30], [1e-7, 2e-7, 4e-7, 8e-7]), 6)
        10.0
    """
    points = [(x, math.log(y)) for x, y in zip(steps, distances, strict=True) if y > 0 and math.isfinite(y)]
    if len(points) < 3:
        return None
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return math.log(2) / slope if slope > 0 else None


def snapshot_steps(steps: int, count: int = 24) -> list[int]:
    """Steps at which weights are kept for the curve of distances: 1, 2, 3 … at first, then ever further apart.

    Examples:
        >>> snapshot_steps(100, 6)
        [1, 3, 6, 16, 40, 100]
    """
    if steps <= count:
        return list(range(1, steps + 1))
    ratio = steps ** (1 / (count - 1))
    return sorted({round(ratio**place) for place in range(count)} | {steps})
