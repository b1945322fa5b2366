"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): 60,000 color images of 32 × 32.

Read from torchvision's folder layout, which is the original "python version" unpacked (pickles, read by
`safe_pickle`), or from `train.npz` and `test.npz` (`npz`). CIFAR-100 with its 100 fine labels.

Not covered: neither set is in the package, because no licence is stated with them; the 20 coarse labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trivet.tasks.data.base import FolderSource, Layout, SourceInfo, Splits
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.npz import npz_layout
from trivet.tasks.data.safe_pickle import read_plain_pickle

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
CIFAR100_CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel",
    "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip


def read_batch(path: Path, *, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, 3, 32, 32] and labels int64 [N] of one of the pickled files.

    Args:
        path: The file.
        label_key: `labels` in CIFAR-10, `fine_labels` in CIFAR-100.

    Raises:
        UnusableDataError: The file is damaged or holds something else.
    """
    content = read_plain_pickle(path)
    pixels, labels = content.get("data"), content.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        found = f"{pixels.dtype} {list(pixels.shape)}" if isinstance(pixels, np.ndarray) else "no array"
        raise UnusableDataError(f"{path}: found {found} under `data`; allowed: uint8 [N, 3072]")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels) or len(labels) != len(pixels):
        raise UnusableDataError(
            f"{path}: found no list of {len(pixels)} whole numbers under `{label_key}`; get the file again"
        )
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def _read_cifar10(paths: list[Path]) -> Splits:
    batches = [read_batch(path, label_key="labels") for path in paths]
    images, labels = zip(*batches[:-1], strict=True)
    return Splits(np.concatenate(images), np.concatenate(labels), *batches[-1])


def _read_cifar100(paths: list[Path]) -> Splits:
    train, test = (read_batch(path, label_key="fine_labels") for path in paths)
    return Splits(train[0].copy(), train[1], test[0].copy(), test[1])


def _info(number: int, megabytes: int) -> SourceInfo:
    name = f"cifar{number}"
    return SourceInfo(
        name=name,
        title=f"CIFAR-{number}, small color photos",
        num_train=50_000,
        num_test=10_000,
        shape="3 × 32 × 32",
        num_classes=number,
        licence="none stated by its authors",
        how_to_get=f"`trivet data fetch {name}` ({megabytes} MB), or put train.npz and test.npz into a folder `{name}` "
        "in a data root",
    )


CIFAR10 = FolderSource(
    info=_info(10, 170),
    classes=CIFAR10_CLASSES,
    layouts=(
        Layout(
            folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10", "."),
            files=(*((f"data_batch_{index}",) for index in range(1, 6)), ("test_batch",)),
            read=_read_cifar10,
        ),
        npz_layout("cifar10", "."),
    ),
)
CIFAR100 = FolderSource(
    info=_info(100, 169),
    classes=CIFAR100_CLASSES,
    layouts=(
        Layout(
            folders=("cifar-100-python", "cifar100/cifar-100-python", "cifar100", "."),
            files=(("train",), ("test",)),
            read=_read_cifar100,
        ),
        npz_layout("cifar100", "."),
    ),
)
