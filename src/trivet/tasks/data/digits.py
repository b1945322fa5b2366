"""The 8 × 8 digits of the UCI repository, 1,797 of them, as scikit-learn ships them.

The file is one row an image: 64 gray values from 0 to 16, then the digit. Values become round(255 · v / 16). There is
no official split: a fifth of each class, chosen by the hash of its row number, is the test set.

scikit-learn is not imported, only its data file is read. Not covered: the larger UCI original (optdigits.tra and
optdigits.tes).
"""

from __future__ import annotations

import gzip
import importlib.util
import warnings
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from trivet.core.errors import MissingDataError
from trivet.tasks.data.base import ROOT_HINT, Located, SourceInfo, Splits, checked, roots
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.image_data import ImageData
from trivet.tasks.data.select import split_by_class

FILE = "digits.csv.gz"
INFO = SourceInfo(
    name="digits",
    title="UCI handwritten digits, very small",
    num_train=1_438,
    num_test=359,
    shape="1 × 8 × 8",
    num_classes=10,
    licence="CC BY 4.0 (Alpaydin, Kaynak; UCI); scikit-learn's copy BSD-3-Clause",
    how_to_get=f"`pip install scikit-learn`, whose data file is read, or put its {FILE} into a folder `digits` "
    "in a data root",
)


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits, from a data root or from an installed scikit-learn."""

    info: SourceInfo = INFO
    """What it is."""

    def locate(self, data_root: Path | None) -> Located:
        """Search `digits/` in the data roots, then the installed scikit-learn."""
        searched = [root / "digits" / FILE for root in roots(data_root)]
        package = installed_file()
        for path in [*searched, *([package] if package else [])]:
            if path.is_file():
                return Located(str(path), partial(self._read, path))
        lines = ["data set 'digits' is not on this machine"]
        lines += [f"  looked for {path}" for path in searched]
        lines.append(f"  looked for {package}" if package else "  looked for an installed scikit-learn")
        raise MissingDataError("\n".join([*lines, f"  to get it: {self.info.how_to_get}", ROOT_HINT]))

    def _read(self, path: Path) -> ImageData:
        images, labels = read_digits(path)
        train, test = split_by_class(labels, test_share=0.2, salt="digits")
        splits = Splits(images[train], labels[train], images[test], labels[test])
        return checked(splits, info=self.info, classes=tuple("0123456789"), place=str(path))


def installed_file() -> Path | None:
    """Where the installed scikit-learn keeps the file, found without importing it; None when it is not installed."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "datasets" / "data" / FILE


def read_digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, 1, 8, 8] and labels int64 [N].

    Raises:
        UnusableDataError: The file is damaged or has other columns.
    """
    try:
        with gzip.open(path, "rt", encoding="ascii") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = np.loadtxt(file, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UnusableDataError(f"{path}: not a readable table ({error}); it is damaged, get it again") from error
    if table.shape[0] == 0 or table.shape[1] != 65 or not (table.min() >= 0 and table[:, :-1].max() <= 16):
        raise UnusableDataError(
            f"{path}: found a table {list(table.shape)}; allowed: rows of 64 gray values from 0 to 16 and the digit"
        )
    images = np.round(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    return images, table[:, -1].astype(np.int64)
