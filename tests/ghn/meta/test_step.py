"""The step in parts gives the gradient that the mean loss in one piece gives."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trivet.ghn.meta.images import Images
from trivet.ghn.meta.step import Batch, StepConfig, meta_step


@pytest.fixture
def batches(tiny_images: Images) -> list[Batch]:
    return [Batch(*tiny_images.batch(step=0, place=place, size=8, places=3), place) for place in range(3)]


def _gradients(module: torch.nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def _in_one_piece(module: Any, networks: list[Any], batches: list[Batch], penalty: float = 0.0) -> Tensor:
    losses = []
    for network, parameters, batch in zip(networks, module(networks), batches, strict=True):
        torch.manual_seed(batch.seed)
        loss = F.cross_entropy(network.skeleton(parameters, batch.images), batch.labels)
        losses.append(loss + penalty * sum(tensor.norm() for tensor in parameters.values()))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("penalty", [0.0, 0.01])
def test_the_gradient_is_that_of_the_mean_loss(
    tiny: SimpleNamespace, tiny_networks: list[Any], batches: list[Batch], penalty: float
) -> None:
    networks = [*tiny_networks[:2], tiny.network(8, dropout=0.5)]
    whole, parts = tiny.hypernetwork(), tiny.hypernetwork()
    mean = _in_one_piece(whole, networks, batches, penalty)
    mean.backward()
    config = StepConfig(meta_batch=3, penalty=penalty, channels_last=False)
    result = meta_step(parts, networks, batches, config)
    assert sum(result.losses) / 3 + result.penalty == pytest.approx(mean.item(), rel=1e-6)
    for expected, got in zip(_gradients(whole), _gradients(parts), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_channels_last_changes_the_gradient_by_rounding_alone(
    tiny: SimpleNamespace, tiny_networks: list[Any], batches: list[Batch]
) -> None:
    found = []
    for channels_last in (False, True):
        module = tiny.hypernetwork()
        meta_step(module, tiny_networks, batches, StepConfig(meta_batch=3, channels_last=channels_last))
        found.append(_gradients(module))
    for plain, last in zip(*found, strict=True):
        torch.testing.assert_close(last, plain, rtol=1e-4, atol=1e-5)


def test_the_share_of_a_process_is_divided_by_the_whole_meta_batch(
    tiny: SimpleNamespace, tiny_networks: list[Any], batches: list[Batch]
) -> None:
    whole, parts = tiny.hypernetwork(), tiny.hypernetwork()
    meta_step(whole, tiny_networks, batches, StepConfig(meta_batch=3))
    for place in range(3):  # gradients add up
        meta_step(parts, [tiny_networks[place]], [batches[place]], StepConfig(meta_batch=3))
    for expected, got in zip(_gradients(whole), _gradients(parts), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_normalized_networks_weigh_the_same(
    tiny: SimpleNamespace, tiny_networks: list[Any], batches: list[Batch]
) -> None:
    """What goes into the hypernetwork has norm 1 / M for each network, however steep its loss is."""
    for kind, alike in (("normalized", True), ("mean", False)):
        seen: list[Tensor] = []
        module = tiny.hypernetwork()

        def watched(networks: Any, module: Any = module, seen: list[Tensor] = seen) -> list[dict[str, Tensor]]:
            found = module(networks)
            for parameters in found:
                squares = torch.zeros(len(parameters))
                seen.append(squares)
                for place, tensor in enumerate(parameters.values()):
                    tensor.register_hook(lambda grad, place=place, squares=squares: _keep(squares, place, grad))
            return found

        meta_step(watched, tiny_networks, batches, StepConfig(meta_batch=3, net_gradients=kind))  # type: ignore[arg-type]
        norms = [squares.sum().sqrt().item() for squares in seen]
        assert (norms == pytest.approx([1 / 3] * 3, rel=1e-4)) is alike


def _keep(squares: Tensor, place: int, grad: Tensor) -> None:
    squares[place] = grad.square().sum()


def test_a_loss_that_is_not_finite_leaves_the_gradients_alone(
    tiny: SimpleNamespace, tiny_networks: list[Any], batches: list[Batch]
) -> None:
    module = tiny.hypernetwork()
    bad = batches[0]._replace(images=batches[0].images * math.inf)
    result = meta_step(module, tiny_networks, [bad, *batches[1:]], StepConfig(meta_batch=3))
    assert not result.is_finite
    assert _gradients(module) == []


def test_one_batch_for_each_network(tiny: SimpleNamespace, tiny_networks: list[Any], batches: list[Batch]) -> None:
    with pytest.raises(ValueError, match="3 networks and 2 batches"):
        meta_step(tiny.hypernetwork(), tiny_networks, batches[:2], StepConfig(meta_batch=3))
