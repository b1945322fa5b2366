from __future__ import annotations

import copy
import importlib.util
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trivet.models.backbones import build_backbone
from trivet.models.detector import Detector, freeze_norms_

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="needs `pip install 'trivet[vision]'`"
)


class Own(nn.Module):
    """A user's backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 8, stride=8), nn.Conv2d(4, 6, 2, stride=2)

    def forward(self, images: Tensor) -> OrderedDict[str, Tensor]:
        first = self.a(images)
        return OrderedDict(low=first, high=self.b(first))


def own_backbone() -> nn.Module:
    return Own()


def no_backbone() -> nn.Module:
    return nn.Conv2d(3, 4, 8, stride=8)


def test_against_torchvisions_own_forward() -> None:
    """The same network, given pictures of its size, finds the same losses and the same boxes."""
    torch.manual_seed(0)
    backbone = build_backbone("small", [8, 16], width=8)
    net = Detector(backbone, 3, (64, 96), strides=[8, 16], channels=16, head_norm=True)
    net.net.transform.min_size, net.net.transform.max_size = (64,), 96
    net.net.transform.image_mean, net.net.transform.image_std = [0.0] * 3, [1.0] * 3
    net.net.score_thresh = 0.01
    images = torch.randn(2, 3, 64, 96)
    boxes = torch.tensor([[4.0, 4.0, 40.0, 36.0], [50.0, 10.0, 90.0, 60.0]])
    empty = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    targets = [{"boxes": boxes, "labels": torch.tensor([0, 2])}, empty]
    net.eval()
    losses = net.net.train()(list(images), targets)
    running = copy.deepcopy(net)
    torch.testing.assert_close(running.loss(running(images), targets), sum(losses.values()))
    net.eval()
    with torch.no_grad():
        wanted, found = net.net(list(images)), net.detections(net(images))
    assert len(found[0]["boxes"]) > 0
    for one, other in zip(wanted, found, strict=True):
        for name in ("boxes", "scores", "labels"):
            torch.testing.assert_close(one[name], other[name])


@pytest.mark.parametrize(
    ("name", "channels"),
    [("torchvision:resnet18", (128, 256)), ("torchvision:mobilenet_v3_small", (24, 48)), ("small", (32, 64))],
)
def test_backbones_have_maps_of_their_strides(name: str, channels: tuple[int, int]) -> None:
    backbone = build_backbone(name, [8, 16], width=8)
    assert backbone.channels == channels
    maps = backbone.eval()(torch.zeros(1, 3, 32, 64))
    assert [tuple(out.shape[1:]) for out in maps] == [(channels[0], 4, 8), (channels[1], 2, 4)]


def test_a_cut_network_computes_what_the_whole_one_does_there(tmp_path: Path) -> None:
    from torchvision.models import resnet18

    from trivet.models import backbones

    torch.manual_seed(0)
    whole = resnet18()
    path = str(tmp_path / "resnet18.pth")
    torch.save(whole.state_dict(), path)
    cut = backbones.build_backbone("torchvision:resnet18", [8, 16, 32], pretrained=path).eval()
    seen: list[Tensor] = []
    for stage in (whole.layer2, whole.layer3, whole.layer4):
        stage.register_forward_hook(lambda module, args, out: seen.append(out))
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        whole.eval()(image)
        for one, other in zip(cut(image), seen, strict=True):
            assert torch.equal(one, other)
    with pytest.raises(ValueError, match="not the parameters of this network"):
        build_backbone("torchvision:resnet34", [8], pretrained=path)


def test_a_users_backbone() -> None:
    import sys

    sys.modules["own_maps"] = sys.modules[__name__]
    try:
        assert build_backbone("python:own_maps:own_backbone", [16]).channels == (6,)
        with pytest.raises(ValueError, match="has no map of stride 4; allowed: 8, 16"):
            build_backbone("python:own_maps:own_backbone", [4, 8])
        with pytest.raises(ValueError, match="must return a list or a mapping of tensors; found Tensor"):
            build_backbone("python:own_maps:no_backbone", [8])
    finally:
        del sys.modules["own_maps"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("resnet18", "unknown backbone 'resnet18'"), ("torchvision:mobilenet_v3_small", "has no maps of the strides")],
)
def test_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_backbone(name, [64])


def test_levels_above_the_backbone() -> None:
    backbone = build_backbone("small", [16, 32], width=4)
    net = Detector(backbone, 2, (128, 128), strides=[16, 32, 64, 128], channels=8)
    assert net.level_sizes == [9 * side * side for side in (8, 4, 2, 1)]
    middle = net.anchors[: 9 * 64].view(64, 9, 4)
    sides = (middle[0, :, 2] - middle[0, :, 0]) * (middle[0, :, 3] - middle[0, :, 1])
    assert sides.sqrt().min().item() == pytest.approx(64, abs=1)
    with pytest.raises(ValueError, match="both of"):
        Detector(backbone, 2, (64, 64), strides=[16, 32, 64])
    with pytest.raises(ValueError, match="one size for each of 2 strides"):
        Detector(backbone, 2, (64, 64), strides=[16, 32], anchor_sizes=[3])


def test_frozen_norms_stay_also_in_a_copy() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    assert freeze_norms_(net) == 1
    for some in (net, copy.deepcopy(net)):
        before = copy.deepcopy(some.state_dict())
        some.train()(torch.randn(4, 1, 8, 8)).sum().backward()
        assert all(torch.equal(value, before[name]) for name, value in some.state_dict().items())
        assert not some[1].training
        assert some[1].weight.grad is None
