"""Tasks drawn from several sources: what occurs where, whatever the configuration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.core.errors import ConfigError
from trivet.ghn.meta.config import MetaDataConfig
from trivet.ghn.meta.images import Images, Split
from trivet.ghn.meta.networks import PoolNetwork
from trivet.ghn.meta.task_config import TaskKind, TasksConfig
from trivet.ghn.meta.tasks import Source, Tasks, brought, nearest_mean_accuracy, support_of

CLASSES, TRAIN, TEST = 6, 24, 10
DATA = MetaDataConfig(image_size=8, channels=1)
KINDS: tuple[TaskKind, ...] = ("train", "val", "test")


def make_source(name: str) -> Source:
    """Each image is its own number all over; half of the first row shows which way up it is."""

    def split(first: int, count: int) -> Split:
        numbers = torch.arange(first, first + CLASSES * count, dtype=torch.uint8)
        images = numbers.view(-1, 1, 1, 1).repeat(1, 1, 8, 8)
        images[:, :, 0, 1:4] = 255
        return Split(images, torch.arange(CLASSES * count) % CLASSES)

    return Source(name, split(0, TRAIN), split(CLASSES * TRAIN, TEST))


SOURCES = [make_source("a"), make_source("b")]


def make_tasks(**changes: Any) -> Tasks:
    config: dict[str, Any] = {"sources": ("a", "b"), "ways": 3, "shots": 4, "held_out": 0.5, **changes}
    return Tasks(SOURCES, TasksConfig(**config), DATA, query=8)


def numbers(split: Split) -> set[int]:
    return set(split.images[:, 0, 4, 4].tolist())


def true_classes(split: Split) -> list[int]:
    """Which class of its source each image is of."""
    return [number % CLASSES for number in split.images[:, 0, 4, 4].tolist()]


@given(
    seed=st.integers(0, 50),
    turns=st.booleans(),
    held_out=st.sampled_from([0.34, 0.5]),
    second=st.sampled_from(["seen", "held out"]),
)
@settings(max_examples=15, deadline=None)
def test_classes_held_out_never_occur_in_training(seed: int, turns: bool, held_out: float, second: str) -> None:
    names = {"sources": ("a", "b")} if second == "seen" else {"sources": ("a",), "held_out_sources": ("b",)}
    tasks = make_tasks(seed=seed, turns=turns, held_out=held_out, ways=2, **names)
    found: dict[TaskKind, set[tuple[str, int]]] = {kind: set() for kind in KINDS}
    for kind in KINDS:
        for number in range(12):
            drawn = tasks.choose(kind, number)
            found[kind] |= {(drawn.source.name, label) for label, _ in drawn.classes}
            task = tasks.draw(kind, number, 8)
            for split in (task.train, task.test, task.validation):
                shown = set(zip(true_classes(split), split.labels.tolist(), strict=True))
                assert shown <= {(label, place) for place, (label, _) in enumerate(drawn.classes)}
    assert not found["test"] & (found["train"] | found["val"])
    if second == "held out":
        assert all(name == "a" for name, _ in found["train"] | found["val"])
        assert any(name == "b" for name, _ in found["test"])


def test_images_of_training_validation_and_test_are_apart() -> None:
    tasks = make_tasks()
    trained: set[int] = set()
    queried: set[int] = set()
    for number in range(40):
        task = tasks.draw("train", number, 8)
        assert not numbers(task.train) & numbers(task.test)
        assert torch.bincount(task.train.labels).tolist() == [4, 4, 4]
        trained |= numbers(task.train) | numbers(task.test)
        for kind in ("val", "test"):
            other = tasks.draw(kind, number, 100)
            assert not numbers(other.train) & (numbers(other.test) | numbers(other.validation))
            assert len(other.test.labels) == (6 if kind == "val" else 30)
            queried |= numbers(other.test)
    assert not trained & queried


def test_a_task_depends_on_seed_kind_and_number_alone() -> None:
    one, other = make_tasks(), make_tasks()
    backwards = [other.batch(step=step, place=1, size=8, places=2) for step in (2, 1, 0)][::-1]
    for step, (images, labels) in enumerate(backwards):
        again, same = one.batch(step=step, place=1, size=8, places=2)
        assert torch.equal(images, again)
        assert torch.equal(labels, same)
    assert not torch.equal(backwards[0][0], backwards[1][0])
    assert torch.equal(one.draw("test", 3, 8).test.images, make_tasks().draw("test", 3, 8).test.images)
    assert one.choose("test", 3).classes != make_tasks(seed=7).choose("test", 3).classes


def test_turned_classes_show_turned_images() -> None:
    tasks = make_tasks(turns=True)
    seen = set()
    for number in range(20):
        drawn, task = tasks.choose("test", number), tasks.draw("test", number, 30)
        upright = task.test.images.clone()
        for place, (_, turn) in enumerate(drawn.classes):
            seen.add(turn)
            own = task.test.labels == place
            upright[own] = torch.rot90(upright[own], -turn, (2, 3))
        assert bool((upright[:, :, 0, 1:4] == 255).all())
    assert seen == {0, 1, 2, 3}


def test_networks_are_given_the_support_set_of_their_queries() -> None:
    tasks = make_tasks()
    nothing: Any = None
    shown = tasks.given(PoolNetwork(nothing, nothing, nothing), step=3, place=1, places=2).task
    assert shown is not None
    task = tasks.draw("train", 7, 8)
    images, labels = support_of(task)
    assert torch.equal(shown[0], images)
    assert torch.equal(shown[1], labels)
    assert torch.equal(tasks.batch(step=3, place=1, size=8, places=2)[1], task.test.labels)
    assert abs(float(images.mean())) < 1e-5  # a task's images are scaled by its own support set


def test_nearest_mean_is_what_it_says() -> None:
    """Oracle: one image at a time."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (30, 1, 8, 8), generator=generator, dtype=torch.uint8)
    split = Split(pixels, torch.arange(30) % 3)
    task = Images(split, split, MetaDataConfig(image_size=8, channels=1, validation_images=12))
    images, labels = pixels[:18].double(), split.labels[:18]
    right = 0
    for image, label in zip(pixels.double(), split.labels, strict=True):
        distances = [float((image - images[labels == other].mean(0)).square().sum()) for other in range(3)]
        right += distances.index(min(distances)) == label
    assert nearest_mean_accuracy(task, split) == pytest.approx(right / 30)


