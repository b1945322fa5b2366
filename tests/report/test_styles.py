from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from trivet.report.styles import COLORS, NEUTRAL, arm_styles

PAGES = ("#ffffff", "#1b1f23")
"""What charts stand on, light and dark (page.css)."""

# Linear-RGB matrices of full protanopia and deuteranopia (Machado, Oliveira and Fernandes 2009).
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def linear(color: str) -> npt.NDArray[np.float64]:
    srgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """CIE L*a*b* of linear RGB, white D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_colors_are_readable_on_both_pages() -> None:
    for color, page in itertools.product((*COLORS, NEUTRAL), PAGES):
        assert contrast(color, page) >= 3.0, (color, page, contrast(color, page))


def test_the_first_colors_stay_apart_for_color_blind_readers() -> None:
    for name, matrix in BLINDNESS.items():
        for a, b in itertools.combinations((NEUTRAL, *COLORS[:3]), 2):
            distance = float(np.linalg.norm(lab(matrix @ linear(a)) - lab(matrix @ linear(b))))
            assert distance >= 12, (name, a, b, distance)


def test_no_two_of_many_arms_look_the_same() -> None:
    arms = [f"arm {i}" for i in range(30)]
    styles = arm_styles(arms, "arm 0")
    assert len({(style.color, style.dash) for style in styles.values()}) == 30


def test_an_arm_looks_the_same_whatever_else_is_asked() -> None:
    arms = ["fp32", "static8", "RR", "ER"]
    assert arm_styles(arms, "fp32") == arm_styles(list(arms), "fp32")
    assert arm_styles(arms, "fp32")["fp32"].color == NEUTRAL
