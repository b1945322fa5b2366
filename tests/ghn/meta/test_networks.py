from __future__ import annotations

import pytest
import torch
from torch import nn

from trivet.ghn import GHN, GHNConfig
from trivet.ghn.meta.networks import Pool, predict
from trivet.ghn.meta.rules import Entry, PoolConfig, pool
from trivet.ghn.meta.skeleton import Skeleton
from trivet.ghn.meta.start import start_with

RULES = PoolConfig(max_macs=12_000_000, attention=False)


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return list(pool("train", RULES, 3))


@pytest.fixture
def ghn() -> GHN:
    return GHN(GHNConfig(hid=8, virtual_edges=5, max_shape=(16, 16, 3, 3)), seed=0)


def test_graphs_made_ahead_are_the_same(entries: list[Entry]) -> None:
    plain, ahead = Pool(entries), Pool(entries, workers=1)
    ahead.ahead([2, 0, 2])
    assert [ahead[number].graph.key for number in (0, 2)] == [plain[number].graph.key for number in (0, 2)]
    ahead.close()


def test_a_pool_forgets_what_was_not_used_for_longest(entries: list[Entry]) -> None:
    networks = Pool(entries, keep=2)
    first, _, _ = networks[0], networks[1], networks[0]
    networks[2]
    assert networks[0] is first
    assert list(networks._made) == [2, 0]
    with pytest.raises(IndexError, match="the pool has 3"):
        networks[3]


def test_small_pools_are_made_before_training(entries: list[Entry]) -> None:
    few, many = Pool(entries), Pool(entries, keep=2)
    few.prepare()
    many.prepare()
    assert (len(few._made), len(many._made)) == (3, 0)


def test_every_parameter_in_use_is_predicted_with_its_shape(entries: list[Entry], ghn: GHN) -> None:
    networks = Pool(entries)
    chosen = [networks[number] for number in range(3)]
    for network, parameters in zip(chosen, predict(ghn, chosen), strict=True):
        used = {spec.name for spec in network.entry.architecture.tensors() if spec.used}
        assert used <= parameters.keys()
        assert all(tuple(parameters[name].shape) == network.skeleton.shapes[name] for name in parameters)
        assert network.skeleton(parameters, torch.rand(2, 3, 32, 32)).shape == (2, 10)
    with pytest.raises(TypeError, match="Linear predicts nothing"):
        predict(nn.Linear(1, 1), chosen)


def test_the_start_sets_the_size_of_predicted_weights(entries: list[Entry], ghn: GHN) -> None:
    networks = Pool(entries)
    chosen = [networks[number] for number in range(3)]
    start_with(ghn, chosen, 0.5)
    squares, count = 0.0, 0
    for parameters in predict(ghn, chosen):
        for weight in parameters.values():
            if weight.ndim == 4 and weight.shape[1] > 1:
                squares += (weight.square().sum() * weight[0].numel() / 2).item()
                count += weight.numel()
    assert (squares / count) ** 0.5 == pytest.approx(0.5, rel=1e-4)


def test_a_skeleton_holds_no_memory_and_keeps_no_statistics() -> None:
    tied = nn.Linear(4, 4)
    module = nn.Sequential(tied, nn.BatchNorm1d(4), tied, nn.Dropout(0.5))
    module.register_buffer("shift", torch.ones(4))
    skeleton = Skeleton(module)
    assert all(parameter.is_meta for parameter in module.parameters())
    assert list(skeleton.shapes) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert not skeleton.has_dropout
    weights = {name: torch.ones(shape) for name, shape in skeleton.shapes.items()}
    images = torch.randn(8, 4)
    assert torch.equal(skeleton(weights, images), skeleton(weights, images))
    assert "shift" in dict(module.named_buffers())
    assert len(dict(module.named_buffers())) == 1
    weights.pop("0.bias")
    with pytest.raises(ValueError, match=r"parameters are missing: 0\.bias"):
        skeleton(weights, images)


@pytest.mark.parametrize(("channels", "safe"), [(1, True), (2, False), (7, False), (8, True)])
def test_narrow_pointwise_convolutions_do_not_run_channels_last(channels: int, safe: bool) -> None:
    assert Skeleton(nn.Sequential(nn.Conv2d(channels, 8, 1))).channels_last is safe
