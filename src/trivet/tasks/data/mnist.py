"""MNIST, handwritten digits (LeCun, Cortes, Burges): IDX files or numpy archives in a folder.

Not covered: the files are not in the package, because no licence is stated with them.
"""

from __future__ import annotations

from trivet.tasks.data.base import FolderSource, SourceInfo
from trivet.tasks.data.fashion_mnist import idx_layout
from trivet.tasks.data.npz import npz_layout

MNIST = FolderSource(
    info=SourceInfo(
        name="mnist",
        title="MNIST, handwritten digits",
        num_train=60_000,
        num_test=10_000,
        shape="1 × 28 × 28",
        num_classes=10,
        licence="none stated by its authors",
        how_to_get="`trivet data fetch mnist` (12 MB), or put its four IDX files into a folder `mnist` in a data root",
    ),
    classes=tuple("0123456789"),
    layouts=(idx_layout("MNIST/raw", "mnist", "."), npz_layout("mnist", ".")),
)
