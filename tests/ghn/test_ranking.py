"""Orders of networks: each score against one made by hand, and that nothing given is changed."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.ghn import GHN, DeepNets, GHNConfig, Ranking, rank_architectures
from trivet.ghn.deepnets.budget import Budget
from trivet.ghn.early import EarlyConfig, outcome, train_early
from trivet.ghn.meta.skeleton import Skeleton
from trivet.graph import graph_of

CLASSES = 4


def make_net(width: int, *, norm: bool = True) -> nn.Module:
    torch.manual_seed(width)
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, stride=2), *([nn.BatchNorm2d(width)] if norm else [])]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, CLASSES))


@pytest.fixture(scope="module")
def ghn() -> GHN:
    return GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3), num_classes=CLASSES), seed=0)


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    """A bright stripe at one of four places."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(192) % CLASSES
    images = 0.3 * torch.randn(192, 1, 12, 12, generator=generator)
    for label in range(CLASSES):
        images[labels == label, :, 3 * label : 3 * label + 3] += 1
    return images, labels


def test_predicted_is_the_accuracy_with_predicted_parameters(ghn: GHN, data: tuple[Tensor, Tensor]) -> None:
    nets = {"a": make_net(8), "b": make_net(16), "c": make_net(8, norm=False)}
    before = copy.deepcopy(nets)
    found = rank_architectures(nets, ghn, data=data)
    images, labels = data
    for name, net in before.items():
        parameters = ghn.predict(net, images[:1])
        right = 0
        for part in range(0, 192, 64):
            logits = torch.func.functional_call(copy.deepcopy(net).train(), parameters, (images[part : part + 64],))
            right += int((logits.argmax(1) == labels[part : part + 64]).sum())
        assert found.scores[found.names.index(name)] == pytest.approx(right / 192)
        after = nets[name].state_dict()
        assert all(torch.equal(value, after[key]) for key, value in net.state_dict().items())
    assert ghn.training
    assert found.seconds > 0


def test_parameters_that_are_not_predicted_keep_their_values(ghn: GHN, data: tuple[Tensor, Tensor]) -> None:
    class Scaled(nn.Module):
        def __init__(self, sign: float) -> None:
            super().__init__()
            self.net, self.sign = make_net(8), nn.Parameter(torch.tensor([sign]))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) * self.sign

    found = rank_architectures([Scaled(1.0), Scaled(0.0)], ghn, data=data)
    assert found.scores[1] == pytest.approx(1 / CLASSES)  # all outputs equal: the first class
    assert found.scores[0] == rank_architectures([make_net(8)], ghn, data=data).scores[0]


def test_sizes() -> None:
    nets = [make_net(16), make_net(8)]
    example = torch.zeros(3, 1, 12, 12)
    found = rank_architectures(nets, method="parameters")
    assert found.scores == tuple(float(sum(p.numel() for p in net.parameters())) for net in nets)
    assert found.order == (0, 1)
    macs = rank_architectures(nets, method="macs", example_input=example)
    assert macs.scores == (16 * 9 * 25 + 64 * CLASSES, 8 * 9 * 25 + 32 * CLASSES)
    assert rank_architectures(nets[:1], method="macs", example_input=example[:1]).scores == macs.scores[:1]


def test_architectures_are_built_for_the_images_at_hand(data: tuple[Tensor, Tensor]) -> None:
    budget = Budget(num_cells=(4, 4), channels=(8,), fc_dim=(16,), max_parameters=60_000, max_macs=2_000_000)
    nets = list(DeepNets("test", size=3, budget=budget))
    sizes = rank_architectures(nets, method="parameters", example_input=data[0][:1], num_classes=CLASSES)
    built = [net.build(CLASSES, 1, 12) for net in nets]
    assert sizes.scores == rank_architectures(built, method="parameters").scores
    ghn = GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3), num_classes=CLASSES), seed=1)
    few = (data[0][:64], data[1][:64])
    predicted = rank_architectures(nets, ghn, data=few, num_classes=CLASSES)
    assert predicted.scores == rank_architectures(built, ghn, data=few).scores


