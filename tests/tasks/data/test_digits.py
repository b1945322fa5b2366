"""The 8 × 8 digits: the table's values, the split, and damaged tables."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from trivet.tasks.data import UnusableDataError, check_images, load_images
from trivet.tasks.data.digits import installed_file, read_digits


def write(path: Path, table: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(",".join(f"{v:g}" for v in row) for row in table).encode(), mtime=0))


def make_table(per_class: int = 10) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 17, (10 * per_class, 64))
    return np.column_stack([values, np.arange(10 * per_class) % 10]).astype(float)


def test_values_and_split(tmp_path: Path) -> None:
    table = make_table()
    write(tmp_path / "digits" / "digits.csv.gz", table)
    images, labels = read_digits(tmp_path / "digits" / "digits.csv.gz")
    np.testing.assert_array_equal(images.reshape(-1, 64), np.rint(table[:, :64] / 16 * 255))
    np.testing.assert_array_equal(labels, table[:, 64])
    check_images("digits", data_root=tmp_path)
    data = load_images("digits", data_root=tmp_path)
    assert data.image_shape == (1, 8, 8)
    assert np.bincount(data.train_labels).tolist() == [8] * 10
    assert np.bincount(data.test_labels).tolist() == [2] * 10
    assert load_images("digits", data_root=tmp_path).fingerprint == data.fingerprint
    rows = {image.tobytes() for image in data.train_images} | {image.tobytes() for image in data.test_images}
    assert rows == {image.tobytes() for image in images}


def test_installed_scikit_learn_is_found_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "sklearn"
    write(package / "datasets" / "data" / "digits.csv.gz", make_table())
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "sklearn", raising=False)
    assert installed_file() == package / "datasets" / "data" / "digits.csv.gz"
    assert load_images("digits").source == str(installed_file())


def test_same_as_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")
    reference = datasets.load_digits()
    path = installed_file()
    assert path is not None
    images, labels = read_digits(path)
    np.testing.assert_array_equal(images[:, 0], np.rint(reference.images * (255 / 16)))
    np.testing.assert_array_equal(labels, reference.target)
    data = load_images("digits")
    assert (len(data.train_labels), len(data.test_labels)) == (1438, 359)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable table|found a table"),
        (b"no gzip", "damaged"),
        (gzip.compress(b"1,2,3\n", mtime=0), r"found a table \[1, 3\]"),
        (gzip.compress(b"1,x,3\n", mtime=0), "not a readable table"),
        (gzip.compress(b",".join([b"17"] * 65), mtime=0), "from 0 to 16"),
        (gzip.compress(b",".join([b"nan"] * 65), mtime=0), "from 0 to 16"),
        (gzip.compress(b",".join([b"3"] * 65) * 40, mtime=0)[:-20], "damaged"),
    ],
)
def test_damaged_table(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(content)
    with pytest.raises(UnusableDataError, match=message):
        read_digits(path)
