"""Small networks: a limit on what a network may cost, for meta-training where there is no GPU.

Networks of the published training split take seconds of a CPU per step. A `Budget` draws them with fewer cells and
channels and refuses what is still too large, by parameters, multiply-accumulates and activations, all counted without
building the network. It narrows any split; which genotypes belong to which split does not change, so small test
networks are new to whoever trained on small training networks.

Not covered: measured time, of which the counts are only a rough guide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trivet.ghn.deepnets.architecture import CellArchitecture
    from trivet.ghn.deepnets.draws import Draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What small networks are drawn from, and what they may cost.

    Examples:
        >>> Budget(max_parameters=100_000).max_macs
        10000000
        >>> Budget(channels=(12,))
        Traceback (most recent call last):
        ...
        ValueError: `channels` holds 12; channels must be multiples of 8, one share for each attention head; take 16
    """

    num_cells: tuple[int, int] = (4, 8)
    """Cells, uniform from the first to the second."""
    channels: tuple[int, ...] = (16, 24, 32)
    """Channels, each as likely, before networks over the limits are refused."""
    fc_dim: tuple[int, ...] = (64, 128)
    """Classifier widths, each as likely."""
    max_parameters: int = 500_000
    """Most parameters."""
    max_macs: int = 10_000_000
    """Most multiply-accumulates of one image's forward pass."""
    max_activations: int = 150_000
    """Most numbers that convolutions and linear layers put out in it; norms and attention take time for these."""
    num_classes: int = 10
    """Classes with which all is counted."""
    in_channels: int = 3
    """Channels of the images with which all is counted."""
    image_size: int = 32
    """Height and width of the images with which all is counted."""

    def __post_init__(self) -> None:
        low, high = self.num_cells
        if not 1 <= low <= high:
            raise ValueError(f"`num_cells={self.num_cells}` must be a range from 1 on, such as (4, 8)")
        for name in ("channels", "fc_dim"):
            if not getattr(self, name):
                raise ValueError(f"`{name}` is empty; give at least one value")
        for value in self.channels:
            if value < 8 or value % 8:
                raise ValueError(
                    f"`channels` holds {value}; channels must be multiples of 8, one share for each attention head; "
                    f"take {max(8, -(-value // 8) * 8)}"
                )
        for name in ("max_parameters", "max_macs", "max_activations", "num_classes", "in_channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}={getattr(self, name)}` must be ≥ 1")

    def fit(self, draws: Draws, network: CellArchitecture) -> CellArchitecture | None:
        """The network with drawn widths; None when it costs too much.

        Args:
            draws: Where the choices come from.
            network: A network of any width.
        """
        found = replace(network, channels=draws.choice(self.channels), fc_dim=draws.choice(self.fc_dim))
        about = (self.num_classes, self.in_channels, self.image_size)
        totals = found.totals(*about)
        fits = (
            totals.parameters <= self.max_parameters
            and totals.macs <= self.max_macs
            and totals.activations <= self.max_activations
        )
        return found if fits else None
