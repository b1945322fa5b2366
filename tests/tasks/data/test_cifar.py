"""CIFAR in torchvision's folder layout."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trivet.core.errors import MissingDataError
from trivet.tasks.data import UnusableDataError, check_images, load_images
from trivet.tasks.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES


@pytest.mark.parametrize(
    ("name", "folder", "classes", "count"),
    [
        ("cifar10", "cifar-10-batches-py", 10, 20),
        ("cifar10", "cifar10/cifar-10-batches-py", 10, 20),
        ("cifar100", "cifar-100-python", 100, 100),
        ("cifar100", ".", 100, 100),
    ],
)
def test_layout(
    tmp_path: Path, make_cifar: Callable[..., dict], name: str, folder: str, classes: int, count: int
) -> None:
    expected = make_cifar(tmp_path / folder, classes=classes, count=count)
    check_images(name, data_root=tmp_path)
    data = load_images(name, data_root=tmp_path)
    for key, array in expected.items():
        np.testing.assert_array_equal(getattr(data, key), array)
        assert getattr(data, key).flags.writeable
    assert data.num_classes == classes


def test_same_as_torchvision(tmp_path: Path, make_cifar: Callable[..., dict], monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("torchvision.datasets", reason="needs torchvision (extra vision)")
    make_cifar(tmp_path / "cifar-10-batches-py")
    meta = {b"label_names": [name.encode() for name in CIFAR10_CLASSES]}
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(
        pickle.dumps({key.decode(): [n.decode() for n in value] for key, value in meta.items()})
    )
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5=None: True)

    def text_keys(file: object, **_: object) -> dict[str, object]:
        content = pickle.Unpickler(file, encoding="bytes").load()  # type: ignore[arg-type]
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}

    monkeypatch.setattr("torchvision.datasets.cifar.pickle.load", text_keys)
    data = load_images("cifar10", data_root=tmp_path)
    for train, images, labels in (
        (True, data.train_images, data.train_labels),
        (False, data.test_images, data.test_labels),
    ):
        reference = datasets.CIFAR10(str(tmp_path), train=train)
        np.testing.assert_array_equal(images.transpose(0, 2, 3, 1), reference.data)
        assert labels.tolist() == reference.targets
        assert list(data.classes) == reference.classes


def test_class_names() -> None:
    assert len(CIFAR10_CLASSES) == len(set(CIFAR10_CLASSES)) == 10
    assert len(CIFAR100_CLASSES) == len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"labels": [0] * 20}, "found no array under `data`"),
        (
            {b"labels": [0] * 20, b"data": np.zeros((20, 100), np.uint8)},
            r"uint8 \[20, 100\].*allowed: uint8 \[N, 3072\]",
        ),
        ({b"labels": [0] * 20, b"data": np.zeros((20, 3072), np.float32)}, "float32"),
        ({b"labels": [0] * 19, b"data": np.zeros((20, 3072), np.uint8)}, "no list of 20 whole numbers"),
        ({b"data": np.zeros((20, 3072), np.uint8)}, "`labels`"),
        ({b"labels": ["a"] * 20, b"data": np.zeros((20, 3072), np.uint8)}, "whole numbers"),
        ({b"labels": [10] * 20, b"data": np.zeros((20, 3072), np.uint8)}, "with 10 classes"),
    ],
)
def test_damaged_batch(
    tmp_path: Path, make_cifar: Callable[..., dict], content: dict[bytes, object], message: str
) -> None:
    make_cifar(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(UnusableDataError, match=message):
        load_images("cifar10", data_root=tmp_path)


def test_incomplete_folder_says_which_file_is_missing(tmp_path: Path, make_cifar: Callable[..., dict]) -> None:
    make_cifar(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(MissingDataError, match="cifar-10-batches-py is incomplete: no data_batch_4"):
        check_images("cifar10", data_root=tmp_path)
