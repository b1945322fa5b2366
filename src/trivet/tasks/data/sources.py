"""Image data by name.

`fashion-mnist` (inside the package), `fashion-mnist:full`, `digits`, `mnist`, `cifar10`, `cifar100`,
`image-folder:PATH`. Nothing here touches the network, and nothing is opened before a source is read.

Not covered: data that is not labelled images.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from trivet.core.errors import MissingDataError, MissingExtraError, unknown_name
from trivet.core.registry import Registry
from trivet.tasks.data import cifar, digits, fashion_mnist, image_folder, mnist
from trivet.tasks.data.base import ImageSource, SourceInfo
from trivet.tasks.data.image_data import ImageData

SOURCES: Registry[ImageSource] = Registry("data source")
for _source in (
    fashion_mnist.FashionMNIST(),
    fashion_mnist.FULL,
    digits.Digits(),
    mnist.MNIST,
    cifar.CIFAR10,
    cifar.CIFAR100,
):
    SOURCES.add(_source.info.name, _source)


def find_source(name: str) -> ImageSource:
    """The source a name means.

    Raises:
        ValueError: No such name (with the nearest one), or a path instead of a name.

    Examples:
        >>> find_source("digits").info.num_classes
        10
    """
    if name.startswith(image_folder.PREFIX):
        return image_folder.parse(name)
    if name in SOURCES:
        return SOURCES.get(name)
    if _looks_like_path(name):
        raise ValueError(
            f"data source {name!r} looks like a path; write 'image-folder:{name}' for a folder of images "
            f"({image_folder.LAYOUT}), or a name with a data root: {', '.join(SOURCES)}"
        )
    raise ValueError(unknown_name("data source", name, [*SOURCES, image_folder.INFO.name]))


def _looks_like_path(name: str) -> bool:
    return name.startswith(("~", ".")) or os.sep in name or "\\" in name or (name != "" and Path(name).exists())


def load_images(name: str, *, data_root: Path | str | None = None) -> ImageData:
    """Read a set of labelled images.

    Args:
        name: One of the names above.
        data_root: Folder to look in first. With one, `fashion-mnist` means the full set from there.

    Raises:
        ValueError: No such name.
        MissingDataError: Not on this machine; the message says where it was looked for and how to get it.
        UnusableDataError: Damaged files, wrong shapes, classes that do not fit.
        MissingExtraError: An optional package is needed to read it.

    Examples:
        >>> data = load_images("fashion-mnist")
        >>> data.train_images.shape, data.classes[0]
        ((10000, 1, 28, 28), 'T-shirt/top')
    """
    return find_source(name).locate(_root(data_root)).read()


def check_images(name: str, *, data_root: Path | str | None = None) -> None:
    """Whether `load_images` would find its files, without opening them.

    Raises:
        ValueError: No such name.
        MissingDataError: Not on this machine.
        MissingExtraError: An optional package is needed to read it.

    Examples:
        >>> check_images("fashion-mnist")
    """
    find_source(name).locate(_root(data_root))


def check_content(name: str) -> int:
    """What `load_images` would refuse, as far as seconds show it; files that have not changed are asked once.

    Returns:
        Number of training images.

    Raises:
        ValueError: No such name.
        MissingDataError: Not on this machine.
        UnusableDataError: A file is damaged; names it.
        MissingExtraError: An optional package is needed to read it.

    Examples:
        >>> check_content("fashion-mnist")
        10000
    """
    source = find_source(name)
    located = source.locate(None)
    if located.check is None:
        return source.info.num_train
    if not located.files:
        return located.check()
    marks = tuple((str(path), (state := path.stat()).st_size, state.st_mtime_ns) for path in located.files)
    if (name, marks) not in _counted:
        _counted[name, marks] = located.check()
    return _counted[name, marks]


_counted: dict[tuple[str, tuple[tuple[str, int, int], ...]], int] = {}


def describe(*, data_root: Path | str | None = None) -> list[SourceInfo]:
    """Every source, with where it is on this machine or how to get it.

    Examples:
        >>> [info.name for info in describe() if info.found == "inside the package"]
        ['fashion-mnist']
    """
    rows = []
    for name in SOURCES:
        source = SOURCES.get(name)
        try:
            place = source.locate(_root(data_root)).place
        except (MissingDataError, MissingExtraError):
            place = ""
        rows.append(dataclasses.replace(source.info, found=place))
    return [*rows, image_folder.INFO]


def _root(data_root: Path | str | None) -> Path | None:
    return None if data_root is None else Path(data_root)
