"""The splits of DeepNets-1M: what is drawn, and which genotypes belong to which split.

The distributions are those of the published generator (Knyazev et al. 2021, arXiv:2110.13100). The published splits
overlap, because test networks are drawn by the same generator from the same seed as training networks. Here they
cannot: the 64-bit identity of a genotype (`Genotype.identity`, equal for cells that compute the same) modulo 32 names
the one split the genotype may occur in. `wide` consists of the networks of `test`, with more channels, as published.
"""

from __future__ import annotations

from dataclasses import dataclass

from trivet.core.errors import unknown_name

CLASSES = 32
"""Classes of genotypes."""
SEARCHED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What the networks of a split are drawn from; U is the uniform distribution.

    Examples:
        >>> SPLITS["deep"].num_cells, SPLITS["train"].classes
        ((10, 36), range(0, 16))
    """

    size: int
    """Networks in the published split."""
    classes: range
    """Classes of genotypes that belong to it."""
    num_cells: tuple[int, int] = (4, 18)
    """Cells, U from the first to the second."""
    deep_from: tuple[int, int] = (7, 10)
    """Networks of more cells than U from the first to the second are deep: fewer steps, always averaged at the end."""
    steps: tuple[int, int] = (1, 4)
    """Steps of a cell, U."""
    deep_steps: int = 2
    """Most steps in deep networks."""
    max_parameters: int = 10_000_000
    """Most parameters at 32 channels, with 10 classes, on images of 32 × 32 and of 224 × 224."""
    norm: str = "some"
    """"bn"; "none"; or "some": none in half of the networks of at most one cell over the least and `deep_steps`."""
    bare: tuple[float, float] = (0.0, 0.8)
    """Probability of no 1 × 1 convolutions at the inputs of cells of one step that keep their channels, for
    convolutional networks and for those with attention."""
    channels: str = "evaluation"
    """"training", "evaluation" or "wide"; see `channels`."""


SPLITS: dict[str, Split] = {
    "train": Split(size=1_000_000, classes=range(16), channels="training"),
    "val": Split(size=500, classes=range(16, 19)),
    "test": Split(size=500, classes=range(19, 23)),
    "wide": Split(size=100, classes=range(19, 23), channels="wide"),
    "deep": Split(size=100, classes=range(23, 25), num_cells=(10, 36), deep_from=(18, 18), max_parameters=100_000_000),
    "dense": Split(size=100, classes=range(25, 27), steps=(2, 10), deep_steps=6, max_parameters=100_000_000),
    "bn_free": Split(size=100, classes=range(27, 29), norm="none"),
    "search": Split(
        size=SEARCHED,
        classes=range(29, 32),
        num_cells=(6, 20),
        deep_from=(10, 10),
        steps=(1, 6),
        deep_steps=3,
        norm="bn",
        bare=(0.2, 0.8),
    ),
}
"""The splits that are drawn."""

PREDEFINED = "predefined"
"""The split of two known networks: ResNet-50 and a vision transformer."""


def split_names() -> tuple[str, ...]:
    """All names of splits.

    Examples:
        >>> split_names()
        ('train', 'val', 'test', 'wide', 'deep', 'dense', 'bn_free', 'predefined', 'search')
    """
    names = tuple(SPLITS)
    return (*names[:-1], PREDEFINED, names[-1])


def get_split(name: str) -> Split:
    """A split that is drawn.

    Raises:
        ValueError: No such split.

    Examples:
        >>> get_split("tset")
        Traceback (most recent call last):
        ...
        ValueError: unknown split 'tset'; allowed: train, ..., search; did you mean 'test'?
    """
    if name not in SPLITS:
        raise ValueError(unknown_name("split", name, split_names()))
    return SPLITS[name]
