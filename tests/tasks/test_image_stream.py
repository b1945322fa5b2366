"""Pictures decoded when a step needs them: the same batches as in memory, whoever decodes them and in any order."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from trivet.core.config import build
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.tasks import picture_decoder
from trivet.tasks.config import RunConfig
from trivet.tasks.data import image_folder
from trivet.tasks.data.crops import ASPECTS, TRIES, CropDraws
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.image_folder import read_image
from trivet.tasks.image_classification import _pictures
from trivet.tasks.image_stream import Streamed
from trivet.tasks.run import run_task
from trivet.training import ranks

Image = pytest.importorskip("PIL.Image", reason="needs `pip install 'trivet[vision]'`")
MakeRun = Callable[..., RunFolder]
CPU = torch.device("cpu")
CROP = {"crop": [0.08, 1.0], "flip": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 training and 12 test pictures of two classes, PNG and JPEG, of many sizes."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 6)):
        for name in ("bright", "dark"):
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (50 + 3 * i, 80, 3), dtype=np.uint8) // (1 if name == "bright" else 3)
                Image.fromarray(pixels).save(root / split / name / f"{i}.{'png' if i % 2 else 'jpg'}")
    return root


def run_of(folder: Path, **task: Any) -> RunConfig:
    data = f"image-folder:{folder}@24"
    content = {"task": {"data": data, "model": "resnet8", "width": 4, **task}, "seed": 1}
    return build(RunConfig, {**content, "training": {"steps": 6, "batch_size": 8}})


def pictures(folder: Path, **task: Any) -> Any:
    run = run_of(folder, **task)
    assert run.training is not None
    found, num_classes, shape = _pictures(run.task, run.training, run.seed, CPU)  # type: ignore[arg-type]
    assert (num_classes, shape) == (2, (3, 24, 24))
    return found


def test_batches_test_parts_and_statistics_are_those_in_memory(folder: Path) -> None:
    changes = {"augment": {"shift": 3, "flip": True}, "train_examples": 33}
    memory, stream = pictures(folder, **changes), pictures(folder, stream=True, workers=3, **changes)
    assert isinstance(stream, Streamed)
    assert not isinstance(memory, Streamed)
    for one, other in zip(memory.statistics, stream.statistics, strict=True):
        assert torch.equal(one, other)
    for step in (0, 1, 2, 5, 4, 9):  # forwards, back, and behind the end
        for one, other in zip(memory.drawn(step), stream.drawn(step), strict=True):
            assert torch.equal(one, other), step
    for part, other in zip(memory.test_parts(), stream.test_parts(), strict=True):
        assert torch.equal(part[0], other[0])
        assert torch.equal(part[1], other[1])


def test_a_crop_depends_on_seed_and_step_alone(folder: Path) -> None:
    straight, jumping = pictures(folder, augment=CROP, workers=1), pictures(folder, augment=CROP, workers=4)
    seen = [straight.drawn(step)[0] for step in range(6)]
    for step in (4, 0, 5, 2):
        assert torch.equal(jumping.drawn(step)[0], seen[step])
    plain = pictures(folder, stream=True)
    assert not any(torch.equal(plain.drawn(step)[0], seen[step]) for step in range(6))


def test_each_process_decodes_its_part_of_the_same_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = {"augment": {**CROP, "shift": 2}}
    whole = [pictures(folder, **task).drawn(step) for step in range(2)]
    for rank in range(2):
        monkeypatch.setattr(ranks, "current", lambda rank=rank: ranks.Ranks(rank=rank, size=2))
        part = pictures(folder, **task)
        for step in range(2):
            images, labels = part.drawn(step)
            assert torch.equal(images, whole[step][0][4 * rank : 4 * rank + 4])
            assert torch.equal(labels, whole[step][1][4 * rank : 4 * rank + 4])


def test_a_streamed_run_ends_as_one_in_memory(folder: Path, make_run: MakeRun) -> None:
    results = []
    for stream in (False, True):
        task = {"data": f"image-folder:{folder}@24", "model": "resnet8", "width": 4, "stream": stream}
        training = {"steps": 4, "batch_size": 8, "log_every": 1, "evaluate_every": 2, "checkpoint_every": 0}
        run = make_run(
            str(stream), config={"task": task, "training": training, "environment": {"device": "cpu"}, "seed": 2}
        )
        assert run_task(run.path) == 0
        results.append(run.read_result())
        assert ("streaming 40 training and 12 test pictures" in run.log_path.read_text()) == stream
    assert results[0].comparable == results[1].comparable


def test_streaming_begins_by_itself_where_memory_would_not_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folder, "MOST_IN_MEMORY", 52 * 3 * 24 * 24)
    assert not isinstance(pictures(folder), Streamed)
    monkeypatch.setattr(image_folder, "MOST_IN_MEMORY", 52 * 3 * 24 * 24 - 1)
    assert isinstance(pictures(folder), Streamed)
    assert not isinstance(pictures(folder, stream=False), Streamed)


def test_a_picture_damaged_on_the_way_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    stream = pictures(copy, stream=True, workers=1)
    for path in (copy / "train").rglob("*.jpg"):
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UnusableDataError, match=r"train/\w+/\d+\.jpg: cannot be decoded"):
        list(map(stream.drawn, range(6)))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"data": "fashion-mnist", "stream": True}, "`stream` is for pictures in a folder"),
        ({"data": "fashion-mnist", "augment": CROP}, r"`augment\.crop` is for pictures in a folder"),
        ({"augment": CROP, "stream": False}, "so `stream: false` cannot be"),
        ({"augment": {"crop": [0.5, 0.2]}}, "0 < least ≤ largest ≤ 1"),
        ({"workers": 257}, r"must lie in \[0, 256\]"),
    ],
)
def test_slips_are_refused(folder: Path, task: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_of(folder, **task)


def draws(seed: int, shares: tuple[float, float] = (0.08, 1.0)) -> CropDraws:
    return CropDraws(np.random.default_rng(seed).random((TRIES, 4)), shares)


def test_crops_are_distributed_as_those_of_torchvision() -> None:
    transforms = pytest.importorskip("torchvision.transforms", reason="needs `pip install 'trivet[vision]'`")
    torch.manual_seed(0)
    image = torch.zeros(3, 3000, 4000)  # large, so that whole pixels do not matter
    theirs = np.array([transforms.RandomResizedCrop.get_params(image, [0.08, 1.0], list(ASPECTS)) for _ in range(1500)])
    top, left, height, width = theirs.T
    ours = np.array([draws(seed).box(4000, 3000) for seed in range(1500)])
    w, h = (ours[:, 2] - ours[:, 0]) * 4000, (ours[:, 3] - ours[:, 1]) * 3000
    pairs = {
        "area": (w * h, width * height),
        "aspect": (w / h, width / height),
        "left": (ours[:, 0] * 4000, left),
        "top": (ours[:, 1] * 3000, top),
    }
    for name, (one, other) in pairs.items():
        assert ks_2samp(one, other).pvalue > 0.001, name


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(0, 2**32), st.floats(0.01, 1))
def test_a_crop_lies_inside_and_keeps_its_limits(width: int, height: int, seed: int, least: float) -> None:
    left, top, right, bottom = draws(seed, (least, 1.0)).box(width, height)
    assert -1e-12 <= left < right <= 1 + 1e-12
    assert -1e-12 <= top < bottom <= 1 + 1e-12
    aspect = (right - left) * width / ((bottom - top) * height)
    assert ASPECTS[0] - 1e-9 <= aspect <= ASPECTS[1] + 1e-9


def test_a_jpeg_is_cut_where_a_png_is(tmp_path: Path) -> None:
    """A JPEG decoded at a fraction of its size shows the same part; smooth, so that only the place counts."""
    y, x = np.mgrid[0:400, 0:600]
    pixels = np.stack([x * 255 / 600, y * 255 / 400, (x + y) * 255 / 1000], 2).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=98)
    for seed in range(5):
        png, jpeg = (read_image(tmp_path / f"a.{kind}", size=24, draws=draws(seed)) for kind in ("png", "jpg"))
        assert np.abs(png.astype(int) - jpeg).max() <= 6
        left, top, right, bottom = draws(seed).box(600, 400)
        middle = [255 * (left + right) / 2, 255 * (top + bottom) / 2]
        assert np.allclose(png[:2].mean((1, 2)), middle, atol=2), (seed, math.hypot(*middle))


def test_after_damage_on_the_way_the_mended_run_goes_on_to_the_same_bits(
    folder: Path, tmp_path: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And however many threads decode before and after."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    # The picture is first needed at step 4: 8 · 4 of 40 are seen before it.
    late = pictures(copy, augment=CROP).order.indices(4)[0].item()
    path = pictures(copy, augment=CROP).train[late]
    task = {"data": f"image-folder:{copy}@24", "model": "resnet8", "width": 4, "augment": CROP}
    training = {"steps": 7, "batch_size": 8, "log_every": 1, "evaluate_every": 0, "checkpoint_every": 2}
    config = {"task": task, "training": training, "environment": {"device": "cpu"}, "seed": 1}
    whole, cut = make_run("whole", config=config), make_run("cut", config=config)
    assert run_task(whole.path) == 0

    sound, read = path.read_bytes(), picture_decoder.read_image
    monkeypatch.setattr(picture_decoder, "MOST_WORKERS", 1)

    def cut_short(place: Path, *, draws: CropDraws | None = None, **options: Any) -> np.ndarray:
        if place == path and draws is not None:  # after the sample was read: in the middle of training
            path.write_bytes(sound[: len(sound) // 2])
        return read(place, draws=draws, **options)

    monkeypatch.setattr(picture_decoder, "read_image", cut_short)
    assert run_task(cut.path) == 2
    assert f"{path}: cannot be decoded" in cut.error_path.read_text()
    assert cut.checkpoint_path.is_dir()

    monkeypatch.setattr(picture_decoder, "read_image", read)
    monkeypatch.setattr(picture_decoder, "MOST_WORKERS", 3)
    path.write_bytes(sound)
    assert run_task(cut.path) == 0
    assert "resum" in cut.log_path.read_text()
    assert cut.read_result().comparable == whole.read_result().comparable