def test_images_are_brought_to_one_format() -> None:
    color = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 10, 12)
    assert brought(color, channels=1, size=10).unique().tolist() == [76]  # 0.299 · 255
    ramp = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(brought(ramp, channels=3, size=16), ramp.expand(-1, 3, -1, -1))
    halved = brought(ramp, channels=1, size=8).float().mean()
    assert float(halved) == pytest.approx(127.5, abs=1)
    with pytest.raises(ValueError, match="2 channels"):
        brought(ramp.expand(-1, 2, -1, -1), channels=1, size=8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ways": 1}, "must be ≥ 2"),
        ({"shots": 0}, "must be ≥ 1"),
        ({"held_out": 1.0}, r"must lie in \[0, 1\)"),
        ({"sources": ()}, "one data set or more"),
        ({"sources": ("a", "a:full")}, "hold a twice"),
        ({"ways": 4}, "too few classes: 3 classes of a to train on"),
        ({"shots": 22}, "with a class of a of 22 training images"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=message):
        make_tasks(**changes)


def test_without_classes_held_out_there_is_nothing_to_test_on() -> None:
    tasks = make_tasks(held_out=0.0)
    assert len(tasks.draw("train", 0, 8).test.labels) == 8
    with pytest.raises(ConfigError, match="too few classes: test tasks of 3 classes"):
        tasks.draw("test", 0, 8)
