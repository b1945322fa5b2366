"""The model and the example that a request names, for the processes of several verbs; imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def classifier(request: Mapping[str, Any]) -> tuple[nn.Module, Tensor]:
    """Build a model and one black image for it.

    Args:
        request: `model` (a name), `width`, `input` (channels, height, width) and `classes`.
    """
    import torch

    from trivet.models import build_model

    channels, height, width = request["input"]
    model = build_model(
        request["model"],
        num_classes=request["classes"],
        in_channels=channels,
        image_size=(height, width),
        width=request["width"],
    )
    return model, torch.zeros(1, channels, height, width)
