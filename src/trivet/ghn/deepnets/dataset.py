"""`DeepNets`: the networks of a split, by index.

Network i comes from a random stream of its own, keyed by the seed, the split and i. So nothing is stored, networks can
be made in any order and in many processes, and a million of them need no disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trivet.core.errors import unknown_name
from trivet.core.seeding import derive
from trivet.ghn.deepnets.architecture import VIT_NETWORK, Architecture, CellArchitecture, ResNet50Architecture
from trivet.ghn.deepnets.budget import Budget
from trivet.ghn.deepnets.channels import evaluation_channels, training_channels, wide_channels
from trivet.ghn.deepnets.draws import Draws
from trivet.ghn.deepnets.sample import sample
from trivet.ghn.deepnets.splits import PREDEFINED, Split, get_split

RULES = ("published", "wider")
KNOWN: tuple[Architecture, ...] = (ResNet50Architecture(), VIT_NETWORK)
"""Networks of the split "predefined"."""
PATIENCE = 2_000
"""Networks that a budget may refuse in a row before it is taken for impossible."""


@dataclass(frozen=True, slots=True)
class DeepNets(Sequence[Architecture]):
    """The networks of a split.

    Indices go from 0 to `len`, which is the published size of the split; `size` changes it and no network. With a
    budget "train" and the other splits hold small networks, drawn anew until one fits.

    Examples:
        >>> nets = DeepNets("test")
        >>> len(nets), nets[17].num_parameters(), nets[17] == nets[17], nets[17].digest
        (500, 4226082, True, '82db882d6208')
        >>> small = DeepNets("train", budget=Budget())
        >>> small[0].num_parameters() <= 500_000
        True
        >>> DeepNets("tests")
        Traceback (most recent call last):
        ...
        ValueError: unknown split 'tests'; allowed: train, ..., search; did you mean 'test'?
    """

    split: str = "train"
    """"train", "val", "test", "wide", "deep", "dense", "bn_free", "predefined" or "search"."""
    seed: int = 0
    """Other seeds, other networks; the splits stay disjoint across seeds."""
    size: int = 0
    """Networks; 0 means as many as published."""
    channels: str = "published"
    """How wide training networks are: "published", or "wider" as for GHN-3."""
    large_images: bool = False
    """Whether widths suit images of 224 × 224 rather than 32 × 32: of "train" and "wide"."""
    budget: Budget | None = None
    """Limits for small networks; None draws the published ones."""

    def __post_init__(self) -> None:
        if self.split != PREDEFINED:
            get_split(self.split)
        elif self.budget is not None:
            raise ValueError("`budget` does not apply to the split 'predefined', whose networks are fixed; remove it")
        if self.channels not in RULES:
            raise ValueError(unknown_name("rule for channels", self.channels, RULES))
        if self.size < 0 or (self.split == PREDEFINED and self.size > len(KNOWN)):
            allowed = f"0 to {len(KNOWN)}" if self.split == PREDEFINED else "≥ 0"
            raise ValueError(f"`size={self.size}` must be {allowed}")

    def __len__(self) -> int:
        if self.size:
            return self.size
        return len(KNOWN) if self.split == PREDEFINED else get_split(self.split).size

    def __getitem__(self, index: int) -> Architecture:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} of split {self.split!r} must lie in 0 to {len(self) - 1}")
        if self.split == PREDEFINED:
            return KNOWN[index]
        split = get_split(self.split)
        # The networks of "wide" are those of "test", so they come from its stream.
        draws = Draws(derive(self.seed, "deepnets", "test" if self.split == "wide" else self.split, index))
        return self._small(draws, split, self.budget) if self.budget else self._full(draws, split)

    def __iter__(self) -> Iterator[Architecture]:
        return (self[index] for index in range(len(self)))

    def _full(self, draws: Draws, split: Split) -> CellArchitecture:
        network = sample(draws, split)
        if split.channels == "training":
            return training_channels(draws, network, wider=self.channels == "wider", large_images=self.large_images)
        network = evaluation_channels(network)
        return wide_channels(network, large_images=self.large_images) if split.channels == "wide" else network

    def _small(self, draws: Draws, split: Split, budget: Budget) -> CellArchitecture:
        narrowed = replace(split, num_cells=budget.num_cells)
        for _ in range(PATIENCE):
            found = budget.fit(draws, sample(draws, narrowed))
            if found is not None:
                return found
        raise ValueError(
            f"of {PATIENCE} networks of split {self.split!r} none fits {budget}; raise `max_parameters` or "
            "`max_macs`, or take fewer channels or cells"
        )
