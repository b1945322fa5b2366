"""A hypernetwork that is told its task: order of images and classes, number of classes, gradients and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from trivet.ghn import GHN, GHNConfig, init_
from trivet.ghn.task_encoder import Task
from trivet.graph import graph_of


def make_ghn(**changes: Any) -> GHN:
    changes = {"hid": 16, "max_shape": (16, 16, 3, 3), "anchor": "identity", "task": "set", **changes}
    return GHN(GHNConfig(**changes), seed=0)


def net(classes: int = 4, width: int = 24) -> nn.Module:
    pool = (nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), *pool, nn.Linear(width, classes))


def task(classes: int = 4, images: int = 12, seed: int = 0, size: int = 28) -> Task:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, 1, size, size, generator=generator), torch.arange(images) % classes


EXAMPLE = torch.zeros(2, 1, 28, 28)


@pytest.fixture(scope="module")
def ghn() -> GHN:
    return make_ghn()


@given(order=st.permutations(range(4)), images=st.permutations(range(12)))
@settings(max_examples=5, deadline=None)
def test_classes_in_another_order_are_rows_in_another_order(ghn: GHN, order: list[int], images: list[int]) -> None:
    pixels, labels = task()
    graph = graph_of(net(), EXAMPLE)
    relabeled = torch.tensor(order)[labels]
    with torch.no_grad():
        own, other = ghn.predict_batch([graph] * 2, tasks=[(pixels, labels), (pixels[images], relabeled[images])])
    for name, value in own.items():
        moved = other[name][order] if name.startswith("5.") else other[name]
        torch.testing.assert_close(moved, value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("decoder", ["conv", "linear", "mlp", "low_rank"])
def test_any_number_of_classes_with_every_decoder(decoder: str) -> None:
    ghn = make_ghn(decoder=decoder, rank=4 if decoder == "low_rank" else 0)
    sizes = (2, 7, 40)  # more than the decoder has channels, too
    graphs = [graph_of(net(classes), EXAMPLE) for classes in sizes]
    tasks = [task(classes, 2 * classes) for classes in sizes]
    together = ghn.predict_batch(graphs, tasks=tasks)
    for classes, graph, one, found in zip(sizes, graphs, tasks, together, strict=True):
        assert found["5.weight"].shape == (classes, 24)
        assert found["5.bias"].shape == (classes,)
        assert len(torch.unique(found["5.weight"], dim=0)) == classes
        alone = ghn.predict_batch([graph], tasks=[one])[0]
        for name, value in alone.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


def test_in_place_it_writes_what_it_predicts(ghn: GHN) -> None:
    module, other = net(), task(seed=1)
    report = init_(module, ghn, EXAMPLE, task=task())
    assert report.coverage == 1
    predicted = ghn.predict(module, EXAMPLE, task=task())
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter, predicted[name])
    told_otherwise = ghn.predict(module, EXAMPLE, task=other)
    assert all(not torch.equal(told_otherwise[name], value) for name, value in predicted.items())


def test_gradients_reach_the_encoder_of_the_set(ghn: GHN) -> None:
    module, (pixels, labels) = net(), task()
    logits = torch.func.functional_call(module, ghn.predict(module, EXAMPLE, task=(pixels, labels)), (pixels,))
    loss = nn.functional.cross_entropy(logits, labels)
    found = torch.autograd.grad(loss, [*ghn.tasks.parameters(), *ghn.rows.parameters()])
    assert all(bool(grad.abs().sum() > 0) for grad in found)


def test_class_embeddings_are_means(ghn: GHN) -> None:
    """Oracle: every image on its own."""
    pixels, labels = task(3, 9)
    with torch.no_grad():
        found = ghn.tasks([(pixels, labels)], counts=(1,)).classes[0]
        alone = torch.cat([ghn.tasks.look(image.expand(1, 3, -1, -1)) for image in pixels])
        wanted = torch.stack([ghn.tasks.norm(alone[labels == label].mean(0)) for label in range(3)])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_images_of_several_sizes_and_channels(ghn: GHN) -> None:
    color = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    graphs = [graph_of(net(), EXAMPLE), graph_of(color, torch.zeros(2, 3, 32, 32))]
    tasks = [task(), (torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 0, 1]))]
    found = ghn.predict_batch(graphs, tasks=tasks)
    assert found[1]["3.weight"].shape == (2, 8)
    assert [len(states) for states in ghn.embed(graphs, tasks=tasks)] == [len(graph.nodes) for graph in graphs]


def test_saved_and_loaded_it_predicts_the_same(ghn: GHN, tmp_path: Path) -> None:
    loaded = GHN.from_pretrained(ghn.save_pretrained(tmp_path / "ghn"))
    assert loaded.config.task == "set"
    module = net()
    own, other = (each.predict(module, EXAMPLE, task=task()) for each in (ghn, loaded))
    for name, value in own.items():  # up to rounding: where weights lie in memory decides how they are summed
        torch.testing.assert_close(other[name], value)


PIXELS, LABELS = task()
REFUSED: list[tuple[Any, str]] = [
    (None, "give `task="),
    ((PIXELS, torch.zeros(12, dtype=torch.long)), "has one class"),
    ((PIXELS, LABELS % 3), r"has 4 classes and the task 3"),
    ((PIXELS, 2 * LABELS), r"labels are \[0, 2, 4, 6\]"),
    ((PIXELS, LABELS - 1), r"labels are \[-1, 0, 1, 2\]"),
    ((PIXELS[:0], LABELS[:0]), "has no images"),
    ((PIXELS[:5], LABELS), "one for each of the 5 images"),
    ((PIXELS, LABELS.float()), "whole numbers"),
    ((PIXELS[..., :20], LABELS), "are 1×28×20 and the network takes 1×28×28"),
    ((PIXELS[..., :4], LABELS), "at least 8 × 8"),
    ((PIXELS.expand(-1, 2, -1, -1), LABELS), "1 or 3"),
    (((255 * PIXELS).to(torch.uint8), LABELS), "floating-point"),
]


@pytest.mark.parametrize(("given_task", "message"), REFUSED)
def test_unusable_tasks_are_refused_and_nothing_is_written(ghn: GHN, given_task: Any, message: str) -> None:
    module = net()
    before: dict[str, Tensor] = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        init_(module, ghn, EXAMPLE, task=given_task)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_classifier_of_other_classes_can_be_kept(ghn: GHN) -> None:
    found = ghn.predict(net(9), EXAMPLE, head="keep", task=task())
    assert "5.weight" not in found
    assert "0.weight" in found


def test_tasks_must_be_as_many_as_graphs(ghn: GHN) -> None:
    with pytest.raises(ValueError, match="2 graphs and 1 `tasks`"):
        ghn.predict_batch([graph_of(net(), EXAMPLE)] * 2, tasks=[task()])


def test_without_the_key_nothing_is_told() -> None:
    ghn = make_ghn(task="none", num_classes=4)
    assert not any(name.startswith(("tasks", "rows")) for name in ghn.state_dict())
    with pytest.raises(ValueError, match="leave `task` out"):
        ghn.predict(net(), EXAMPLE, task=task())
    assert GHNConfig.from_dict({"hid": 8}).task == "none"
