"""Pictures are turned upright as Pillow's own routine turns them, and damage shows before work starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from trivet.tasks.data import load_images
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.picture_files import check_pictures, opened, upright, upright_size
from trivet.tasks.data.video import load_video

pytestmark = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs `pip install 'trivet[vision]'`")


def write_marked(path: Path, mark: int, *, size: tuple[int, int] = (48, 32)) -> Path:
    """A picture whose corners differ, stored as it is and marked as to be turned; JPEG at its best."""
    from PIL import Image

    width, height = size
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2], pixels[: height // 2, width // 2 :] = (250, 20, 20), (20, 250, 20)
    pixels[height // 2 :, : width // 2] = (20, 20, 250)
    exif = Image.Exif()
    exif[0x0112] = mark
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, exif=exif, **({"quality": 100} if path.suffix == ".jpg" else {}))
    return path


@pytest.mark.parametrize("ending", [".jpg", ".png"])
@pytest.mark.parametrize("mark", range(10))
def test_a_picture_is_turned_as_pillow_turns_it(tmp_path: Path, mark: int, ending: str) -> None:
    from PIL import Image, ImageOps

    path = write_marked(tmp_path / f"a{ending}", mark)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    with opened(path) as image:
        assert upright_size(image) == expected.shape[:2]
        np.testing.assert_array_equal(np.asarray(upright(image)), expected)


def test_a_mark_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    path = write_marked(tmp_path / "a.jpg", 6)
    content = path.read_bytes()
    place = content.index(b"Exif\0\0") + 6
    path.write_bytes(content[:place] + b"\xff" * 8 + content[place + 8 :])
    with opened(path) as image:
        assert upright_size(image) == (32, 48)
        assert upright(image).size == (48, 32)


def test_images_and_frames_are_upright_alike(tmp_path: Path) -> None:
    """A quarter turn to the right: the blue corner, stored at the bottom left, comes to the top left."""
    for part in ("train", "test"):
        for kind in ("a", "b"):
            write_marked(tmp_path / "pets" / part / kind / "1.png", 6, size=(40, 40))
    image = load_images(f"image-folder:{tmp_path / 'pets'}@40").train_images[0]
    frame = load_video(str(tmp_path / "pets" / "train" / "a"), height=40, width=40).frames[0]
    assert image[:, 5, 5].tolist() == frame[:, 5, 5].tolist() == [20, 20, 250]
    np.testing.assert_array_equal(image, frame)


def noisy(path: Path, number: int) -> Path:
    from PIL import Image

    pixels = np.random.default_rng(number).integers(0, 256, (60, 80, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize("ending", [".jpg", ".png"])
def test_cut_files_are_found_whatever_the_bound_and_others_within_it(tmp_path: Path, ending: str) -> None:
    files = [noisy(tmp_path / f"{number}{ending}", number) for number in range(4)]
    check_pictures(files)
    content = files[3].read_bytes()
    files[3].write_bytes(content[: len(content) // 2])
    with pytest.raises(UnusableDataError, match=rf"3\{ending}: cannot be decoded"):
        check_pictures(files, limit=1)
    start = content.find(b"IDAT") + 4
    files[3].write_bytes(content[:start] + b"\xff" * 20 + content[start + 20 :])
    if ending == ".png":  # a JPEG with other numbers inside is another picture
        check_pictures(files, limit=2 * 60 * 80)  # the first and the third
        with pytest.raises(UnusableDataError, match=r"3\.png: cannot be decoded"):
            check_pictures(files)
    files[3].write_bytes(b"")
    check_pictures(files, most=2)  # the first and the third
    with pytest.raises(UnusableDataError, match=r"3\.\w+: cannot be decoded"):
        check_pictures(files, most=4)
    files[3].write_bytes(content + b"trailing bytes of some camera")
    check_pictures(files)


def test_a_picture_of_one_pixel_is_one(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("L", (1, 1), 7).save(tmp_path / "a.png")
    check_pictures([tmp_path / "a.png"])
