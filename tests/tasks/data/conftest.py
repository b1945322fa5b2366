"""Tiny data sets in every file layout."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Arrays = dict[str, np.ndarray]


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture(autouse=True)
def _tiny_data(_own_folders: None) -> None:
    """Takes the place of the fixture of this name one folder up: no data root here but a test's own."""


@pytest.fixture(scope="session")
def encode_idx() -> Callable[[np.ndarray], bytes]:
    return idx_bytes


@pytest.fixture
def make_idx() -> Callable[..., Arrays]:
    """Write an MNIST-like folder; returns what is in it."""

    def make(folder: Path, *, num_train: int = 30, num_test: int = 20, size: int = 28, gz: bool = True) -> Arrays:
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        arrays: Arrays = {}
        for split, stem, count in (("train", "train", num_train), ("test", "t10k", num_test)):
            arrays[f"{split}_images"] = rng.integers(0, 256, (count, size, size), dtype=np.uint8)
            arrays[f"{split}_labels"] = rng.permutation(np.arange(count, dtype=np.uint8) % 10)
            for kind, dims in (("images", 3), ("labels", 1)):
                content = idx_bytes(arrays[f"{split}_{kind}"])
                path = folder / f"{stem}-{kind}-idx{dims}-ubyte"
                if gz:
                    path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
                else:
                    path.write_bytes(content)
        return arrays

    return make


@pytest.fixture
def make_cifar() -> Callable[..., Arrays]:
    """Write a CIFAR folder in torchvision's layout; returns what is in it."""

    def make(folder: Path, *, classes: int = 10, count: int = 20) -> Arrays:
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(1)
        key = b"labels" if classes == 10 else b"fine_labels"
        names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"] if classes == 10 else ["train", "test"]
        pixels, labels = [], []
        for name in names:
            pixels.append(rng.integers(0, 256, (count, 3072), dtype=np.uint8))
            labels.append([i % classes for i in range(count)])
            content = {b"batch_label": b"x", key: labels[-1], b"data": pixels[-1], b"filenames": [b"a.png"] * count}
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))
        train = np.concatenate(pixels[:-1])
        return {
            "train_images": train.reshape(-1, 3, 32, 32),
            "train_labels": np.concatenate(labels[:-1]),
            "test_images": pixels[-1].reshape(-1, 3, 32, 32),
            "test_labels": np.array(labels[-1]),
        }

    return make


@pytest.fixture
def make_npz() -> Callable[..., None]:
    """Write `train.npz` and `test.npz` with plain arrays."""

    def make(folder: Path, *, shape: tuple[int, ...] = (32, 32, 3), classes: int = 10) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for split in ("train", "test"):
            labels = np.arange(2 * classes) % classes
            np.savez(folder / f"{split}.npz", x=np.full((2 * classes, *shape), 7, np.uint8), y=labels)

    return make
