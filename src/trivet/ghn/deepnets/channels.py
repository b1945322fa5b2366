"""How wide a network becomes: channels of its cells and width of its classifier.

The generator draws networks at 32 channels. Widths come after, by a rule:

"training": channels from {32, 48, …, 128} and classifier widths from {64, 128, …, 512}, fewer of them the larger the
network already is (`DeepNets1M.__getitem__` of the published GHN-2, drawn anew there at every visit and once here);
"training-wider": the same with the thresholds of GHN-3, and on large images strides of 2 and 4 for small networks;
"evaluation": in steps of 16 up from 32 until the network has 2.5 million parameters on 32 × 32 images, with the
classifier 256 wide. The published code does not contain this rule; it is read off the published numbers of parameters,
of which 2.50 million is the least in every split;
"wide": "evaluation", then four times the channels, twice for large images.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trivet.ghn.deepnets.sample import BASE_CHANNELS, LARGE_KERNELS

if TYPE_CHECKING:
    from trivet.ghn.deepnets.architecture import CellArchitecture
    from trivet.ghn.deepnets.draws import Draws

CHANNELS = tuple(range(32, 129, 16))
"""Channels in training."""
FC_DIMS = tuple(range(64, 513, 64))
"""Classifier widths in training."""
LEAST = 2_500_000
"""Parameters that networks of the evaluation splits have at least."""
STEP = 16


def training_channels(
    draws: Draws, network: CellArchitecture, *, wider: bool = False, large_images: bool = False
) -> CellArchitecture:
    """The network with the width of a training network.

    Args:
        draws: Where the choices come from.
        network: A network at 32 channels.
        wider: Whether to take the thresholds of GHN-3.
        large_images: Whether it is for images of 224 × 224 rather than 32 × 32.
    """
    size = 224 if large_images and not wider else 32
    millions = network.num_parameters(image_size=size) / 1e6
    cells = network.num_cells
    dense = network.genotype.has(*LARGE_KERNELS)
    fc_dim = draws.choice(FC_DIMS[:4])
    if millions > (2.0 if wider else 0.8) or not network.global_average or dense or cells > (14 if wider else 12):
        channels = CHANNELS[0]
    elif millions > 0.4 or cells > 10:
        channels = draws.choice(CHANNELS[: 4 if wider else 2])
    elif millions > 0.2 or cells > 8:
        channels = draws.choice(CHANNELS[: 5 if wider else 3])
    else:
        channels = draws.choice(CHANNELS)
        if channels <= 64:
            fc_dim = draws.choice(FC_DIMS)
    stride = network.large_stride
    small = millions <= 0.2 and cells <= 8 and not dense
    if wider and large_images and network.global_average and network.stem_pool and small:
        stride = draws.choice((2, 4))
    return replace(network, channels=channels, fc_dim=fc_dim, large_stride=stride)


def evaluation_channels(network: CellArchitecture) -> CellArchitecture:
    """The network with the fewest channels, 32 and up in steps of 16, that make 2.5 million parameters.

    Examples:
        >>> from trivet.ghn.deepnets.architecture import DARTS_NETWORK
        >>> evaluation_channels(DARTS_NETWORK).channels
        64
    """
    channels = BASE_CHANNELS
    while (wider := replace(network, channels=channels)).num_parameters() < LEAST:
        channels += STEP
    return wider


def wide_channels(network: CellArchitecture, *, large_images: bool = False) -> CellArchitecture:
    """A network of an evaluation split with four times its channels; twice for large images."""
    return replace(network, channels=network.channels * (2 if large_images else 4))
