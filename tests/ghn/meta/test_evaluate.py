from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from trivet.ghn.meta.evaluate import NetworkScore, Scores, accuracy, evaluate
from trivet.ghn.meta.images import Images
from trivet.ghn.meta.twins import TwinConfig, train_twin


def _score(value: float, has_batch_norm: bool) -> NetworkScore:
    return NetworkScore(accuracy=value, seconds=0.1, parameters=5, has_batch_norm=has_batch_norm)


def test_the_summary_keeps_networks_with_and_without_norms_apart() -> None:
    scores = Scores(networks=(_score(0.4, True), _score(0.6, True), _score(0.2, False)))
    found = scores.summary()
    assert found["accuracy"] == pytest.approx(0.4)
    assert found["accuracy_se"] == pytest.approx(0.2 / 3**0.5)
    assert found["accuracy_max"] == 0.6
    assert (found["accuracy_bn"], found["accuracy_bn_n"]) == (pytest.approx(0.5), 2)
    assert (found["accuracy_bn_free"], found["accuracy_bn_free_n"]) == (0.2, 1)
    assert "accuracy_bn_free_se" not in found


def test_accuracy_is_that_of_a_loop_over_batches(tiny: SimpleNamespace, tiny_images: Images) -> None:
    network = tiny.network(8)
    parameters = tiny.predict(tiny.hypernetwork(), [network])[0]
    right = 0
    for first in range(0, 320, 64):
        part = slice(first, first + 64)
        images = tiny_images.prepare(tiny_images.test.images[part])
        weights = list(parameters.values())
        x = F.conv2d(images, weights[0], weights[1], stride=2)
        x = F.relu(F.batch_norm(x, None, None, weights[2], weights[3], training=True)).mean((2, 3))
        right += int(((x @ weights[4].T + weights[5]).argmax(1) == tiny_images.test.labels[part]).sum())
    assert accuracy(network.skeleton, parameters, tiny_images.test, tiny_images) == pytest.approx(right / 320)


def test_a_poor_rest_of_the_images_is_left_out(tiny: SimpleNamespace, tiny_images: Images) -> None:
    network = tiny.network(8)
    parameters = tiny.predict(tiny.hypernetwork(), [network])[0]
    whole = accuracy(network.skeleton, parameters, tiny_images.test.head(64), tiny_images)
    assert accuracy(network.skeleton, parameters, tiny_images.test.head(70), tiny_images) == whole


def test_evaluation_changes_neither_the_hypernetwork_nor_random_numbers(
    tiny: SimpleNamespace, tiny_networks: list[Any], tiny_images: Images
) -> None:
    module = tiny.hypernetwork()
    before = [parameter.clone() for parameter in module.parameters()]
    state = torch.get_rng_state()
    scores = evaluate(module, tiny.predict, tiny_networks, tiny_images.test, tiny_images, numbers=[2, 0])
    assert [score.has_batch_norm for score in scores.networks] == [True, True]
    assert module.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    with pytest.raises(ValueError, match="no network"):
        evaluate(module, tiny.predict, tiny_networks, tiny_images.test, tiny_images, numbers=[])


def test_a_twin_learns_and_leaves_the_module_as_it_was(tiny: SimpleNamespace, tiny_images: Images) -> None:
    module = tiny.module(8, dropout=0.2)
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    config = TwinConfig(points=(5, 60), rates=(1e-6, 0.3), trial_steps=10, batch_size=32)
    twin = train_twin(module, tiny.network(8).skeleton, tiny_images.test, tiny_images, config, seed=1)
    assert len(twin.accuracies) == 3
    assert twin.rate == 0.3
    assert twin.accuracies[0] < 0.5 < twin.accuracies[2]
    assert all(torch.equal(before[name], parameter) for name, parameter in module.named_parameters())
    again = train_twin(module, tiny.network(8).skeleton, tiny_images.test, tiny_images, config, seed=1)
    assert again.accuracies == twin.accuracies
