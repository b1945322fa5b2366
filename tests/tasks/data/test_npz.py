"""`train.npz` and `test.npz`: both forms, every axis order, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.core.errors import MissingExtraError
from trivet.tasks.data import UnusableDataError, check_images, load_images
from trivet.tasks.data.npz import read_npz


@pytest.mark.parametrize(("image_name", "label_name"), [("x", "y"), ("images", "labels")])
@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((5, 8, 9), (0, 1, 2), (5, 1, 8, 9)),
        ((5, 8, 9, 3), (0, 3, 1, 2), (5, 3, 8, 9)),
        ((5, 8, 9, 1), (0, 3, 1, 2), (5, 1, 8, 9)),
        ((5, 3, 8, 9), (0, 1, 2, 3), (5, 3, 8, 9)),
    ],
)
def test_plain_arrays(
    tmp_path: Path, image_name: str, label_name: str, shape: tuple[int, ...], axes: tuple[int, ...], expected: Any
) -> None:
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez_compressed(tmp_path / "a.npz", **{image_name: x, label_name: np.arange(5)})
    images, labels = read_npz(tmp_path / "a.npz")
    assert images.shape == expected
    np.testing.assert_array_equal(images.reshape(expected), x.transpose(axes).reshape(expected))
    assert labels.tolist() == [0, 1, 2, 3, 4]


IMAGES = np.zeros((4, 8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": IMAGES}, r"found the arrays \['a'\]; allowed: x and y"),
        ({"x": IMAGES.astype(np.float32), "y": np.arange(4)}, "found images float32"),
        ({"x": IMAGES[..., :2], "y": np.arange(4)}, "1 or 3 channels"),
        ({"x": IMAGES, "y": np.arange(4.0)}, "found labels float64"),
        ({"x": IMAGES, "y": np.zeros((4, 1), int)}, r"found labels int64 \[4, 1\]"),
        ({"x": np.array([{}], dtype=object), "y": np.arange(4)}, "plain arrays"),
    ],
)
def test_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UnusableDataError, match=message):
        read_npz(tmp_path / "a.npz")


def test_damaged_archives(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=IMAGES, y=np.arange(4))
    whole = (tmp_path / "a.npz").read_bytes()
    single = io.BytesIO()
    np.save(single, IMAGES)
    flipped = bytearray(whole)
    flipped[60] ^= 0xFF
    for content in (b"", b"nothing", whole[:-30], whole[:100], bytes(flipped), single.getvalue()):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(UnusableDataError, match=r"b\.npz"):
            read_npz(tmp_path / "b.npz")


def encoded(images: np.ndarray, file_format: str) -> list[bytes]:
    image_module = pytest.importorskip("PIL.Image", reason="needs Pillow (extra vision)")
    files = []
    for image in images:
        target = io.BytesIO()
        image_module.fromarray(image).save(target, file_format)
        files.append(target.getvalue())
    return files


def blob(files: list[bytes], **changes: Any) -> dict[str, Any]:
    arrays = {
        "jpeg": np.frombuffer(b"".join(files), np.uint8),
        "offsets": np.cumsum([0, *map(len, files)]),
        "label": np.arange(len(files), dtype=np.uint8),
    }
    return arrays | changes


@pytest.mark.parametrize("shape", [(6, 8, 8, 3), (6, 8, 8)])
def test_compressed_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", **blob(encoded(pixels, "PNG")))  # PNG keeps every pixel, so that equality is the test
    images, labels = read_npz(tmp_path / "a.npz")
    expected = pixels.transpose(0, 3, 1, 2) if len(shape) == 4 else pixels[:, None]
    np.testing.assert_array_equal(images, expected)
    assert labels.tolist() == [0, 1, 2, 3, 4, 5]


def test_compressed_images_that_do_not_fit(tmp_path: Path) -> None:
    files = encoded(IMAGES, "JPEG")
    good = blob(files)
    cases = [
        (blob(files, offsets=good["offsets"][:-1]), "one offset more"),
        (blob(files, offsets=good["offsets"] + 1), "rise from 0"),
        (blob(files, offsets=good["offsets"][[0, 2, 1, 3, 4]]), "rise from 0"),
        (blob(files, jpeg=good["jpeg"].astype(np.int64)), "found jpeg int64"),
        (blob([*files[:2], b"no image", files[3]]), "image 2: cannot be decoded"),
        (blob([*files[:3], *encoded(np.zeros((1, 9, 9, 3), np.uint8), "JPEG")]), "image 3 is"),
    ]
    for arrays, message in cases:
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(UnusableDataError, match=message):
            read_npz(tmp_path / "a.npz")


def test_compressed_images_without_pillow_are_refused_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cifar10").mkdir()
    for split in ("train", "test"):
        np.savez(tmp_path / "cifar10" / f"{split}.npz", **blob([b"x"]))
    find_spec = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "PIL" else find_spec(name))
    with pytest.raises(MissingExtraError, match=r"trivet\[vision\]"):
        check_images("cifar10", data_root=tmp_path)


def test_shared_cifar10(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "cifar10"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    pytest.importorskip("PIL", reason="needs Pillow (extra vision)")
    check_images("cifar10", data_root=folder)
    check_images("cifar10", data_root=shared_dir / "data")
    images, labels = read_npz(folder / "test.npz")
    assert images.shape == (10_000, 3, 32, 32)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert 100 < images.mean() < 140  # CIFAR-10's mean pixel is about 121


def test_named_set_refuses_the_wrong_set(tmp_path: Path, make_npz: Any) -> None:
    make_npz(tmp_path)
    assert load_images("cifar10", data_root=tmp_path).image_shape == (3, 32, 32)
    with pytest.raises(UnusableDataError, match="found train images of 10 classes; cifar100 has 100"):
        load_images("cifar100", data_root=tmp_path)
    with pytest.raises(UnusableDataError, match=r"found images of 3 × 32 × 32.*allowed for mnist: 1 × 28 × 28"):
        load_images("mnist", data_root=tmp_path)
