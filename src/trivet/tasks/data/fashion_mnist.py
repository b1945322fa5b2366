"""Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747): a part inside the package, the full set from a folder.

The embedded part has 10,000 train and 2,000 test images, the same number of each class; how they were chosen is in
`embedded/README.md`. Its first 10·k images are k of every class.

Not covered: comparison of the part with published figures, which use the full set.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trivet.tasks.data.base import FolderSource, Layout, Located, SourceInfo, Splits, checked
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.idx import read_idx
from trivet.tasks.data.image_data import ImageData
from trivet.tasks.data.npz import npz_layout, read_arrays

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
LICENCE = "MIT, © 2017 Zalando SE"
DEBIAN_ROOT = Path("/usr/share/datasets")
EMBEDDED = Path(__file__).parent / "embedded"


def idx_layout(*folders: str) -> Layout:
    """The four IDX files of MNIST-like sets, plain or gzip-compressed, in one of these folders.

    Examples:
        >>> idx_layout("MNIST/raw").files[0]
        ('train-images-idx3-ubyte.gz', 'train-images-idx3-ubyte')
    """
    stems = [f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    return Layout(folders=folders, files=tuple((f"{stem}.gz", stem) for stem in stems), read=_read_idx)


def _read_idx(paths: Sequence[Path]) -> Splits:
    train_images, train_labels, test_images, test_labels = (
        read_idx(path, num_dims=3 if "images" in path.name else 1) for path in paths
    )
    return Splits(train_images[:, None], train_labels, test_images[:, None], test_labels)


FULL = FolderSource(
    info=SourceInfo(
        name="fashion-mnist:full",
        title="Fashion-MNIST, articles of clothing",
        num_train=60_000,
        num_test=10_000,
        shape="1 × 28 × 28",
        num_classes=10,
        licence=LICENCE,
        how_to_get="`trivet data fetch fashion-mnist` (30 MB), or on Debian and Ubuntu "
        "`apt-get install dataset-fashion-mnist`; `fashion-mnist` without a data root is the part inside the package",
    ),
    classes=CLASSES,
    layouts=(
        idx_layout("FashionMNIST/raw", "fashion-mnist", "fashion_mnist", "."),
        npz_layout("fashion-mnist", "fashion_mnist", "."),
    ),
    more_roots=(DEBIAN_ROOT,),
)


PART = SourceInfo(
    name="fashion-mnist",
    title="Fashion-MNIST, a balanced part of it",
    num_train=10_000,
    num_test=2_000,
    shape="1 × 28 × 28",
    num_classes=10,
    licence=LICENCE,
    how_to_get="it is inside the package; `fashion-mnist:full` is the whole set",
)


@dataclass(frozen=True, slots=True)
class FashionMNIST:
    """The embedded part; with a data root the full set from there.

    Examples:
        >>> FashionMNIST().locate(None).read().train_images.shape
        (10000, 1, 28, 28)
    """

    info: SourceInfo = PART
    """What it is."""
    folder: Path = EMBEDDED
    """Folder that holds `fashion_mnist.npz` and `manifest.json`."""

    def locate(self, data_root: Path | None) -> Located:
        """The package's own folder; with a data root, the full set in that root and nowhere else."""
        if data_root is not None:
            return FULL.locate_in([data_root.expanduser()])
        return Located("inside the package", self._read)

    def _read(self) -> ImageData:
        path = self.folder / "fashion_mnist.npz"
        manifest = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        shapes = {name: entry["shape"] for name, entry in manifest["arrays"].items()}
        try:
            arrays = read_arrays(path)
        except UnusableDataError as error:
            raise _damaged(path) from error
        if {name: list(array.shape) for name, array in arrays.items()} != shapes:
            raise _damaged(path)
        return checked(
            Splits(
                arrays["train_images"][:, None],
                arrays["train_labels"],
                arrays["test_images"][:, None],
                arrays["test_labels"],
            ),
            info=self.info,
            classes=CLASSES,
            place="inside the package",
        )


def _damaged(path: Path) -> UnusableDataError:
    return UnusableDataError(
        f"{path}: the data inside the package is damaged; reinstall it with: pip install --force-reinstall trivet"
    )
