"""Options that several verbs share, and what a model and its images are when options leave that open."""

from __future__ import annotations

import re
from typing import Annotated

import typer

WidthOption = Annotated[int, typer.Option("--width", help="Channels of the first stage of resnet…")]
InputOption = Annotated[
    str, typer.Option("--input", metavar="CxHxW", help="Image size; 3x32x32, or 3x224x224 for torchvision.")
]
ClassesOption = Annotated[int, typer.Option("--classes", help="Outputs; 10, or 1000 for torchvision models.")]
StudySetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the study; repeatable.")
]


def image_shape(model: str, text: str, classes: int) -> tuple[list[int], int]:
    """Shape of an image (channels, height, width) and number of classes, from `--input` and `--classes`.

    Raises:
        ValueError: The text is no such shape, or the number is negative.

    Examples:
        >>> image_shape("resnet20", "", 0), image_shape("torchvision:resnet18", "1x28x28", 5)
        (([3, 32, 32], 10), ([1, 28, 28], 5))
    """
    is_large = model.startswith("torchvision:")
    text = text or ("3x224x224" if is_large else "3x32x32")
    if not re.fullmatch(r"[1-9]\d*[x×,][1-9]\d*[x×,][1-9]\d*", text):
        raise ValueError(f"`--input {text}`: must be CHANNELSxHEIGHTxWIDTH; such as 3x32x32")
    if classes < 0:
        raise ValueError(f"`--classes {classes}`: must be at least 1; leave it out for {1000 if is_large else 10}")
    return [int(part) for part in re.split("[x×,]", text)], classes or (1000 if is_large else 10)
