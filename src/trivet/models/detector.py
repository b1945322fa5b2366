"""RetinaNet: boxes at all places of a pyramid of maps, each with a score a class (extra `vision`).

A backbone's maps at several strides go through a feature pyramid (Lin et al. 2017, arXiv:1612.03144); two small
networks of four convolutions, the same for all levels, give each of nine anchors a place K scores and 4 corrections
(Lin et al. 2017, arXiv:1708.02002). Pyramid, heads, matching, losses (focal and L1) and the suppression of doubles are
torchvision's; here is what turns a batch of equally large pictures into them.

Not covered: pictures of several sizes in a batch, masks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trivet.core.errors import MissingExtraError
from trivet.models.backbones import Maps

OCTAVES = tuple(2 ** (step / 3) for step in range(3))
RATIOS = (0.5, 1.0, 2.0)
"""Anchors of a place: three sizes times three ratios of height to width, as published."""
BACKBONE_STRIDES = (4, 8, 16, 32)
TOP_STRIDES = (64, 128)
"""Levels that convolutions of stride 2 add above the backbone's last one; both or none."""
DETECTIONS = 100
"""Most boxes a picture, as COCO counts."""


class Detector(nn.Module):
    """RetinaNet for pictures of one size.

    Args:
        backbone: Maps at the strides up to 32.
        num_classes: K.
        image_size: Height and width in pixels.
        strides: Of the levels, growing; those over 32 are added on top.
        anchor_sizes: Side of the smallest square anchor of each level in pixels; None takes 4 × stride, as published.
        channels: Of the pyramid and the heads.
        head_norm: Whether each convolution of the heads is followed by a group norm, which training from random
            parameters needs.

    Raises:
        ValueError: One of `strides` and `anchor_sizes` does not fit the other, or only one of 64 and 128 is there.
        MissingExtraError: torchvision is not installed.

    Examples:
        >>> from trivet.models.backbones import build_backbone
        >>> net = Detector(build_backbone("small", [8, 16], width=8), 3, (64, 96), strides=[8, 16], channels=16)
        >>> scores, corrections = net(torch.zeros(2, 3, 64, 96))
        >>> scores.shape, corrections.shape  # 9 · (8 · 12 + 4 · 6) anchors
        (torch.Size([2, 1080, 3]), torch.Size([2, 1080, 4]))
    """

    anchors: Tensor

    def __init__(
        self,
        backbone: Maps,
        num_classes: int,
        image_size: tuple[int, int],
        *,
        strides: Sequence[int],
        anchor_sizes: Sequence[float] | None = None,
        channels: int = 256,
        head_norm: bool = False,
    ) -> None:
        super().__init__()
        try:
            from torchvision.models.detection import RetinaNet
            from torchvision.models.detection.anchor_utils import AnchorGenerator
            from torchvision.models.detection.retinanet import RetinaNetHead
        except ImportError as error:
            raise MissingExtraError("torchvision", "vision") from error
        sizes = tuple(anchor_sizes or (4.0 * stride for stride in strides))
        if len(sizes) != len(strides):
            raise ValueError(f"`anchor_sizes={list(sizes)}` must name one size for each of {len(strides)} strides")
        pyramid = _Pyramid(backbone, strides, channels)
        anchors = AnchorGenerator(
            tuple(tuple(size * octave for octave in OCTAVES) for size in sizes), (RATIOS,) * len(sizes)
        )
        norm = partial(nn.GroupNorm, math.gcd(channels, 32)) if head_norm else None
        head = RetinaNetHead(channels, len(OCTAVES) * len(RATIOS), num_classes, norm_layer=norm)
        self.net = RetinaNet(pyramid, num_classes, anchor_generator=anchors, head=head, detections_per_img=DETECTIONS)
        self.image_size = image_size
        self.register_buffer("anchors", torch.empty(0, 4), persistent=False)
        self.level_sizes = self._place_anchors()

    def _place_anchors(self) -> list[int]:
        """Fill in the anchors of a picture; returns how many each level has."""
        from torchvision.models.detection.image_list import ImageList

        empty = torch.zeros(1, 3, *self.image_size)
        training = self.training
        self.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            maps = list(self.net.backbone(empty).values())
            generator: Any = self.net.anchor_generator
            self.anchors = generator(ImageList(empty, [self.image_size]), maps)[0]
        self.train(training)
        return [len(OCTAVES) * len(RATIOS) * part.shape[2] * part.shape[3] for part in maps]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures [N, 3, H, W] → scores before the logistic function [N, A, K] and corrections [N, A, 4]."""
        found = self.net.head(list(self.net.backbone(images).values()))
        return found["cls_logits"], found["bbox_regression"]

    def loss(self, outputs: tuple[Tensor, Tensor], targets: list[dict[str, Tensor]]) -> Tensor:
        """Focal loss of the scores plus L1 loss of the corrections, mean over the pictures.

        Args:
            outputs: What `forward` gave.
            targets: `boxes` [M, 4] and `labels` [M] of each picture.
        """
        heads = {"cls_logits": outputs[0].float(), "bbox_regression": outputs[1].float()}
        losses: Mapping[str, Tensor] = self.net.compute_loss(targets, heads, [self.anchors] * len(targets))
        return losses["classification"] + losses["bbox_regression"]

    def detections(self, outputs: tuple[Tensor, Tensor]) -> list[dict[str, Tensor]]:
        """Boxes of each picture, best first: `boxes` [M, 4] in pixels, `scores` [M], `labels` [M]; M ≤ 100."""
        heads: dict[str, Any] = {
            name: list(out.float().split(self.level_sizes, 1))
            for name, out in zip(("cls_logits", "bbox_regression"), outputs, strict=True)
        }
        count = len(outputs[0])
        anchors = [list(self.anchors.split(self.level_sizes))] * count
        return self.net.postprocess_detections(heads, anchors, [self.image_size] * count)


class _Pyramid(nn.Module):
    """Maps of a backbone, brought to equal channels from the coarsest down, and levels above them."""

    def __init__(self, backbone: Maps, strides: Sequence[int], channels: int) -> None:
        from torchvision.ops import FeaturePyramidNetwork
        from torchvision.ops.feature_pyramid_network import LastLevelP6P7

        super().__init__()
        top = [stride for stride in strides if stride not in BACKBONE_STRIDES]
        if top and tuple(top) != TOP_STRIDES:
            raise ValueError(
                f"`strides={list(strides)}`: allowed are {list(BACKBONE_STRIDES)}, and above them both of "
                f"{list(TOP_STRIDES)} or none"
            )
        self.out_channels = channels
        self.backbone = backbone
        extra = LastLevelP6P7(backbone.channels[-1], channels) if top else None
        self.fpn = FeaturePyramidNetwork(list(backbone.channels), channels, extra)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return self.fpn({str(level): out for level, out in enumerate(self.backbone(images))})


def freeze_norms_(model: nn.Module) -> int:
    """Keep all batch norms as they are: their running statistics are used, nothing of them learns.

    Returns:
        How many there are.

    Examples:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
        >>> freeze_norms_(net), net.train()[1].training, [p.requires_grad for p in net.parameters()]
        (1, False, [True, True, False, False])
    """
    found = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for module in found:
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)
        module.eval()
        vars(module)["train"] = _Stays(module)
    return len(found)


class _Stays:
    """In place of a module's `train`: leaves it in evaluation mode. A class, so that the module can be copied."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, mode: bool = True) -> nn.Module:
        return self.module
