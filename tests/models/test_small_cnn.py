from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from trivet.models import SmallCNN, build_model


def test_the_network_is_what_its_parameters_say() -> None:
    torch.manual_seed(0)
    net = SmallCNN(3, 2, (9, 12), width=4)
    x = torch.randn(5, 2, 9, 12)
    p = dict(net.named_parameters())
    hidden = x
    for name in ("conv1", "conv2"):
        hidden = F.conv2d(hidden, p[f"{name}.weight"], p[f"{name}.bias"], padding=1).clamp(min=0)
        height, width = hidden.shape[2] // 2, hidden.shape[3] // 2
        cut = hidden[:, :, : 2 * height, : 2 * width]
        hidden = cut.unflatten(3, (width, 2)).unflatten(2, (height, 2)).amax((3, 5))
    assert hidden.shape == (5, 8, 2, 3)
    hidden = (hidden.reshape(5, -1) @ p["hidden.weight"].T + p["hidden.bias"]).clamp(min=0)
    torch.testing.assert_close(net(x), hidden @ p["out.weight"].T + p["out.bias"])


def test_by_name_and_too_small() -> None:
    net = build_model("small_cnn", num_classes=4, in_channels=1, image_size=28, width=8)
    assert isinstance(net, SmallCNN)
    assert net.conv1.out_channels == 8
    with pytest.raises(ValueError, match="3 × 8 cannot be halved twice"):
        SmallCNN(2, 1, (3, 8))
