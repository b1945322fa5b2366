"""The doctor's network: its parts against numpy, its changes against what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from trivet.audit.movement import Trace, movement
from trivet.audit.settings import Setting, settings
from trivet.tasks.small_network import BATCH, CHANGES, embedded_images, shrunk, small_network, trained

STEPS = 3


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def run(name: str = "x", **fields: Any) -> tuple[dict[str, Any], Trace]:
    answer, arrays = trained(Setting(name=name, **fields), steps=STEPS, keep=[1, STEPS])
    predictions = arrays.pop("predictions")
    weights = {int(step): values for step, values in arrays.items()}
    trace = Trace(checksums=answer["checksums"], losses=answer["losses"], weights=weights, predictions=predictions)
    return answer, trace


def test_images_are_means_of_four_pixels() -> None:
    images = embedded_images().train_images[:3]
    pooled = F.avg_pool2d(torch.from_numpy(images.copy()).double(), 2) / 255 - 0.5
    np.testing.assert_array_equal(shrunk(images), pooled.numpy().astype(np.float32))


def test_the_first_step_is_adam_on_the_mean_loss() -> None:
    answer, trace = run()
    assert answer["not_realised"] == {}
    assert sorted(trace.weights) == [0, 1, STEPS]
    assert len(trace.checksums) == STEPS + 1
    net = small_network()
    before = torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).double()
    np.testing.assert_array_equal(trace.weights[0], before.numpy())
    # Adam's first step is lr · g / (|g| + 1e-8): no weight moves further, and those with a gradient move that far.
    moved = np.abs(trace.weights[1] - trace.weights[0])
    assert moved.max() == pytest.approx(1e-3, rel=1e-3)
    assert float.fromhex(trace.losses[0]) == pytest.approx(np.log(10), rel=0.05)


def test_a_change_is_as_large_as_its_kind() -> None:
    _, base = run()
    expected = {
        "accumulate": ({"change": {"accumulate": 2}}, 1e-9, 1e-5),
        "float64": ({"change": {"dtype": "float64"}}, 1e-8, 1e-5),
        "channels last": ({"change": {"channels_last": True}}, 0.0, 1e-5),
        "nudge": ({"change": {"nudge": True}}, 1e-12, 1e-4),
        "autocast": ({"change": {"autocast": True}}, 1e-5, 0.2),
        "other seed": ({"change": {"seed": 1}}, 1.0, 2.0),
    }
    for name, (fields, low, high) in expected.items():
        answer, trace = run(name, **fields)
        found = movement(base, trace)
        assert answer["not_realised"] == {}, name
        assert low <= found.end <= high, (name, found)
    _, again = run()
    assert movement(base, again).is_zero


def test_unknown_changes_are_refused_and_the_table_names_known_ones() -> None:
    with pytest.raises(ValueError, match="allowed: switch"):
        trained(Setting(name="x", change={"optimiser": "fused"}), steps=1, keep=[])
    assert {name for one in settings("all", cores=2) for name in one.change} == set(CHANGES)
    assert len(embedded_images().train_labels) >= BATCH * 150
