"""The Fashion-MNIST subset inside the package, and the script that makes it."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trivet.tasks.data import UnusableDataError, load_images
from trivet.tasks.data.fashion_mnist import DEBIAN_ROOT, EMBEDDED, FashionMNIST

FILES = ("LICENSE.fashion-mnist", "README.md", "fashion_mnist.npz", "manifest.json")


@pytest.fixture(scope="module")
def script(repo: Path) -> ModuleType:
    path = repo / "scripts" / "make_embedded_fashion_mnist.py"
    if not path.is_file():
        pytest.skip(f"needs a checkout of the repository: no {path}")
    spec = importlib.util.spec_from_file_location("make_embedded", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_twice_the_same_bytes(tmp_path: Path, script: ModuleType, make_idx: Callable[..., dict]) -> None:
    make_idx(tmp_path / "in", num_train=300, num_test=100)
    per_class = {"train": 12, "test": 4}
    script.make(tmp_path / "in", tmp_path / "a", per_class=per_class)
    script.make(tmp_path / "in", tmp_path / "b", per_class=per_class)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_choice_and_order(tmp_path: Path, script: ModuleType, make_idx: Callable[..., dict]) -> None:
    source = make_idx(tmp_path / "in", num_train=300, num_test=100, gz=False)
    script.make(tmp_path / "in", tmp_path / "out", per_class={"train": 12, "test": 4})
    arrays = np.load(tmp_path / "out" / "fashion_mnist.npz")
    for split, count in (("train", 12), ("test", 4)):
        index = arrays[f"{split}_index"]
        np.testing.assert_array_equal(arrays[f"{split}_images"], source[f"{split}_images"][index])
        np.testing.assert_array_equal(arrays[f"{split}_labels"], source[f"{split}_labels"][index])
        assert arrays[f"{split}_labels"].tolist() == list(range(10)) * count
        of_three = [i for i, label in enumerate(source[f"{split}_labels"]) if label == 3]
        of_three.sort(key=lambda i: hashlib.sha256(f"2017/{split}/{i}".encode()).hexdigest())
        assert index[3::10].tolist() == of_three[:count]


def test_too_few_images(tmp_path: Path, script: ModuleType, make_idx: Callable[..., dict]) -> None:
    make_idx(tmp_path, num_train=30)
    with pytest.raises(SystemExit, match="found 3 images of class 0; needed: 1000"):
        script.make(tmp_path, tmp_path / "out")
    with pytest.raises(SystemExit, match="dataset-fashion-mnist"):
        script.make(tmp_path / "none", tmp_path / "out")


def test_embedded_files_are_small_and_as_the_manifest_says() -> None:
    assert sum(path.stat().st_size for path in EMBEDDED.iterdir()) <= 6_000_000
    manifest = json.loads((EMBEDDED / "manifest.json").read_text())
    with np.load(EMBEDDED / "fashion_mnist.npz", allow_pickle=False) as arrays:
        assert sorted(arrays.files) == sorted(manifest["arrays"])
        for name, entry in manifest["arrays"].items():
            assert hashlib.sha256(arrays[name].tobytes()).hexdigest() == entry["sha256"]
    licence = (EMBEDDED / "LICENSE.fashion-mnist").read_text()
    assert "2017 Zalando SE" in licence
    assert "Permission is hereby granted, free of charge" in licence


def test_embedded_is_balanced_in_every_prefix() -> None:
    data = load_images("fashion-mnist")
    assert data.train_images.shape == (10_000, 1, 28, 28)
    assert data.test_images.shape == (2_000, 1, 28, 28)
    assert np.bincount(data.train_labels).tolist() == [1000] * 10
    assert np.bincount(data.test_labels).tolist() == [200] * 10
    assert np.bincount(data.train_labels[:130]).tolist() == [13] * 10
    assert data.name == "fashion-mnist"
    assert "MIT" in data.licence


def raw_idx(path: Path) -> np.ndarray:
    content = gzip.decompress(path.read_bytes())
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    return np.frombuffer(content[4 + 4 * content[3] :], np.uint8).reshape(shape)


def test_embedded_comes_from_the_debian_package(script: ModuleType) -> None:
    folder = DEBIAN_ROOT / "fashion-mnist"
    if not folder.is_dir():
        pytest.skip(f"needs the Debian package dataset-fashion-mnist: no {folder}")
    with np.load(EMBEDDED / "fashion_mnist.npz", allow_pickle=False) as arrays:
        embedded = {name: arrays[name] for name in arrays.files}
    for split, stem, count in (("train", "train", 1000), ("test", "t10k", 200)):
        images = raw_idx(folder / f"{stem}-images-idx3-ubyte.gz")
        labels = raw_idx(folder / f"{stem}-labels-idx1-ubyte.gz")
        index = embedded[f"{split}_index"]
        np.testing.assert_array_equal(embedded[f"{split}_images"], images[index])
        np.testing.assert_array_equal(embedded[f"{split}_labels"], labels[index])
        np.testing.assert_array_equal(index, script.select(labels, split=split, per_class=count))


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_damaged_embedded_file(tmp_path: Path, damage: str) -> None:
    content = bytearray((EMBEDDED / "fashion_mnist.npz").read_bytes())
    (tmp_path / "manifest.json").write_bytes((EMBEDDED / "manifest.json").read_bytes())
    if damage == "flip":
        content[2_000_000] ^= 0xFF
    if damage != "gone":
        (tmp_path / "fashion_mnist.npz").write_bytes(content[: 1_000_000 if damage == "cut" else None])
    with pytest.raises(UnusableDataError, match="reinstall"):
        FashionMNIST(folder=tmp_path).locate(None).read()
