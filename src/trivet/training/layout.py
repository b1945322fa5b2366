"""Memory layout of a model: channels last, except where torch would corrupt memory.

On CPUs without AVX-512, torch 2.14.1 (oneDNN 3.12) overwrites foreign memory in the backward pass of a 1×1 convolution
over 2 to 7 channels that are stored last: the process aborts, or goes on with wrong numbers. Found by trying input
channels 1 to 16 against output channels 1 to 12, each in a process of its own; 1 channel and 8 or more were sound, and
so was every 3×3 convolution. Nothing tells from outside whether a processor takes that kernel, so such models are
refused on every CPU.
"""

from __future__ import annotations

import torch
from torch import nn

from trivet.core.errors import ConfigError, Problem


def to_channels_last(model: nn.Module, device: torch.device) -> None:
    """Store the model's images channels last, in place.

    Raises:
        ConfigError: The model has a layer for which that is not safe on this device.

    Examples:
        >>> model = nn.Conv2d(8, 16, 1)
        >>> to_channels_last(model, torch.device("cpu"))
        >>> model.weight.is_contiguous(memory_format=torch.channels_last)
        True
    """
    if device.type == "cpu":
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d) and set(module.kernel_size) == {1} and 1 < module.in_channels < 8:
                found = f"true, with the 1×1 convolution {name!r} over {module.in_channels} channels"
                fix = "torch's CPU kernel corrupts memory there; use 8 or more channels, or leave it out"
                raise ConfigError([Problem("", "training.channels_last", found, "false for this model on a CPU", fix)])
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
