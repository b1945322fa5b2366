"""Backbones of a detector: networks that return their maps at several strides (extra `vision`).

    small                        a residual network for small pictures and processors
    torchvision:NAME             one of torchvision's convolutional classifiers, cut where its maps have these strides
    python:pkg.module:function   anything that returns a module with several maps, as a list or a mapping

A network of torchvision is cut by running an empty picture through its stages one after the other; of all stages of a
stride the last one counts, as is usual for pyramids (Lin et al. 2017, arXiv:1612.03144).

Not covered: transformers, and networks whose stages do not simply follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from trivet.models.build import find_callable
from trivet.models.names import PYTHON, SMALL_BACKBONE, TORCHVISION, unknown_backbone
from trivet.models.resnet import ResidualBlock
from trivet.models.vision import torchvision_model

PROBE = 256
"""Height and width of the empty picture that strides are measured with."""


class SmallBackbone(nn.Module):
    """A convolution of stride 2, then four residual blocks of stride 2; w, 2w, 4w, 8w, 8w channels at 2, 4, 8, 16, 32.

    Args:
        width: Channels w of the first convolution.

    Examples:
        >>> [tuple(out.shape[1:]) for out in SmallBackbone(8)(torch.zeros(1, 3, 64, 64))]
        [(16, 16, 16), (32, 8, 8), (64, 4, 4), (64, 2, 2)]
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        sizes = [width, 2 * width, 4 * width, 8 * width, 8 * width]
        self.stages = nn.ModuleList(ResidualBlock(before, after, stride=2) for before, after in pairwise(sizes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> list[Tensor]:
        """[N, 3, H, W] → maps at strides 4, 8, 16 and 32."""
        hidden = torch.relu(self.bn(self.conv(images)))
        maps: list[Tensor] = []
        for stage in self.stages:
            hidden = stage(hidden)
            maps.append(hidden)
        return maps


class Stages(nn.Module):
    """Stages that follow one another, and the maps behind some of them.

    Args:
        stages: Modules by name, each fed with the output of the one before.
        ends: Names of those whose output is returned.
    """

    def __init__(self, stages: Sequence[tuple[str, nn.Module]], ends: Sequence[str]) -> None:
        super().__init__()
        self.ends = tuple(ends)
        self.names = tuple(name for name, _ in stages)
        for name, stage in stages:
            self.add_module(name, stage)

    def forward(self, images: Tensor) -> list[Tensor]:
        """[N, 3, H, W] → one map an end, in order."""
        maps: list[Tensor] = []
        hidden = images
        for name in self.names:
            hidden = self.get_submodule(name)(hidden)
            if name in self.ends:
                maps.append(hidden)
        return maps


class Maps(nn.Module):
    """A backbone of which only the maps of some strides are taken.

    Args:
        body: Returns maps, as a sequence or a mapping.
        positions: Which of them, in order.
        channels: Of each of these.
    """

    def __init__(self, body: nn.Module, positions: Sequence[int], channels: Sequence[int]) -> None:
        super().__init__()
        self.body = body
        self.positions, self.channels = tuple(positions), tuple(channels)

    def forward(self, images: Tensor) -> list[Tensor]:
        """[N, 3, H, W] → one map a stride."""
        found = _listed(self.body(images))
        return [found[position] for position in self.positions]


def build_backbone(name: str, strides: Sequence[int], *, width: int = 16, pretrained: str = "") -> Maps:
    """Build a backbone with maps at these strides.

    Args:
        name: See the module.
        strides: Pixels of the picture to one of each map, growing.
        width: Channels of the first convolution of `small`.
        pretrained: File with parameters of a whole torchvision classifier, as torchvision distributes them.

    Raises:
        ValueError: No such network, or it has no map of a stride.
        MissingExtraError: torchvision is needed and not installed.

    Examples:
        >>> build_backbone("torchvision:resnet18", [8, 16, 32]).channels
        (128, 256, 512)
    """
    if name == SMALL_BACKBONE:
        body: nn.Module = SmallBackbone(width)
    elif name.startswith(TORCHVISION):
        body = _cut(name, strides, pretrained)
    elif name.startswith(PYTHON):
        body = _users(name)
    else:
        raise ValueError(unknown_backbone(name))
    maps = _probed(body)
    found = {_stride(out): (position, out.shape[1]) for position, out in enumerate(maps)}
    lacking = [stride for stride in strides if stride not in found]
    if lacking:
        has = ", ".join(str(stride) for stride in sorted(found) if stride) or "none"
        raise ValueError(f"backbone {name!r} has no map of stride {lacking[0]}; allowed: {has}")
    return Maps(body, [found[stride][0] for stride in strides], [found[stride][1] for stride in strides])


def _users(name: str) -> nn.Module:
    body = find_callable(name)()
    if not isinstance(body, nn.Module):
        raise ValueError(f"backbone {name!r} returned a {type(body).__name__}; it must return a torch.nn.Module")
    return body


def _listed(out: object) -> list[Tensor]:
    """The maps of a backbone's output."""
    found = list(out.values()) if isinstance(out, Mapping) else out
    if isinstance(found, (list, tuple)) and found and all(isinstance(item, Tensor) for item in found):
        return list(found)
    raise ValueError(f"a backbone must return a list or a mapping of tensors; found {type(out).__name__}")


def _stride(out: Tensor) -> int:
    """Stride of a map of the empty picture; 0 for what is no square map."""
    if out.dim() != 4 or out.shape[2] != out.shape[3] or PROBE % out.shape[2]:
        return 0
    return PROBE // out.shape[2]


def _probed(body: nn.Module) -> list[Tensor]:
    """Maps of an empty picture; changes neither running statistics nor the random state."""
    training = body.training
    body.eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        maps = _listed(body(torch.zeros(1, 3, PROBE, PROBE)))
    body.train(training)
    return maps


def _cut(name: str, strides: Sequence[int], pretrained: str) -> Stages:
    """The stages of a torchvision classifier up to the last stride, and the last one of each stride as an end."""
    model = torchvision_model(
        name.removeprefix(TORCHVISION), num_classes=1000, in_channels=3, image_size=(PROBE, PROBE)
    )
    if pretrained:
        _load(model, Path(pretrained))
    chain = [
        (name.replace(".", "_"), stage)
        for name, stage in _chain(model)
        if not isinstance(stage, (nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear))
    ]
    ends: dict[int, int] = {}
    model.eval()
    hidden = torch.zeros(1, 3, PROBE, PROBE)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for position, (_, stage) in enumerate(chain):
            try:
                hidden = stage(hidden)
            except (RuntimeError, TypeError, ValueError, AssertionError):
                break  # what follows is not fed by what is before it, such as a side exit
            if not isinstance(hidden, Tensor):
                break
            if _stride(hidden) in strides:
                ends[_stride(hidden)] = position
    model.train()
    if not ends:
        raise ValueError(f"backbone {name!r} has no maps of the strides {list(strides)}; take a convolutional network")
    kept = chain[: max(ends.values()) + 1]
    return Stages(kept, [kept[position][0] for position in sorted(ends.values())])


def _chain(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Stages in the order in which they run: those of `features`, or else the children, sequences opened."""
    features = getattr(model, "features", None)
    if isinstance(features, nn.Sequential):
        return [(f"features.{name}", stage) for name, stage in features.named_children()]
    found: list[tuple[str, nn.Module]] = []
    for name, stage in model.named_children():
        inside = stage.named_children() if isinstance(stage, nn.Sequential) else [("", stage)]
        found += [(f"{name}.{inner}" if inner else name, part) for inner, part in inside]
    return found


def _load(model: nn.Module, path: Path) -> None:
    """Parameters of a file that torch wrote, without unpickling anything but tensors."""
    try:
        model.load_state_dict(torch.load(path.expanduser(), map_location="cpu", weights_only=True))
    except FileNotFoundError as error:
        raise ValueError(
            f"pretrained {str(path)!r}: there is no such file; give that of torchvision's weights"
        ) from error
    except Exception as error:
        raise ValueError(f"pretrained {str(path)!r}: not the parameters of this network ({error})") from error
