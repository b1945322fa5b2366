"""torchvision's classifiers with random parameters, fitted to the images at hand (extra `vision`).

`mobilenet_v2` for images up to 64 pixels keeps the resolution in its first convolution and its second stage (strides 1
instead of 2), so that a 32 × 32 image ends as 4 × 4 instead of 1 × 1; larger images get the published network (Sandler
et al. 2018, arXiv:1801.04381).

`torchvision:NAME` is torchvision's network as it is. In both the number of classes and of input channels is set: for
channels other than three, the first convolution is replaced.

Not covered: pretrained weights, detection, segmentation and video models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from trivet.core.errors import MissingExtraError, unknown_name

if TYPE_CHECKING:
    from types import ModuleType

SMALL_IMAGE = 64
"""Largest height and width, in pixels, for which `mobilenet_v2` keeps the resolution at first."""
SMALL_STAGES = [
    [1, 16, 1, 1],
    [6, 24, 2, 1],
    [6, 32, 3, 2],
    [6, 64, 4, 2],
    [6, 96, 3, 1],
    [6, 160, 3, 2],
    [6, 320, 1, 1],
]
"""Expansion, channels, blocks and stride of each stage; the published ones but for the stride of the second."""


def mobilenet_v2(*, num_classes: int, in_channels: int, image_size: tuple[int, int]) -> nn.Module:
    """MobileNetV2 for these images.

    Args:
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Height and width in pixels.

    Raises:
        MissingExtraError: torchvision is not installed.

    Examples:
        >>> model = mobilenet_v2(num_classes=10, in_channels=1, image_size=(28, 28)).eval()
        >>> model(torch.zeros(1, 1, 28, 28)).shape
        torch.Size([1, 10])
    """
    models = _torchvision_models()
    small = max(image_size) <= SMALL_IMAGE
    model = models.MobileNetV2(num_classes=num_classes, inverted_residual_setting=SMALL_STAGES if small else None)
    if small:
        first = _first_conv(model)[1]
        first.stride = (1, 1)
    fit_in_channels(model, in_channels)
    return model


def torchvision_model(name: str, *, num_classes: int, in_channels: int, image_size: tuple[int, int]) -> nn.Module:
    """One of torchvision's classifiers, without weights.

    Args:
        name: torchvision's name, such as `resnet18`.
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Height and width in pixels; the transformers that are built for one size get it.

    Raises:
        ValueError: No such classifier, or it cannot be built for this image size.
        MissingExtraError: torchvision is not installed.

    Examples:
        >>> model = torchvision_model("resnet18", num_classes=10, in_channels=1, image_size=(28, 28)).eval()
        >>> model(torch.zeros(1, 1, 28, 28)).shape
        torch.Size([1, 10])
    """
    models = _torchvision_models()
    known = models.list_models(module=models)
    if name not in known:
        raise ValueError(unknown_name("model of torchvision", name, known))
    options: dict[str, object] = {}
    if name in ("inception_v3", "googlenet"):
        options = {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        options = {"image_size": _square(name, image_size)}
    if name.startswith("maxvit"):
        options = {"input_size": image_size}
    try:
        model = models.get_model(name, weights=None, num_classes=num_classes, **options)
    except (ValueError, RuntimeError) as error:
        size = " × ".join(map(str, image_size))
        raise ValueError(f"torchvision:{name} cannot be built for images of {size}: {error}") from error
    fit_in_channels(model, in_channels)
    return model


def fit_in_channels(model: nn.Module, in_channels: int) -> None:
    """Replace the first convolution, in place, when it does not take this number of channels.

    The new one starts as the published ResNets do: normal, variance 2 / (k² · output channels).

    Raises:
        ValueError: The model has no convolution that takes the image.
    """
    name, old = _first_conv(model)
    if old.in_channels == in_channels:
        return
    new = nn.Conv2d(
        in_channels,
        old.out_channels,
        kernel_size=(old.kernel_size[0], old.kernel_size[1]),
        stride=(old.stride[0], old.stride[1]),
        padding=old.padding if isinstance(old.padding, str) else (old.padding[0], old.padding[1]),
        bias=old.bias is not None,
    )
    nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")
    if new.bias is not None:
        nn.init.zeros_(new.bias)
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, new)


def _first_conv(model: nn.Module) -> tuple[str, nn.Conv2d]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            return name, module
    raise ValueError(f"{type(model).__name__} has no convolution, so its number of input channels cannot be changed")


def _square(name: str, image_size: tuple[int, int]) -> int:
    height, width = image_size
    if height != width:
        raise ValueError(f"torchvision:{name} takes square images; these are {height} × {width}")
    return height


def _torchvision_models() -> ModuleType:
    try:
        from torchvision import models
    except ImportError as error:
        raise MissingExtraError("torchvision", "vision") from error
    return models


def check_output(model: nn.Module, name: str, *, num_classes: int, image_shape: tuple[int, int, int]) -> None:
    """Try a model on one black image, without touching the random numbers or the model's state.

    Raises:
        ValueError: It cannot take the image, or does not give one number a class.
    """
    channels, height, width = image_shape
    size = f"{channels} × {height} × {width}"
    was_training = model.training
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            output = model.eval()(torch.zeros(1, channels, height, width))
    except Exception as error:
        raise ValueError(
            f"model {name!r} fails on an image of {size} (channels × height × width): {type(error).__name__}: {error}; "
            f"take another model or larger images"
        ) from error
    finally:
        model.train(was_training)
    if not isinstance(output, torch.Tensor) or tuple(output.shape) != (1, num_classes):
        found = list(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise ValueError(
            f"model {name!r} gives {found} for one image; allowed: a tensor [1, {num_classes}], one number a class"
        )
