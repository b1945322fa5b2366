"""A generated first-person video: a drive over a painted plain under a sky, the same frames for everyone.

The camera stands one metre above an endless plain and looks ahead. For a pixel v rows below the horizon and u columns
right of the middle, in units of the picture's height,

    distance d = 1 / v,   sideways s = d · u,   place = camera + R(heading) · (s, d)

and its colour is that of the plain there, fading into the haze with exp(-d / 12). Above the horizon stands a panorama
that turns with the heading. Heading and speed wander smoothly. Everything comes from one seed through numpy's frozen
generator; colours are averaged over four points a pixel.

It stands in where no real video may be shipped: moving camera, no repetition, as hard to predict by copying the last
frame as a real drive at ten frames a second. Not covered: other moving things, shadows, blur.
"""

from __future__ import annotations

import numpy as np

TEXTURE = 256
"""Pixels of the plain's pattern on a side; it repeats."""

METRE = 32.0
"""Pixels of the pattern a metre."""

PLAIN, SKY = (0.42, 0.40, 0.30), (0.55, 0.62, 0.72)
"""Mean colours: red, green, blue."""

AT_A_TIME = 64


def egomotion(frames: int, *, height: int, width: int, seed: int = 2021) -> np.ndarray:
    """Frames of the drive, uint8 [frames, 3, height, width].

    Args:
        frames: How many; a longer video begins with a shorter one.
        height: Of a frame.
        width: Of a frame.
        seed: Of plain, sky and drive.

    Examples:
        >>> video = egomotion(3, height=24, width=32)
        >>> video.shape, bool((video[0] != video[1]).any())
        ((3, 3, 24, 32), True)
    """
    random = np.random.RandomState(seed)
    plain = _pattern(random, TEXTURE, TEXTURE, PLAIN)
    sky = _pattern(random, 64, 1024, SKY)
    places, headings = _drive(random, frames)
    video = np.empty((frames, 3, height, width), np.uint8)
    for start in range(0, frames, AT_A_TIME):
        part = slice(start, min(start + AT_A_TIME, frames))
        picture = np.zeros((part.stop - start, 3, height, width))
        for row in (0.25, 0.75):
            for column in (0.25, 0.75):
                picture += _seen(plain, sky, places[part], headings[part], height, width, row, column)
        video[part] = np.floor(picture / 4 * 255 + 0.5).astype(np.uint8)
    return video


def _drive(random: np.random.RandomState, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Places [frames, 2] in metres and headings [frames] in radians."""
    pushes = random.standard_normal((frames, 2))  # row by row: a shorter drive is the beginning of a longer one
    turn, speed = np.zeros(frames), np.zeros(frames)
    rate, wander = 0.0, 0.0
    for index in range(frames):
        rate = 0.9 * rate + 0.025 * pushes[index, 0]
        wander = 0.95 * wander + 0.05 * pushes[index, 1]
        turn[index], speed[index] = rate, 0.09 * np.exp(wander)
    headings = np.cumsum(turn)
    steps = speed[:, None] * np.stack([np.sin(headings), np.cos(headings)], 1)
    return np.cumsum(steps, 0), headings


def _pattern(random: np.random.RandomState, height: int, width: int, tone: tuple[float, ...]) -> np.ndarray:
    """A pattern without seams, [3, height, width] in [0, 1]: noise at several sizes, and blocks of paint."""
    total = np.zeros((3, height, width))
    for size in (4, 8, 16, 32):
        coarse = random.standard_normal((3, max(height // size, 1), max(width // size, 1)))
        grown = np.repeat(np.repeat(coarse, height // coarse.shape[1], 1), width // coarse.shape[2], 2)
        total += _smoothed(grown, size) * size**0.5
    total = (total - total.mean((1, 2), keepdims=True)) / total.std((1, 2), keepdims=True)
    mean = np.array(tone)[:, None, None]
    total = 0.85 * total.mean(0) * 3**0.5 + 0.3 * total + np.log(mean / (1 - mean))
    picture = 1 / (1 + np.exp(-total))
    for _ in range(height * width // 700):
        top, left = random.randint(height), random.randint(width)
        rows = np.arange(top, top + random.randint(3, 16)) % height
        columns = np.arange(left, left + random.randint(3, 16)) % width
        picture[:, rows[:, None], columns[None]] = random.uniform(0, 1, (3, 1, 1))
    return picture


def _smoothed(values: np.ndarray, size: int) -> np.ndarray:
    """Means over `size` neighbours along both directions, around the edges."""
    for axis in (1, 2):
        values = np.mean([np.roll(values, shift - size // 2, axis) for shift in range(size)], axis=0)
    return values


def _seen(
    plain: np.ndarray,
    sky: np.ndarray,
    places: np.ndarray,
    headings: np.ndarray,
    height: int,
    width: int,
    row: float,
    column: float,
) -> np.ndarray:
    """Colours at one point of each pixel, [N, 3, height, width]."""
    down = (np.arange(height) + row) / height - 0.4
    right = ((np.arange(width) + column) - width / 2) / height
    distance = 1 / np.maximum(down, 1e-3)
    ahead, side = np.broadcast_arrays(distance[:, None], distance[:, None] * right[None])
    sine, cosine = np.sin(headings)[:, None, None], np.cos(headings)[:, None, None]
    east = places[:, 0, None, None] + cosine * side + sine * ahead
    north = places[:, 1, None, None] - sine * side + cosine * ahead
    colour = plain[:, np.floor(north * METRE).astype(int) % TEXTURE, np.floor(east * METRE).astype(int) % TEXTURE]
    haze = np.exp(-distance / 12)[None, None, :, None]
    ground = colour.transpose(1, 0, 2, 3) * haze + 0.55 * (1 - haze)
    turned = np.arctan(right)[None, None] + headings[:, None, None]
    columns = np.floor(turned / (2 * np.pi) * sky.shape[2]).astype(int) % sky.shape[2]
    rows = np.clip(np.floor(-down * 100), 0, sky.shape[1] - 1).astype(int)
    above = sky[:, rows[None, :, None], columns].transpose(1, 0, 2, 3)
    return np.where((down > 0)[None, None, :, None], ground, above)