def test_loss_is_that_after_a_few_steps(data: tuple[Tensor, Tensor]) -> None:
    early = EarlyConfig(steps=12, rate=0.1, batch_size=32)
    nets = [make_net(8), make_net(16)]
    found = rank_architectures(nets, method="loss", data=data, training_data=data, early=early)
    untrained = rank_architectures(
        nets, method="loss", data=data, training_data=data, early=EarlyConfig(steps=1, rate=1e-9)
    )
    assert all(a > b for a, b in zip(found.scores, untrained.scores, strict=True))
    again = rank_architectures(nets, method="loss", data=data, training_data=data, early=early)
    assert again.scores == found.scores
    images, labels = data
    net = copy.deepcopy(nets[0]).train()
    with torch.no_grad():
        expected = sum(float(F.cross_entropy(net(images[p : p + 64]), labels[p : p + 64])) for p in (0, 64, 128)) / 3
    assert untrained.scores[0] == pytest.approx(-expected, rel=1e-4)


def test_early_training_is_sgd() -> None:
    generator = torch.Generator().manual_seed(3)
    batches = [(torch.randn(8, 5, generator=generator), torch.arange(8) % 3) for _ in range(6)]
    net = nn.Linear(5, 3)
    twin = copy.deepcopy(net)
    trained = train_early(net, batches, EarlyConfig(steps=4, rate=0.1, clip_norm=0.5))
    velocity = [torch.zeros_like(p) for p in twin.parameters()]
    for pixels, labels in batches[:4]:
        gradients = list(torch.autograd.grad(F.cross_entropy(twin(pixels), labels), list(twin.parameters())))
        factor = min(1.0, 0.5 / (math.sqrt(sum(float(g.square().sum()) for g in gradients)) + 1e-6))
        with torch.no_grad():
            for p, g, v in zip(twin.parameters(), gradients, velocity, strict=True):
                v.mul_(0.9).add_(factor * g + 1e-4 * p)
                p.sub_(0.1 * v)
    assert all(torch.allclose(trained[name], p, atol=1e-6) for name, p in twin.named_parameters())


def test_a_network_that_diverges_is_last(data: tuple[Tensor, Tensor]) -> None:
    wild = make_net(8, norm=False)
    with torch.no_grad():
        next(wild.parameters()).fill_(math.nan)
    found = rank_architectures(
        [wild, make_net(8)], method="loss", data=data, training_data=data, early=EarlyConfig(steps=1)
    )
    assert found.scores[0] == -math.inf
    assert found.order == (1, 0)
    assert found.to_dict()["networks"][1] == {"name": "0", "score": None}


def test_embedding_learns_from_known_networks(ghn: GHN) -> None:
    example = torch.zeros(1, 1, 12, 12)
    known = [(make_net(width), math.log(width)) for width in range(4, 34, 2)]
    found = rank_architectures(
        [make_net(width) for width in (9, 31, 17)], ghn, method="embedding", known=known, example_input=example
    )
    assert found.order == (1, 2, 0)
    embedded = ghn.embed([graph_of(make_net(9), example)])[0]
    from trivet.ghn.ranking import mean_embedding

    assert mean_embedding(ghn, graph_of(make_net(9), example)) == pytest.approx(embedded.mean(0).tolist(), abs=1e-6)


def test_the_printed_table_is_short() -> None:
    found = Ranking(method="macs", names=tuple(f"n{i}" for i in range(12)), scores=(5.0,) * 12, seconds=0.0)
    assert found.order == tuple(range(12))  # equal ones as they were given
    assert str(found).splitlines()[0].split() == ["rank", "network", "score", "(macs)"]
    assert len(str(found).splitlines()) == 12
    assert str(found).endswith("… and 2 more")


def test_a_poor_rest_of_the_images_is_left_out() -> None:
    shell = Skeleton(nn.Linear(2, 2))
    weights = {"weight": torch.eye(2), "bias": torch.zeros(2)}
    images, labels = torch.eye(2)[[0, 0, 0, 0, 1]], torch.tensor([0, 0, 0, 0, 0])
    assert outcome(shell, weights, images, labels, batch_size=4).accuracy == 1
    assert outcome(shell, weights, images, labels, batch_size=2).accuracy == 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "predictde"}, "did you mean 'predicted'"),
        ({"method": "predicted"}, "needs `ghn` and `data`"),
        ({"method": "embedding"}, "needs `ghn`"),
        ({"method": "loss"}, "needs `data` and `training_data`"),
        ({"data": (torch.zeros(3, 1), torch.zeros(2))}, "3 images and 2 labels"),
        ({"early": None, "candidates": []}, "`candidates` is empty"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"candidates": [make_net(4)], **options}
    with pytest.raises(ValueError, match=message):
        rank_architectures(**given)


def test_too_few_known_networks(ghn: GHN) -> None:
    with pytest.raises(ValueError, match="1 networks in `known`; a regression needs 10 or more"):
        rank_architectures([make_net(4)], ghn, method="embedding", known=[(make_net(5), 0.5)])
