from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trivet.ghn import GHN, GHNConfig
from trivet.ghn.anchor import GAIN
from trivet.ghn.baselines import anchor_, orthogonal_, orthogonalize_, tiled_
from trivet.graph import graph_of

CONFIG = GHNConfig(hid=8, max_shape=(4, 4, 3, 3), anchor="identity")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(2, 9), st.integers(1, 3))
def test_orthogonal_weights_have_orthonormal_rows_or_columns(out: int, inputs: int, kernel: int) -> None:
    layer = nn.Conv2d(inputs, out, kernel, bias=False)
    assert orthogonal_(layer, 1) == ("weight",)
    matrix = layer.weight.detach().flatten(1) / 2**0.5
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    torch.testing.assert_close(product, torch.eye(len(product)), atol=1e-5, rtol=0)


def test_orthogonal_leaves_vectors_tables_depthwise_and_frozen_weights_alone() -> None:
    net = nn.ModuleDict(
        {
            "norm": nn.BatchNorm2d(4),
            "table": nn.Embedding(5, 4),
            "depthwise": nn.Conv2d(4, 4, 3, groups=4, bias=False),
            "frozen": nn.Linear(4, 4, bias=False).requires_grad_(False),
            "fc": nn.Linear(4, 4),
        }
    )
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert orthogonal_(net, 0) == ("fc.weight",)
    changed = [name for name, value in net.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["fc.weight"]


def test_made_orthogonal_at_its_norm_also_where_rows_repeat() -> None:
    tile = torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    weight = tile.repeat(2, 1).view(8, 4, 3, 1)
    norm = weight.norm()
    orthogonalize_([weight, vector := torch.ones(3)], 0)
    torch.testing.assert_close(weight.norm(), norm)
    singular = torch.linalg.svdvals(weight.flatten(1))
    torch.testing.assert_close(singular, singular.mean().expand_as(singular), rtol=1e-3, atol=0)
    assert torch.equal(vector, torch.ones(3))


def test_what_is_orthogonal_already_stays() -> None:
    q = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q.float()
    weight = q.clone()
    orthogonalize_([weight], 0)
    torch.testing.assert_close(weight, q, atol=5e-4, rtol=0)


def test_tiles_repeat_at_the_norms_of_the_prediction() -> None:
    net, example = Net(), torch.zeros(2, 4, 6, 6)
    graph = graph_of(net, example)
    GHN(CONFIG, seed=0).predict_(net, graph=graph)
    norms = {name: value.norm().item() for name, value in net.named_parameters() if value.ndim > 1}
    predicted = net.conv.weight.clone()
    tiled_(net, graph, CONFIG, seed=3)
    for name, norm in norms.items():
        assert net.get_parameter(name).norm().item() == pytest.approx(norm, rel=1e-5)
    assert torch.equal(net.conv.weight[:4], net.conv.weight[4:])
    assert not torch.allclose(net.conv.weight, predicted)
    assert torch.equal(net.norm.weight, torch.ones(8))
    assert not net.norm.bias.any()
    assert not net.fc.bias.any()


def test_anchors_alone() -> None:
    net, example = Net(), torch.zeros(2, 4, 6, 6)
    graph = graph_of(net, example)
    head = net.fc.weight.clone()
    assert anchor_(net, graph, CONFIG) == ("conv.weight",)
    passes = nn.Conv2d(8, 8, 3, bias=False)
    assert anchor_(passes, graph_of(passes, torch.zeros(1, 8, 4, 4)), CONFIG) == ("weight",)
    expected = torch.zeros(8, 8, 3, 3)
    expected[:, :, 1, 1] = GAIN * torch.eye(8)
    assert torch.equal(passes.weight, expected)
    assert torch.equal(net.fc.weight, head)
    assert torch.equal(net.norm.weight, torch.ones(8))
    with pytest.raises(ValueError, match="has no anchors"):
        anchor_(net, graph, GHNConfig(hid=8, max_shape=(4, 4, 3, 3)))
