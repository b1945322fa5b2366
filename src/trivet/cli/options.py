"""Options that several verbs share, and what a model and its images are when options leave that open."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="resnet20, mobilenet_v2, torchvision:NAME or python:pkg.mod:fn.")
]
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


def check_place(path: Path, option: str = "--out", suffixes: Sequence[str] = ()) -> None:
    """Refuse a file that cannot be written, before anything is computed; its folders may be missing.

    Args:
        path: The file.
        option: By which it was given, for the message.
        suffixes: Ends of its name that are known; any where none are.

    Raises:
        ValueError: It is a folder, lies where nothing can be written, or ends otherwise.

    Examples:
        >>> check_place(Path("curve.gif"), "--plot", (".svg", ".png"))
        Traceback (most recent call last):
        ...
        ValueError: `--plot curve.gif`: must end in .svg, .png; such as curve.svg
    """
    if suffixes and path.suffix not in suffixes:
        example = path.with_suffix(suffixes[0]).name if path.name else f"out{suffixes[0]}"
        raise ValueError(f"`{option} {path}`: must end in {', '.join(suffixes)}; such as {example}")
    try:
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        is_folder, is_closed = path.is_dir(), path.exists() and not os.access(path, os.W_OK)
    except OSError as error:
        raise ValueError(f"`{option} {path}`: cannot be written ({error.strerror}); choose another file") from error
    if is_folder:
        raise ValueError(f"`{option} {path}` is a folder; name a file in it")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"`{option} {path}`: nothing can be written to {folder}; choose another folder")
    if is_closed:
        raise ValueError(f"`{option} {path}`: the file is write-protected; choose another one")
