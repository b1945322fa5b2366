"""Videos from every kind of place, against arrays that are known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.core.errors import MissingDataError, MissingExtraError
from trivet.tasks.data.egomotion import egomotion
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.video import load_video, natural, resized


@pytest.fixture
def frames() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (12, 3, 6, 8), dtype=np.uint8)


def pictures(folder: Path, frames: np.ndarray) -> Path:
    """Frames as PNG files, whose names sort otherwise as text than as numbers."""
    image = pytest.importorskip("PIL.Image")
    folder.mkdir()
    for index, frame in enumerate(frames):
        image.fromarray(frame.transpose(1, 2, 0)).save(folder / f"{index}_cam.png")
    return folder


@pytest.mark.parametrize("kind", ["npz", "npz-one", "npy", "channels-last", "folder"])
def test_every_place_gives_the_same_frames(kind: str, frames: np.ndarray, tmp_path: Path) -> None:
    if kind == "folder":
        path = pictures(tmp_path / "f", frames)
    elif kind.startswith("npz"):
        path = tmp_path / "v.npz"
        np.savez(path, **({"frames": frames, "other": np.zeros(3)} if kind == "npz" else {"x": frames}))
    else:
        path = tmp_path / "v.npy"
        np.save(path, frames if kind == "npy" else frames.transpose(0, 2, 3, 1))
    video = load_video(str(path), height=6, width=8)
    np.testing.assert_array_equal(video.frames, frames)
    np.testing.assert_array_equal(load_video(str(path), height=6, width=8, frames=5).frames, frames[:5])
    changes = np.diff(frames[3:9].astype(float) / 255, axis=0)
    assert video.copy_mse(4, 9) == pytest.approx((changes**2).mean(), rel=1e-12)


def test_a_video_file_gives_its_frames(tmp_path: Path) -> None:
    """Written without loss by the same library; a container, its order and its number of frames."""
    av = pytest.importorskip("av")
    path = tmp_path / "v.mkv"
    shown = [np.full((16, 16, 3), 10 * index, np.uint8) for index in range(9)]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width = stream.height = 16
        stream.pix_fmt = "bgr0"
        for picture in shown:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    video = load_video(str(path), height=16, width=16)
    np.testing.assert_array_equal(video.frames, np.stack(shown).transpose(0, 3, 1, 2))
    assert len(load_video(str(path), height=4, width=4, frames=2).frames) == 2


@pytest.mark.parametrize(("old", "new"), [((6, 8), (3, 4)), ((6, 8), (3, 2)), ((5, 7), (3, 4)), ((4, 4), (9, 6))])
def test_resized_is_the_mean_of_the_area(old: tuple[int, int], new: tuple[int, int]) -> None:
    """Grown by whole numbers until both sizes divide it, a picture can be averaged in blocks."""
    frame = np.random.default_rng(1).integers(0, 256, (2, *old), dtype=np.uint8)
    fine = frame.repeat(new[0], 1).repeat(new[1], 2).astype(np.int64)
    means = torch.from_numpy(fine.astype(float)).unfold(1, old[0], old[0]).unfold(2, old[1], old[1]).mean((3, 4))
    np.testing.assert_array_equal(
        resized(frame, height=new[0], width=new[1]), (means + 0.5 + 1e-9).floor().to(torch.uint8).numpy()
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 255), st.tuples(*[st.integers(1, 9)] * 4))
def test_a_plain_picture_stays_as_it_is(value: int, sizes: tuple[int, int, int, int]) -> None:
    frame = np.full((1, *sizes[:2]), value, np.uint8)
    assert (resized(frame, height=sizes[2], width=sizes[3]) == value).all()


def test_grey_is_the_weighted_mean_of_the_colours(frames: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", frames)
    grey = load_video(str(tmp_path / "v.npy"), height=6, width=8, channels=1).frames
    expected = np.einsum("c,nchw->nhw", [0.299, 0.587, 0.114], frames)
    assert np.abs(grey[:, 0] - expected).max() <= 0.5 + 1e-9
    np.save(tmp_path / "g.npy", frames[:, 0])
    np.testing.assert_array_equal(
        load_video(str(tmp_path / "g.npy"), height=6, width=8, channels=1).frames[:, 0], frames[:, 0]
    )


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["a/10.png", "a/9.png", "a/9b.png", "b1.png", "a2/1.png"]
    assert sorted(names, key=natural) == ["a2/1.png", "a/9.png", "a/9b.png", "a/10.png", "b1.png"]


def test_egomotion_is_the_same_every_time_and_moves() -> None:
    long, short = egomotion(40, height=12, width=16), egomotion(9, height=12, width=16)
    np.testing.assert_array_equal(long[:9], short)
    assert (egomotion(9, height=12, width=16, seed=1) != short).any()
    changes = (np.diff(long.astype(float) / 255, axis=0) ** 2).mean((1, 2, 3))
    assert (changes > 1e-4).all()
    assert 0.003 < changes.mean() < 0.03
    assert long.std((0, 2, 3)).min() > 20


def test_what_is_missing_is_said_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"(?s)'no-such.mp4' is not on this machine.*looked for.*data root"):
        load_video("no-such.mp4", height=4, width=4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingDataError, match="holds no picture"):
        load_video(str(tmp_path / "empty"), height=4, width=4)


def test_damaged_and_mixed_pictures_are_refused(frames: np.ndarray, tmp_path: Path) -> None:
    folder = pictures(tmp_path / "f", frames[:3])
    (folder / "3_cam.png").write_bytes(b"no picture")
    with pytest.raises(UnusableDataError, match=r"3_cam.png: cannot be decoded"):
        load_video(str(folder), height=4, width=4)
    pictures(tmp_path / "g", frames[:1, :, :4])
    (tmp_path / "g" / "0_cam.png").rename(folder / "3_cam.png")
    with pytest.raises(UnusableDataError, match=r"3_cam.png: 8 × 4 pixels, and 0_cam.png has 8 × 6"):
        load_video(str(folder), height=4, width=4)
    assert len(load_video(str(folder), height=4, width=4, frames=3).frames) == 3


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 4, 4), np.float32), "found float32"),
        (np.zeros((3, 4), np.uint8), "found uint8"),
        (np.zeros((3, 2, 4, 4), np.uint8), r"\[3, 2, 4, 4\]"),
        (np.zeros((0, 3, 4, 4), np.uint8), "no frame in it"),
        (np.zeros((3, 3, 0, 4), np.uint8), "hold no pixel"),
    ],
)
def test_arrays_of_other_forms_are_refused(array: np.ndarray, words: str, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", array)
    with pytest.raises(UnusableDataError, match=words):
        load_video(str(tmp_path / "v.npy"), height=2, width=2)


def test_files_that_are_no_array_or_video_are_refused(tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_text("no array")
    with pytest.raises(UnusableDataError, match="not a readable numpy array"):
        load_video(str(tmp_path / "v.npy"), height=2, width=2)
    np.savez(tmp_path / "v.npz", a=np.zeros(2), b=np.zeros(2))
    with pytest.raises(UnusableDataError, match="allowed: frames, or a single one"):
        load_video(str(tmp_path / "v.npz"), height=2, width=2)
    (tmp_path / "w.npz").write_text("no archive")
    with pytest.raises(UnusableDataError, match="it begins with b'no', and such a file with b'PK'"):
        load_video(str(tmp_path / "w.npz"), height=2, width=2)
    pytest.importorskip("av")
    (tmp_path / "v.txt").write_text("a text, which FFmpeg would draw\n" * 20)
    with pytest.raises(UnusableDataError, match=r"v\.txt: there is no picture in it"):
        load_video(str(tmp_path / "v.txt"), height=2, width=2)
    (tmp_path / "v.mp4").write_text("no video")
    with pytest.raises(UnusableDataError, match="cannot be decoded as a video"):
        load_video(str(tmp_path / "v.mp4"), height=2, width=2)


@pytest.mark.parametrize(("package", "name"), [("av", "v.mp4"), ("PIL", "f")])
def test_a_package_that_is_not_installed_is_named(
    package: str, name: str, frames: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures(tmp_path / "f", frames[:2])
    (tmp_path / "v.mp4").write_text("no video")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"trivet\[video\]"):
        load_video(str(tmp_path / name), height=2, width=2)


def test_real_videos(shared_dir: Path) -> None:
    """A folder of 2,607 pictures whose numbers are not padded, and an MPEG-4 file."""
    folder = shared_dir / "data" / "donkey_first_person" / "images"
    video = load_video(str(folder), height=24, width=32, frames=30)
    assert video.frames.shape == (30, 3, 24, 32)
    assert 0.001 < video.copy_mse(0, 30) < 0.05
    pytest.importorskip("av")
    clip = load_video(str(shared_dir / "data" / "lane_video" / "solidWhiteRight.mp4"), height=24, width=32, frames=10)
    assert clip.frames.shape == (10, 3, 24, 32)
    assert 0 < clip.copy_mse(0, 10) < 0.01
