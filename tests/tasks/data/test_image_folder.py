"""A user's own images in folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trivet.core.errors import MissingDataError, MissingExtraError
from trivet.tasks.data import UnusableDataError, check_images, load_images
from trivet.tasks.data.image_folder import parse, read_image

Image = pytest.importorskip("PIL.Image", reason="needs Pillow (extra vision)")


def save(path: Path, pixels: np.ndarray, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pets"
    for split, count in (("train", 3), ("test", 2)):
        for value, name in enumerate(("cat", "dog")):
            for index in range(count):
                save(root / split / name / f"{index}.png", np.full((40, 40, 3), 50 * value + index, np.uint8))
    return root


def test_layout_classes_and_order(folder: Path) -> None:
    check_images(f"image-folder:{folder}")
    data = load_images(f"image-folder:{folder}")
    assert data.classes == ("cat", "dog")
    assert data.image_shape == (3, 32, 32)
    assert data.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.train_images[:, 0, 0, 0].tolist() == [0, 1, 2, 50, 51, 52]
    assert data.test_images[:, 2, 31, 31].tolist() == [0, 1, 50, 51]


def test_size_gray_val_and_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "test").rename(folder / "val")
    data = load_images(f"image-folder:{folder}@20:gray")
    assert data.image_shape == (1, 20, 20)
    assert load_images("image-folder:pets@20", data_root=folder.parent).image_shape == (3, 20, 20)
    monkeypatch.chdir(folder.parent)
    assert load_images("image-folder:pets@20").image_shape == (3, 20, 20)


def test_a_path_with_an_at_sign() -> None:
    assert parse("image-folder:a@b@16").path == Path("a@b")
    assert parse("image-folder:a@b").path == Path("a@b")


def test_subfolders_jpeg_and_hidden_files(folder: Path) -> None:
    save(folder / "train" / "cat" / "more" / "deep.JPG", np.full((8, 8, 3), 200, np.uint8), format="JPEG")
    (folder / "train" / "cat" / ".hidden.png").write_bytes(b"x")
    (folder / "train" / "cat" / "notes.txt").write_text("x")
    (folder / "train" / ".cache").mkdir()
    data = load_images(f"image-folder:{folder}")
    assert data.train_labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert data.train_images[3].min() > 190


def test_middle_square_is_cut_and_resized(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 255
    save(tmp_path / "wide.png", pixels)
    save(tmp_path / "tall.png", pixels.transpose(1, 0, 2).copy())
    for name in ("wide.png", "tall.png"):
        assert read_image(tmp_path / name, size=10).min() == 255
        assert read_image(tmp_path / name, size=20)[:, 5:15, 5:15].min() == 255


def test_halving_is_the_mean_of_neighbors(tmp_path: Path) -> None:
    pixels = np.kron(np.random.default_rng(0).integers(0, 256, (8, 8, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    save(tmp_path / "a.png", pixels)
    small = read_image(tmp_path / "a.png", size=32)
    np.testing.assert_array_equal(small, pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "LA", "1", "I;16"])
def test_every_kind_of_png(tmp_path: Path, mode: str) -> None:
    gray = np.full((16, 16), 128, np.uint8)
    image = Image.fromarray(gray.astype(np.uint16) << 8) if mode == "I;16" else Image.fromarray(gray).convert(mode)
    image.save(tmp_path / "a.png")
    for as_gray, channels in ((False, 3), (True, 1)):
        pixels = read_image(tmp_path / "a.png", size=16, gray=as_gray)
        assert pixels.shape == (channels, 16, 16)
        assert pixels.dtype == np.uint8
        if mode != "1":
            assert abs(int(pixels[0, 8, 8]) - 128) <= 1


def test_camera_orientation_is_followed(tmp_path: Path) -> None:
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    save(tmp_path / "a.jpg", pixels, exif=exif, quality=95)
    turned = read_image(tmp_path / "a.jpg", size=16)
    assert turned[0, 0, 0] < 50 < 200 < turned[0, 15, 15]


def test_missing_folders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"(?s)no such folder.*allowed: PATH/train/<class>"):
        check_images(f"image-folder:{tmp_path / 'nothing'}")
    (folder / "test").rename(folder / "testing")
    with pytest.raises(MissingDataError, match="no folder test or val"):
        check_images(f"image-folder:{folder}")
    (folder / "train").rename(folder / "training")
    with pytest.raises(MissingDataError, match="no folder train"):
        check_images(f"image-folder:{folder}")


def test_a_misspelt_folder_names_its_neighbor(folder: Path) -> None:
    with pytest.raises(MissingDataError, match=rf"no such folder; did you mean '.*{folder.name}'\?"):
        check_images(f"image-folder:{folder}s")


def test_a_link_that_leads_nowhere_is_not_left_out_in_silence(folder: Path) -> None:
    (folder / "train" / "dog" / "gone.png").symlink_to(folder / "no-such.png")
    with pytest.raises(UnusableDataError, match=r"dog/gone\.png: cannot be read \(not a file, or a link to one"):
        load_images(f"image-folder:{folder}")


def test_class_mismatch(folder: Path) -> None:
    (folder / "test" / "dog").rename(folder / "test" / "dogs")
    with pytest.raises(UnusableDataError, match=r"only in train: \['dog'\]; only in test: \['dogs'\]"):
        load_images(f"image-folder:{folder}")


def test_empty_folders(folder: Path) -> None:
    for path in (folder / "test" / "dog").iterdir():
        path.unlink()
    assert load_images(f"image-folder:{folder}").test_labels.tolist() == [0, 0]
    for path in (folder / "test" / "cat").iterdir():
        path.unlink()
    with pytest.raises(UnusableDataError, match="test: no image"):
        load_images(f"image-folder:{folder}")
    for path in (folder / "train" / "dog").iterdir():
        path.unlink()
    with pytest.raises(UnusableDataError, match="dog: no image"):
        load_images(f"image-folder:{folder}")


def test_no_class_folders(folder: Path) -> None:
    for path in sorted((folder / "train").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(UnusableDataError, match="no class folder"):
        load_images(f"image-folder:{folder}")


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(40)])
def test_damaged_image_is_named(folder: Path, content: bytes) -> None:
    (folder / "train" / "dog" / "1.png").write_bytes(content)
    with pytest.raises(UnusableDataError, match=r"dog/1\.png: cannot be decoded"):
        load_images(f"image-folder:{folder}")


def test_cut_short_image_is_named(folder: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    save(folder / "train" / "dog" / "1.png", noise)
    whole = (folder / "train" / "dog" / "1.png").read_bytes()
    (folder / "train" / "dog" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnusableDataError, match=r"dog/1\.png: cannot be decoded"):
        load_images(f"image-folder:{folder}")


def test_without_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "PIL" else find_spec(name))
    with pytest.raises(MissingExtraError, match=r"pip install 'trivet\[vision\]'"):
        check_images(f"image-folder:{folder}")
