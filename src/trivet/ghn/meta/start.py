"""The size of what a new hypernetwork predicts.

With the usual initial weights a decoder puts out numbers of standard deviation 0.1 where the normalisation by fan-in
expects 1. Batch normalisation hides that. Without it, every layer divides the signal by ten: all images get equal
logits and only the classifier's bias a gradient. With standard deviation 1 the sums in a network without norms explode;
at 0.5 all of six such networks had finite, different logits. So the decoder's last layer is scaled once, as asked for.
With anchors (`trivet.ghn.anchor`), which are not counted, small numbers such as 0.03 keep networks alike at the start.

Not covered: scales and biases, which start near 1 and 0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from trivet.ghn.ghn import GHN
from trivet.ghn.meta.networks import PoolNetwork, predict


@torch.no_grad()
def start_with(ghn: GHN, networks: Sequence[PoolNetwork], std: float) -> float:
    """Scale the last layer of the decoder, so that predicted weights have a standard deviation of std · √(2 / fan-in).

    Args:
        ghn: A new hypernetwork.
        networks: Some networks of its pool.
        std: What is wanted; 1 is that of He et al. (2015).

    Returns:
        The factor.

    Raises:
        ValueError: The decoder has no last layer, or the networks have no weights.

    Examples:
        >>> from trivet.ghn.config import GHNConfig
        >>> from trivet.ghn.meta.networks import Pool
        >>> from trivet.ghn.meta.rules import PoolConfig, pool
        >>> networks = Pool(pool("train", PoolConfig(), 2))
        >>> ghn = GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0)
        >>> start_with(ghn, [networks[0], networks[1]], 0.5) > 1
        True
    """
    last = getattr(ghn.decoder, "out", None)
    if not isinstance(last, nn.Linear):
        raise ValueError(f"the decoder {type(ghn.decoder).__name__} has no last layer `out`; leave `start_std` out")
    bare = copy.deepcopy(ghn)
    bare.config = replace(ghn.config, anchor="none")
    squares, count = 0.0, 0
    for parameters in predict(bare, networks):
        for weight in parameters.values():
            if weight.ndim == 4 and weight.shape[1] > 1:
                squares += float(weight.square().sum()) * weight[0].numel() / 2
                count += weight.numel()
    if not squares:
        raise ValueError("no network has a convolution over several channels; `start_std` cannot be measured")
    factor = std / math.sqrt(squares / count)
    per_use = math.sqrt(factor) if ghn.config.decoder == "low_rank" else factor  # both factors of a product use it
    last.weight.mul_(per_use)
    last.bias.mul_(per_use)
    return factor
