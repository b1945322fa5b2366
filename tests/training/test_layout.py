"""Channels last, and the models for which it is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trivet.core.errors import ConfigError
from trivet.models import resnet8
from trivet.training.layout import to_channels_last


@pytest.mark.parametrize("width", [2, 4, 6])
def test_narrow_networks_are_refused_on_a_cpu(width: int) -> None:
    with pytest.raises(ConfigError, match=rf"training\.channels_last.*over {width} channels.*8 or more channels"):
        to_channels_last(resnet8(width=width), torch.device("cpu"))


def test_what_is_safe_is_converted_and_computes_the_same() -> None:
    torch.manual_seed(0)
    model = resnet8(width=8).eval()
    images = torch.randn(4, 3, 12, 12)
    before = model(images)
    to_channels_last(model, torch.device("cpu"))
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert all(c.weight.is_contiguous(memory_format=torch.channels_last) for c in convolutions)
    torch.testing.assert_close(model(images.contiguous(memory_format=torch.channels_last)), before)


def test_other_devices_are_not_concerned() -> None:
    to_channels_last(nn.Conv2d(4, 8, 1), torch.device("meta"))
