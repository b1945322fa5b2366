"""Model by name: the one place where a name becomes a module.

A user's callable, `python:pkg.module:function`, gets those of `num_classes`, `in_channels`, `image_size` and `width`
that its signature names, by keyword, and must return a `torch.nn.Module`.

Not covered: pretrained parameters.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

from torch import nn

from trivet.core.errors import nearest
from trivet.models.names import (
    DEFAULT_WIDTH,
    MOBILENET,
    RESNETS,
    SMALL_CNN,
    TORCHVISION,
    check_model_name,
    find_top_level,
    parse_python_name,
)
from trivet.models.resnet import ResNet
from trivet.models.small_cnn import SmallCNN
from trivet.models.vision import check_output, mobilenet_v2, torchvision_model


def build_model(
    name: str,
    *,
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: tuple[int, int] | int = 32,
    width: int = DEFAULT_WIDTH,
) -> nn.Module:
    """Build a classifier with random parameters, drawn from torch's current random state.

    Args:
        name: See `trivet.models.names`.
        num_classes: Outputs.
        in_channels: Channels of the images.
        image_size: Height and width of the images in pixels; one number for square ones.
        width: Channels of a ResNet's first stage.

    Returns:
        The module, in training mode, on the CPU.

    Raises:
        ValueError: No such model, or one that does not fit the images.
        TypeError: A user's callable that returns something else than a module.
        MissingExtraError: torchvision is needed and not installed.

    Examples:
        >>> type(build_model("resnet20", in_channels=1)).__name__
        'ResNet'
    """
    check_model_name(name, width=width)
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    if name in RESNETS:
        depth = int(name.removeprefix("resnet"))
        return ResNet(depth, num_classes=num_classes, in_channels=in_channels, width=width)
    if name == SMALL_CNN:
        return SmallCNN(num_classes, in_channels, size, width=width)
    if name == MOBILENET:
        return mobilenet_v2(num_classes=num_classes, in_channels=in_channels, image_size=size)
    if name.startswith(TORCHVISION):
        wanted = name.removeprefix(TORCHVISION)
        model = torchvision_model(wanted, num_classes=num_classes, in_channels=in_channels, image_size=size)
    else:
        wishes: dict[str, object] = {
            "num_classes": num_classes,
            "in_channels": in_channels,
            "image_size": size,
            "width": width,
        }
        model = _call(name, find_callable(name), wishes)
    check_output(model, name, num_classes=num_classes, image_shape=(in_channels, *size))
    return model


def find_callable(name: str) -> Callable[..., object]:
    """The callable that `python:pkg.module:function` names; its module is imported.

    Raises:
        ValueError: The module or the function is not there, or it cannot be called.

    Examples:
        >>> find_callable("python:trivet.models.resnet:resnet20").__name__
        'resnet20'
    """
    wanted = parse_python_name(name)
    top = wanted.module.partition(".")[0]
    spec = find_top_level(top)
    here = str(Path.cwd())
    if top not in sys.modules and spec is not None and here not in sys.path and _lies_in(spec.origin, here):
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(wanted.module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{wanted.module}.".startswith(f"{error.name}."):
            raise ValueError(f"model {name!r}: found no module {error.name!r}; started in {here}") from error
        raise
    function = getattr(module, wanted.function, None)
    if function is None:
        close = nearest(wanted.function, [key for key, value in vars(module).items() if callable(value)])
        hint = f"; did you mean {close!r}?" if close else ""
        raise ValueError(f"model {name!r}: found no {wanted.function!r} in {module.__file__ or wanted.module}{hint}")
    if not callable(function):
        raise ValueError(f"model {name!r}: {wanted.function!r} is a {type(function).__name__} and cannot be called")
    return function


def _lies_in(origin: str | None, folder: str) -> bool:
    return origin is not None and Path(origin).is_relative_to(folder)


def _call(name: str, function: Callable[..., object], wishes: dict[str, object]) -> nn.Module:
    """Call a user's function with what its signature takes."""
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken: set[str] = set()
    with contextlib.suppress(TypeError, ValueError):  # callables written in C may have no signature to read
        parameters = inspect.signature(function).parameters
        taken = {key for key, parameter in parameters.items() if parameter.kind in by_keyword}
    if "width" not in taken and wishes["width"] != DEFAULT_WIDTH:
        raise ValueError(
            f"`width={wishes['width']}` has no effect: {name!r} takes no `width`; remove one or add the other"
        )
    model = function(**{key: value for key, value in wishes.items() if key in taken})
    if not isinstance(model, nn.Module):
        raise TypeError(f"model {name!r} returned a {type(model).__name__}; it must return a torch.nn.Module")
    return model
