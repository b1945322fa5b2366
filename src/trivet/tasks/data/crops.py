"""Random resized crops: which part of a picture a step sees (Szegedy et al. 2015, arXiv 1409.4842). Loads no torch.

Area and aspect are drawn as torchvision's `RandomResizedCrop` draws them: the share of the area uniform between two
limits, the aspect log-uniform between 3/4 and 4/3, the place uniform; after ten draws that do not fit the picture, the
largest centred part whose aspect lies within the limits. Ends are not rounded to whole pixels.

Not covered: other aspects, crops of several sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

ASPECTS = (3 / 4, 4 / 3)
"""Least and largest width over height."""
TRIES = 10


@dataclass(frozen=True, slots=True)
class CropDraws:
    """Random numbers of one crop; the same ones cut the same part of the same picture.

    Examples:
        >>> draws = CropDraws(np.full((TRIES, 4), 0.5), (0.25, 0.25))
        >>> [round(end, 3) for end in draws.box(640, 640)]
        [0.25, 0.25, 0.75, 0.75]
    """

    numbers: np.ndarray
    """Uniform in [0, 1), [10, 4]: area, aspect, left, top of each try."""
    shares: tuple[float, float]
    """Least and largest share of the area."""

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the part, in shares of width and height.

        Args:
            width: Of the picture, in pixels.
            height: Likewise.
        """
        low, high = (math.log(aspect) for aspect in ASPECTS)
        for area, aspect, left, top in self.numbers.tolist():
            size = width * height * (self.shares[0] + (self.shares[1] - self.shares[0]) * area)
            ratio = math.exp(low + (high - low) * aspect)
            w, h = math.sqrt(size * ratio) / width, math.sqrt(size / ratio) / height
            if w <= 1 and h <= 1:
                x, y = left * (1 - w), top * (1 - h)
                return x, y, x + w, y + h
        ratio = min(max(width / height, ASPECTS[0]), ASPECTS[1])
        w, h = min(1.0, height * ratio / width), min(1.0, width / ratio / height)
        return (1 - w) / 2, (1 - h) / 2, (1 + w) / 2, (1 + h) / 2
