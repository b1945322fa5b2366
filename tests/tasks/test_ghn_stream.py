"""Meta-training on a folder of pictures: streamed and in memory alike, and no class is left out of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trivet.core.config import build, dump_yaml
from trivet.core.errors import ConfigError
from trivet.core.runfolder import RunFolder
from trivet.ghn.meta.config import MetaConfig, MetaDataConfig
from trivet.ghn.meta.images import Images
from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.ghn import Setting
from trivet.tasks.ghn_stream import StreamedImages
from trivet.tasks.ghn_train import train
from trivet.tasks.run import run_task

Image = pytest.importorskip("PIL.Image", reason="needs `pip install 'trivet[vision]'`")
CLASSES = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 training and 20 test pictures of four classes."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for split, count in (("train", 10), ("test", 5)):
        for label in range(CLASSES):
            (root / split / f"c{label}").mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (20, 20 + i, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / f"c{label}" / f"{i}.png")
    return root


def config_of(folder: Path, **data: Any) -> dict[str, Any]:
    return {
        "ghn": {"hid": 8, "virtual_edges": 5, "max_shape": [16, 16, 3, 3], "num_classes": CLASSES},
        "pool": {"size": 3, "max_macs": 3_000_000, "attention": False},
        "data": {"name": f"image-folder:{folder}@16", "validation_images": 12, "shift": 1, "flip": True, **data},
        "training": {"steps": 3, "warmup_steps": 1, "meta_batch": 2, "images": 6, "start_std": 0.5, "log_every": 1},
        "evaluation": {"networks": 2, "images": 8, "batch_size": 8},
    }


def images(folder: Path, **data: Any) -> Images:
    return Setting(build(MetaConfig, config_of(folder, **data)), torch.device("cpu")).images


def test_streamed_images_are_those_in_memory(folder: Path) -> None:
    memory, stream = images(folder), images(folder, stream=True)
    assert isinstance(stream, StreamedImages)
    assert not isinstance(memory, StreamedImages)
    assert memory.num_classes == stream.num_classes == CLASSES
    # Two places a step, as one process sees them; one of two processes; back, as after a resume; a batch shared by two.
    asked = [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
        (1, 1, 2),
        (2, 1, 2),
        (3, 1, 2),
        (0, 1, 2),
        (5, 0, 1),
        (5, 0, 1),
        (6, 0, 1),
    ]
    for step, place, places in asked:
        for one, other in zip(
            memory.batch(step=step, place=place, size=6, places=places),
            stream.batch(step=step, place=place, size=6, places=places),
            strict=True,
        ):
            assert torch.equal(one, other), (step, place)
    for one, other in ((memory.validation, stream.validation), (memory.test, stream.test)):
        for count in (5, 8, 100):
            assert torch.equal(one.head(count).images, other.head(count).images)
            assert torch.equal(one.head(count).labels, other.head(count).labels)


def test_a_crop_depends_on_seed_and_step_alone(folder: Path) -> None:
    plain, straight, jumping = images(folder, stream=True), images(folder, crop=[0.2, 1]), images(folder, crop=[0.2, 1])
    seen = [straight.batch(step=step, place=0, size=6, places=1)[0] for step in range(4)]
    for step in (2, 0, 3):
        assert torch.equal(jumping.batch(step=step, place=0, size=6, places=1)[0], seen[step])
        assert not torch.equal(plain.batch(step=step, place=0, size=6, places=1)[0], seen[step])
    assert torch.equal(plain.test.head(8).images, straight.test.head(8).images)


def test_every_class_is_trained_on_and_judged(folder: Path) -> None:
    for found in (images(folder), images(folder, stream=True)):
        assert found.train.labels.unique().tolist() == list(range(CLASSES))
        assert found.validation.labels.unique().tolist() == list(range(CLASSES))
        assert len(found.test.head(10).labels.unique()) == CLASSES


def test_a_streamed_meta_training_ends_as_one_in_memory(folder: Path, tmp_path: Path) -> None:
    results = []
    threads = torch.get_num_threads()
    for stream in (False, True):
        run = RunFolder(tmp_path / str(stream))
        run.path.mkdir()
        run.config_path.write_text(dump_yaml(config_of(folder, stream=stream)))
        assert run_task(run.path, train) == 0
        assert ("streaming 40 training and 20 test pictures" in run.log_path.read_text()) == stream
        results.append(run.read_result())
    torch.set_num_threads(threads)
    assert results[0].metrics == results[1].metrics
    assert results[0].metrics["val_accuracy_n"] == 2


def test_slips_are_refused(folder: Path, tmp_path: Path) -> None:
    for wrong, said in (
        ({"stream": True}, "`stream` is for pictures in a folder"),
        ({"crop": (0.1, 1)}, "`crop` is for pictures in a folder"),
        ({"name": "image-folder:x", "crop": (0, 1)}, "0 < least ≤ largest ≤ 1"),
        ({"name": "image-folder:x", "crop": (0.1, 1), "stream": False}, "so `stream: false` cannot be"),
    ):
        with pytest.raises(ValueError, match=said):
            MetaDataConfig(**wrong)
    with pytest.raises(ConfigError, match="at most 39"):
        images(folder, stream=True, validation_images=40)
    other = config_of(folder, stream=True)
    other["ghn"]["num_classes"] = 5
    with pytest.raises(ConfigError, match=r"5, with image-folder:.* of 4 classes"):
        _ = Setting(build(MetaConfig, other), torch.device("cpu")).images


def test_a_damaged_picture_is_named(folder: Path) -> None:
    found = images(folder, stream=True)
    paths = sorted((folder / "train").rglob("*.png"))
    sound = {path: path.read_bytes() for path in paths}
    try:
        for path in paths:
            path.write_bytes(sound[path][:100])
        with pytest.raises(UnusableDataError, match=r"train/c\d/\d\.png: cannot be decoded"):
            found.batch(step=0, place=0, size=6, places=1)
    finally:
        for path in paths:
            path.write_bytes(sound[path])
