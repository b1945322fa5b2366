"""What `diagnose` says of networks whose fault is known, and of matrices whose rank is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from trivet.ghn import GHN, Diagnosis, GHNConfig, diagnose
from trivet.ghn import layer_statistics as statistics
from trivet.ghn.findings import Change, LayerFinding, find_culprits
from trivet.ghn.replacing import Outcome, change
from trivet.ghn.targets import Target
from trivet.graph import graph_of

CONFIG = GHNConfig(hid=8, max_shape=(8, 8, 3, 3), num_classes=4)


class Residual(nn.Module):
    """A branch that does harm when it is large, and that nothing needs."""

    def __init__(self, width: int = 8, *, norm: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2)
        self.norm = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.branch = nn.Conv2d(width, width, 3, padding=1)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(width * 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(x)))
        x = functional.adaptive_avg_pool2d(x + self.branch(x), 2)
        return self.fc(self.drop(x.flatten(1)))


class Given(GHN):
    """Predicts what it is given."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__(CONFIG, seed=0)
        self.values = dict(values)

    def predict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        return self.values


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    """Four classes: the quarter that is bright."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(192) % 4
    images = 0.3 * torch.rand(192, 1, 12, 12, generator=generator)
    for label in range(4):
        row, column = 6 * (label // 2), 6 * (label % 2)
        images[labels == label, :, row : row + 6, column : column + 6] += 0.5
    return images, labels


@pytest.fixture(scope="module")
def trained(batch: tuple[Tensor, Tensor]) -> Residual:
    torch.manual_seed(0)
    net = Residual().eval()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(net(batch[0]), batch[1]).backward()
        optimizer.step()
    assert (net(batch[0]).argmax(1) == batch[1]).double().mean() > 0.95
    return net


def _broken(net: nn.Module) -> dict[str, Tensor]:
    values = {name: value.detach().clone() for name, value in net.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    values["branch.weight"] = 100 * torch.randn(values["branch.weight"].shape, generator=generator)
    return values


def test_a_planted_fault_is_found_first(trained: Residual, batch: tuple[Tensor, Tensor]) -> None:
    found = diagnose(Residual(), Given(_broken(trained)), batch[0][:1], batch=batch, twin=trained)
    assert found.accuracy < 0.7
    first = found.culprits[0]
    assert (first.layer, first.replacement) == ("branch", "zeros")
    assert first.accuracy > found.accuracy + 0.2
    assert f"replacing branch by zeros raises accuracy from {found.accuracy:.3f} to {first.accuracy:.3f}" in str(found)
    layer = next(layer for layer in found.layers if layer.name == "branch")
    assert layer.twin is not None
    assert found.twin_accuracy == pytest.approx(found.accuracy + layer.twin.accuracy)
    assert layer.norm == pytest.approx(100 / (2 / 72) ** 0.5, rel=0.1)


def test_a_good_prediction_has_no_culprit(trained: Residual, batch: tuple[Tensor, Tensor]) -> None:
    values = dict(trained.named_parameters())
    found = diagnose(Residual(), Given(values), batch[0][:1], batch=batch, twin=values)
    assert found.culprits == ()
    assert found.verdict.startswith("No single layer breaks this prediction: the best replacement, ")
    assert "guessing" not in found.verdict
    assert found.accuracy > found.random_accuracy
    assert all(layer.twin == Change(loss=0.0, accuracy=0.0, low=0.0, high=0.0) for layer in found.layers)
    assert found.together is None


def test_guessing_is_called_guessing(batch: tuple[Tensor, Tensor]) -> None:
    zeros = {name: torch.zeros_like(value) for name, value in Residual().named_parameters()}
    found = diagnose(Residual(), Given(zeros), batch[0][:1], batch=batch)
    assert found.accuracy == 0.25
    assert "no better than guessing (0.250) and it answers the same class for every image" in found.verdict
    assert found.layers[0].effective_rank == 0


def test_accuracy_loss_and_changes_are_those_of_a_plain_loop(batch: tuple[Tensor, Tensor]) -> None:
    net, ghn = Residual(norm=True), GHN(CONFIG, seed=3)
    images, labels = batch[0][:150], batch[1][:150]  # 64 + 64 + 22: the rest is too small
    found = diagnose(net, ghn, images[:1], batch=(images, labels), draws=2)
    with torch.no_grad():
        parameters = ghn.predict(net, images[:1])

    def tested(values: Mapping[str, Tensor]) -> tuple[float, float]:
        right = loss = 0.0
        for part in (slice(0, 64), slice(64, 128)):
            x = functional.conv2d(images[part], values["stem.weight"], values["stem.bias"], stride=2)
            x = functional.batch_norm(x, None, None, values["norm.weight"], values["norm.bias"], training=True).relu()
            x = x + functional.conv2d(x, values["branch.weight"], values["branch.bias"], padding=1)
            x = functional.adaptive_avg_pool2d(x, 2).flatten(1) @ values["fc.weight"].T + values["fc.bias"]
            right += float((x.argmax(1) == labels[part]).sum())
            loss += float(functional.cross_entropy(x, labels[part], reduction="sum"))
        return right / 128, loss / 128

    assert found.images == 128
    assert (found.accuracy, found.loss) == pytest.approx(tested(parameters))
    for layer in found.layers:
        zeros = {name: value * (not name.startswith(f"{layer.name}.")) for name, value in parameters.items()}
        assert layer.zeros is not None
        got = (found.accuracy + layer.zeros.accuracy, found.loss + layer.zeros.loss)
        assert got == pytest.approx(tested(zeros), abs=1e-5)
    norm = found.layers[1]
    assert (norm.name, norm.ops, norm.norm, norm.parameters) == ("norm", ("bn",), None, 16)
    assert norm.scale == statistics.spread(parameters["norm.weight"])


def test_the_module_its_gradients_flags_and_random_numbers_stay(batch: tuple[Tensor, Tensor]) -> None:
    net = Residual(norm=True).train()
    net(batch[0]).sum().backward()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    grads = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
    state = torch.get_rng_state()
    ghn = GHN(CONFIG, seed=0)
    found = diagnose(net, ghn, batch[0][:1], batch=batch)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(torch.equal(a, b.grad) for a, b in zip(grads, net.parameters(), strict=True) if b.grad is not None)
    assert all(part.training for part in net.modules())
    assert not any(part._forward_hooks for part in net.modules())
    assert diagnose(net, ghn, batch[0][:1], batch=batch) == found


def test_dead_inputs_and_the_size_of_outputs() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(16, 4))
    values = {name: torch.zeros_like(value) for name, value in net.named_parameters()}
    values["0.weight"] = torch.tensor([1.0, -1.0, 0.0, 2.0]).view(4, 1, 1, 1)
    images = torch.rand(8, 1, 2, 2)
    found = diagnose(net, Given(values), images[:1], batch=(images, torch.arange(8) % 4))
    assert [layer.dead_inputs for layer in found.layers] == [0.0, 0.5, 1.0]
    wanted = float(functional.conv2d(images, values["0.weight"]).std(correction=0))
    assert found.layers[0].output_std == pytest.approx(wanted, rel=1e-5)


def test_neighbors_are_the_most_similar_by_cosine(batch: tuple[Tensor, Tensor]) -> None:
    ghn = GHN(CONFIG, seed=0)
    nets = {
        f"train:{i}": Residual(width, norm=norm) for i, (width, norm) in enumerate([(4, False), (8, True), (8, False)])
    }
    graphs = {name: graph_of(net, batch[0][:1]) for name, net in nets.items()}
    found = diagnose(Residual(8), ghn, batch[0][:1], batch=batch, training=graphs, nearest=2)
    assert found.neighbors[0].name == "train:2"
    assert found.neighbors[0].similarity == pytest.approx(1.0)
    means = [ghn.embed([graph])[0].mean(0).detach() for graph in graphs.values()]
    similar = [float(functional.cosine_similarity(mean, means[2], dim=0)) for mean in means]
    assert found.neighbors[1].similarity == pytest.approx(max(similar[:2]), abs=1e-6)
    assert found.pool_similarity[2] == pytest.approx(max(similar[:2]), abs=1e-6)
    assert "of 3 lie farther" in str(found)


def test_parameters_that_are_not_predicted_keep_the_modules_values(batch: tuple[Tensor, Tensor]) -> None:
    found = diagnose(Residual(), GHN(CONFIG, seed=0), batch[0][:1], batch=batch, head="keep")
    assert [layer.name for layer in found.layers] == ["stem", "branch"]
    assert set(found.kept) == {"fc.weight", "fc.bias"}
    assert "2 tensors: the classifier is kept, as asked" in str(found)


def test_a_report_is_plain_and_short(batch: tuple[Tensor, Tensor]) -> None:
    found = diagnose(Residual(), GHN(CONFIG, seed=0), batch[0][:1], batch=batch)
    assert isinstance(found, Diagnosis)
    content = json.loads(json.dumps(found.to_dict()))
    assert content["verdict"] == found.verdict
    assert [layer["name"] for layer in content["layers"]] == ["stem", "branch", "fc"]
    assert len(found.table().splitlines()) == 4
    assert "Δ twin" not in found.table()


@pytest.mark.parametrize(
    ("change_to", "message"),
    [
        ({"batch": (torch.rand(8, 1, 12, 12), torch.arange(7))}, "one whole number for each"),
        ({"batch": (torch.rand(8, 1, 12, 12), torch.arange(8))}, "labels go from 0 to 7 and the module has 4 classes"),
        ({"draws": 0}, "`draws=0` must be ≥ 1"),
        ({"example_input": None}, "`example_input` must be a batch"),
        ({"twin": Residual(4)}, "`stem.weight` is (8, 1, 3, 3) and the twin has shape (4, 1, 3, 3)"),
        ({"twin": {}}, "the twin lacks it"),
        ({"module": nn.Sequential(nn.Conv2d(1, 4, 12), nn.Conv2d(4, 4, 1))}, "only classifiers with logits"),
        ({"module": nn.ReLU()}, "no parameters"),
    ],
)
def test_what_does_not_fit_is_refused(change_to: dict[str, Any], message: str) -> None:
    images = torch.rand(8, 1, 12, 12)
    arguments: dict[str, Any] = {
        "module": Residual(),
        "example_input": images[:1],
        "batch": (images, torch.arange(8) % 4),
    }
    with pytest.raises(ValueError, match=re.escape(message)):
        diagnose(ghn=GHN(CONFIG, seed=0), **{**arguments, **change_to})


def test_a_lucky_draw_makes_no_culprit() -> None:
    low = torch.zeros(400, dtype=torch.float64)
    half = torch.tensor([0.0, 1.0] * 200, dtype=torch.float64)
    lucky = change(Outcome(half, 1.0, 2), [Outcome(torch.ones_like(half), 1.0, 2), Outcome(low, 1.0, 2)], 2)
    always = change(Outcome(half, 1.0, 2), [Outcome(torch.ones_like(half), 1.0, 2)] * 2, 2)
    assert lucky.low < 0 < always.low < always.accuracy == 0.5
    layers = [LayerFinding(name=name, ops=(), shape=(1,), parameters=1, random=each)
              for name, each in (("lucky", lucky), ("always", always))]  # fmt: skip
    assert [one.layer for one in find_culprits(layers, 0.5)] == ["always"]


def test_effective_rank_of_known_spectra() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(n, 6, generator=generator))[0] for n in (6, 9))
    values = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0, 0.0])
    p = values[:4] / values.sum()
    wanted = float(torch.exp(-(p * p.log()).sum()))
    assert statistics.effective_rank(left @ values.diag() @ right.T) == pytest.approx(wanted, rel=1e-4)
    assert statistics.effective_rank(torch.eye(7)) == pytest.approx(7)
    outer = torch.outer(torch.randn(50, generator=generator), torch.randn(80, generator=generator))
    assert statistics.effective_rank(outer) == pytest.approx(1, abs=1e-4)
    assert statistics.effective_rank(torch.zeros(3, 3)) == 0


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 8), columns=st.integers(1, 8), times=st.integers(1, 3), scale=st.floats(1e-20, 1e20),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_rank_has_no_scale_and_tiling_does_not_raise_it(
    rows: int, columns: int, times: int, scale: float, seed: int
) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    rank = statistics.effective_rank(matrix)
    assert 1 - 1e-9 <= rank <= min(rows, columns) + 1e-9
    tiled = matrix.repeat(times, 1)
    assert statistics.effective_rank(tiled * scale) == pytest.approx(rank, rel=1e-3)
    assert statistics.effective_rank(matrix.T) == pytest.approx(rank, rel=1e-6)
    assert statistics.distinct_rows(tiled) == statistics.distinct_rows(matrix) == rows


def test_random_draws_are_kaimings() -> None:
    weight = Target("w", 0, "weight", (256, 128, 3, 3), "kernel", (256, 128, 3, 3))
    drawn = statistics.random_draw(weight, torch.empty(weight.shape), torch.Generator().manual_seed(0))
    assert statistics.norm_ratio(statistics.as_matrix(drawn, weight)) == pytest.approx(1, abs=0.01)
    swapped = Target("w", 0, "weight", (64, 512), "matrix", (512, 64, 1, 1), swapped=True)
    drawn = statistics.random_draw(swapped, torch.empty(swapped.shape), torch.Generator().manual_seed(0))
    assert float(drawn.std()) == pytest.approx((2 / 64) ** 0.5, rel=0.02)
    scale = Target("s", 0, "factor", (8,), "vector", (8, 1, 1, 1))
    assert torch.equal(statistics.random_draw(scale, torch.zeros(8), torch.Generator()), torch.ones(8))
    places = Target("p", 0, "weight", (1, 16, 64), "positions", (1, 64, 4, 4))
    drawn = statistics.random_draw(places, torch.empty(1, 16, 64), torch.Generator().manual_seed(0))
    assert float(drawn.std()) == pytest.approx(0.02, rel=0.1)
