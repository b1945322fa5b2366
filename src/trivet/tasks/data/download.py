"""Downloads, only when a user asks for one by name; the one place of trivet's data code that uses the network.

torchvision does the work (extra `vision`): it knows the addresses and checks the MD5 sums.

Not covered: resuming a download.
"""

from __future__ import annotations

import logging
from pathlib import Path

from trivet.core.errors import MissingDataError, MissingExtraError, unknown_name
from trivet.tasks.data.base import default_root
from trivet.tasks.data.sources import find_source

logger = logging.getLogger(__name__)

CLASSES = {"fashion-mnist": "FashionMNIST", "mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}
"""Names that can be fetched, and torchvision's classes for them."""


def fetch(name: str, root: Path | str | None = None) -> str:
    """Download a data set into a folder, where `load_images` finds it afterwards.

    Args:
        name: `fashion-mnist` (the full set), `mnist`, `cifar10` or `cifar100`.
        root: Folder to download into; the cache folder, which is always searched, when not given.

    Returns:
        The folder in which the files lie.

    Raises:
        ValueError: A name that cannot be fetched.
        MissingExtraError: torchvision is not installed.
        MissingDataError: The download failed.
    """
    plain = name.removesuffix(":full")
    if plain not in CLASSES:
        raise ValueError(unknown_name("data set to fetch", name, CLASSES))
    try:
        from torchvision import datasets
    except ImportError as error:
        raise MissingExtraError("torchvision", "vision") from error
    target = (default_root() if root is None else Path(root)).expanduser()
    target.mkdir(parents=True, exist_ok=True)
    logger.info("downloading %s into %s", plain, target)
    try:
        for train in (True, False):
            getattr(datasets, CLASSES[plain])(root=str(target), train=train, download=True)
    except (OSError, RuntimeError) as error:
        source = find_source("fashion-mnist:full" if plain == "fashion-mnist" else plain)
        raise MissingDataError(
            f"{plain} could not be downloaded into {target} ({error}); try again later, or: {source.info.how_to_get}"
        ) from error
    return find_source(plain).locate(target).place
