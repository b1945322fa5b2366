from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from trivet.core.errors import TrivetError
from trivet.ghn.batch import Cache, plan_graph
from trivet.ghn.config import GHNConfig
from trivet.ghn.ghn import GHN, KEPT_PLANS
from trivet.graph.graph import Graph
from trivet.graph.trace import graph_of

CONFIGS = {
    "ghn1": GHNConfig(hid=8, max_shape=(16, 16, 5, 5), virtual_edges=0, weight_norm=False, layer_norm=False),
    "mlp": GHNConfig(hid=8, max_shape=(16, 16, 5, 5), encoder="mlp"),
    "ghn2": GHNConfig(hid=8, max_shape=(16, 16, 5, 5)),
    "ghn2-mlp-decoder": GHNConfig(hid=8, max_shape=(16, 16, 5, 5), decoder="mlp"),
    "ghn3": GHNConfig(hid=16, max_shape=(16, 16, 5, 5), encoder="graphormer", decoder="linear", heads=4, layers=2),
    "low-rank": GHNConfig(
        hid=16, max_shape=(64, 64, 5, 5), encoder="graphormer", decoder="low_rank", rank=4, heads=4, layers=2
    ),
}


class Branches(nn.Module):
    """A bit of everything that hypernetworks meet."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 20, 7, padding=3)
        self.norm = nn.GroupNorm(4, 20)
        self.depth = nn.Conv2d(20, 20, 3, padding=1, groups=20, bias=False)
        self.up = nn.ConvTranspose2d(20, 12, 3, padding=1)
        self.mix = nn.Conv2d(32, 40, 1)
        self.line = nn.Conv1d(40, 24, 3, padding=1)
        self.last_norm = nn.LayerNorm(24)
        self.factors = nn.Parameter(torch.ones(24))
        self.fc = nn.Linear(24, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.stem(x)).relu()
        x = self.mix(torch.cat((self.depth(x) + x, self.up(x)), 1)).relu()
        x = self.line(x.flatten(2)).mean(2)
        return self.fc(self.last_norm(x) * self.factors)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return Branches()


@pytest.fixture(scope="module")
def graph(network: nn.Module) -> Graph:
    return graph_of(network, torch.zeros(1, 3, 8, 8))


@pytest.fixture(params=CONFIGS, scope="module")
def ghn(request: pytest.FixtureRequest) -> GHN:
    return GHN(CONFIGS[request.param], seed=1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_every_parameter_is_predicted_or_kept_with_a_reason(ghn: GHN, network: nn.Module, graph: Graph) -> None:
    predicted = ghn.predict(network, graph=graph)
    coverage = ghn.coverage(graph)
    assert tuple(sorted(predicted)) == tuple(sorted(coverage.predicted))
    own = dict(network.named_parameters())
    assert set(predicted) | set(coverage.kept) == set(own)
    assert set(coverage.kept) == {"factors"}
    assert all(predicted[name].shape == own[name].shape for name in predicted)
    assert all(bool(value.isfinite().all()) for value in predicted.values())


def test_writing_in_place_gives_the_same_bits(ghn: GHN, network: nn.Module, graph: Graph) -> None:
    model = copy.deepcopy(network).to(memory_format=torch.channels_last)
    storages = {name: value.data_ptr() for name, value in model.named_parameters()}
    coverage = ghn.predict_(model, graph=graph)
    predicted = ghn.predict(model, torch.zeros(1, 3, 8, 8))
    for name, value in model.named_parameters():
        assert value.data_ptr() == storages[name]
        assert value.requires_grad
        if name in predicted:
            torch.testing.assert_close(value, predicted[name], rtol=0, atol=1e-6)
    assert torch.equal(model.factors, torch.ones(24))
    assert set(coverage.predicted) == set(predicted)


def test_gradients_reach_every_weight_of_the_hypernetwork(ghn: GHN, network: nn.Module, graph: Graph) -> None:
    ghn.zero_grad()
    network.zero_grad()
    predicted = ghn.predict(network, graph=graph)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    out = torch.func.functional_call(network, predicted, (x,))
    nn.functional.cross_entropy(out, torch.tensor([0, 1, 2, 3])).backward()
    missing = [name for name, value in ghn.named_parameters() if value.grad is None]
    zero = [name for name, value in ghn.named_parameters() if value.grad is not None and not value.grad.any()]
    assert not missing
    # A bias before the softmax over distances that all pairs share cannot matter.
    assert [name for name in zero if not name.startswith("encoder.edge_bias.second.bias")] == []
    assert {name for name, value in network.named_parameters() if value.grad is not None} == {"factors"}


def test_directional_derivative_of_the_loss(network: nn.Module, graph: Graph) -> None:
    ghn = GHN(CONFIGS["ghn2"], seed=1).double()
    model = copy.deepcopy(network).double()
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)

    def loss() -> torch.Tensor:
        return torch.func.functional_call(model, ghn.predict(model, graph=graph), (x,)).square().mean()

    weights = list(ghn.parameters())
    directions = [torch.randn_like(weight) for weight in weights]
    gradients = torch.autograd.grad(loss(), weights)
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    values = []
    for step in (1e-6, -2e-6):
        with torch.no_grad():
            for weight, direction in zip(weights, directions, strict=True):
                weight += step * direction
            values.append(float(loss()))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-4)


def test_same_seed_same_bits(one_thread: None, network: nn.Module, graph: Graph) -> None:
    state = torch.random.get_rng_state()
    first, second = (GHN(CONFIGS["ghn2"], seed=5).predict(network, graph=graph) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(torch.random.get_rng_state(), state)
    other = GHN(CONFIGS["ghn2"], seed=6).predict(network, graph=graph)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])


def test_a_batch_is_its_graphs_one_by_one(ghn: GHN, make_graph: Callable[..., Graph]) -> None:
    graphs = [make_graph(seed, count=10 + 7 * seed) for seed in range(3)]
    with torch.no_grad():
        together, states = ghn.predict_batch(graphs), ghn.embed(graphs)
        for graph, found, own in zip(graphs, together, states, strict=True):
            alone = ghn.predict_batch([graph])[0]
            assert list(alone) == list(found)
            assert own.shape == (len(graph.nodes), ghn.config.hid)
            torch.testing.assert_close(own, ghn.embed([graph])[0], rtol=1e-4, atol=1e-5)
            for name, value in alone.items():
                torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_scales_lie_around_one_and_biases_within_one(network: nn.Module, graph: Graph) -> None:
    predicted = GHN(CONFIGS["ghn2"], seed=1).predict(network, graph=graph)
    assert 0 < predicted["norm.weight"].min() < predicted["norm.weight"].max() < 2
    assert predicted["norm.bias"].abs().max() < 1
    assert predicted["stem.bias"].abs().max() < 1


def test_classifiers_of_other_sizes(network: nn.Module) -> None:
    ghn = GHN(CONFIGS["ghn2"], seed=1)
    model = Branches(classes=33)
    example = torch.zeros(1, 3, 8, 8)
    before = copy.deepcopy(model.state_dict())
    for call in (ghn.predict, ghn.predict_):
        with pytest.raises(ValueError, match=r"33 classes .* predicts 10"):
            call(model, example)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert "fc.weight" not in ghn.predict(model, example, head="keep")
    resized = ghn.predict(model, example, head="resize")
    assert resized["fc.weight"].shape == (33, 24)
    assert torch.equal(resized["fc.weight"][:16], resized["fc.weight"][16:32])
    same_size = ghn.predict(network, example, head="resize")["fc.weight"]
    assert not torch.equal(same_size, ghn.predict(network, example)["fc.weight"])


def bad_calls() -> dict[str, tuple[Callable[[GHN, nn.Module], object], str]]:
    conv = nn.Sequential(nn.Conv2d(3, 4, 1))
    other = graph_of(conv, torch.zeros(1, 3, 4, 4))
    return {
        "no input": (lambda ghn, net: ghn.predict(net), "`example_input` must be a batch"),
        "foreign graph": (lambda ghn, net: ghn.predict_(net, graph=other), "has no parameter `0.weight`"),
        "other shape": (lambda ghn, net: ghn.predict_(nn.Sequential(nn.Conv2d(5, 4, 1)), graph=other), "`0.weight` is"),
        "no graphs": (lambda ghn, net: ghn.predict_batch([]), "at least one graph"),
        "meta": (lambda ghn, net: ghn.predict_(copy.deepcopy(conv).to("meta"), graph=other), "has no storage"),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_calls_leave_the_module_as_it_was(name: str, network: nn.Module) -> None:
    ghn = GHN(CONFIGS["ghn2"], seed=1)
    before = copy.deepcopy(network.state_dict())
    call, message = bad_calls()[name]
    with pytest.raises(ValueError, match=message):
        call(ghn, network)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize(
    "weight", ["decoder.out.bias", "vectors.out.bias", "encoder.gru.bias_ih", "vectors.classes.bias"]
)
def test_nothing_is_written_when_a_prediction_is_not_finite(weight: str, network: nn.Module, graph: Graph) -> None:
    ghn = GHN(CONFIGS["ghn2"], seed=1)
    with torch.no_grad():
        ghn.get_parameter(weight)[3] = torch.nan
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(TrivetError, match="not finite; nothing was written"):
        ghn.predict_(network, graph=graph)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_tied_weights_are_written_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8, bias=False)
            self.b = nn.Linear(8, 8, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x).relu())

    model = Tied()
    coverage = GHN(CONFIGS["ghn2"], seed=1).predict_(model, torch.zeros(2, 8))
    assert coverage.predicted == ("a.weight",)
    assert model.a.weight is model.b.weight


def test_plans_are_kept_by_key_and_bounded(make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    ghn, graph = GHN(CONFIGS["ghn2"], seed=1), make_graph(0)
    ghn.embed([graph])
    monkeypatch.setattr("trivet.ghn.ghn.join", lambda *args: pytest.fail("planned twice"))
    ghn.embed([Graph.from_dict(graph.to_dict())])
    monkeypatch.undo()
    for seed in range(1, KEPT_PLANS):
        ghn.embed([make_graph(seed, count=3)])
    assert len(ghn._plans) == len(ghn._batches) == KEPT_PLANS
    cache = Cache(2)
    made = [cache.get(key, lambda key=key: [key]) for key in ("a", "b", "a", "c", "a")]
    assert made[0] is made[2] is made[4]
    assert cache.get("b", lambda: "new") == "new"


def test_graphs_met_in_ever_new_batches_are_planned_once(
    make_graph: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    ghn, graphs = GHN(CONFIGS["ghn2"], seed=1), [make_graph(seed, count=3) for seed in range(12)]
    ghn.remember(len(graphs))
    planned: list[str] = []

    def count(graph: Graph, *args: object) -> object:
        planned.append(graph.key)
        return plan_graph(graph, *args)  # pyrefly: ignore[bad-argument-type]

    monkeypatch.setattr("trivet.ghn.ghn.plan_graph", count)
    for first in range(12):
        for second in range(12):
            ghn.predict_batch([graphs[first], graphs[second]])
    assert sorted(planned) == sorted(graph.key for graph in graphs)
    with pytest.raises(ValueError, match="must be ≥ 1"):
        ghn.remember(0)


def test_copies_and_pickles_carry_no_plans(make_graph: Callable[..., Graph]) -> None:
    ghn, graph = GHN(CONFIGS["ghn2"], seed=1), make_graph(0)
    expected = ghn.predict_batch([graph])[0]["fc.weight"]
    for other in (copy.deepcopy(ghn), pickle.loads(pickle.dumps(ghn))):
        assert len(other._plans) == len(other._batches) == 0
        assert torch.equal(other.predict_batch([graph])[0]["fc.weight"], expected)


def test_plans_made_in_inference_mode_serve_gradients(network: nn.Module, graph: Graph) -> None:
    ghn = GHN(CONFIGS["ghn2"], seed=1)
    with torch.inference_mode():
        expected = ghn.predict(network, graph=graph)["fc.weight"]
    found = ghn.predict(network, graph=graph)["fc.weight"]
    found.sum().backward()
    assert torch.equal(found, expected)


def test_autocast_around_it_changes_nothing(network: nn.Module, graph: Graph) -> None:
    ghn = GHN(CONFIGS["ghn3"], seed=1)
    expected = ghn.predict(network, graph=graph)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ghn.predict(network, graph=graph)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_more_words_have_embeddings_of_their_own(network: nn.Module, graph: Graph) -> None:
    config = GHNConfig(**{**CONFIGS["ghn2"].to_dict(), "words": 40})
    ghn = GHN(config, seed=1)
    ghn.predict(network, graph=graph)["norm.weight"].sum().backward()
    touched = ghn.word.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert 15 in touched
    assert 11 not in touched
