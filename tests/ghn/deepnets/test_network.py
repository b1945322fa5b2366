"""Built networks: names and shapes of the published builder, values against a naive reading of the cells, training."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trivet.ghn.deepnets import (
    DARTS_NETWORK,
    VIT_NETWORK,
    Architecture,
    CellArchitecture,
    DeepNets,
    Genotype,
    ResNet50Architecture,
)
from trivet.ghn.deepnets.draws import Draws
from trivet.ghn.deepnets.operations import FactorizedReduce, SqueezeExcite, Transformer
from trivet.ghn.deepnets.sample import sample, sample_genotype
from trivet.ghn.deepnets.splits import SPLITS
from trivet.ghn.deepnets.tensors import reductions
from trivet.ghn.deepnets.wiring import wiring
from trivet.graph import graph_of


@pytest.fixture(scope="module")
def published(shared_dir: Path) -> dict[str, Any]:
    path = shared_dir / "spec" / "fixtures" / "ghn" / "ghn2_cifar10_predictions.pt"
    if not path.is_file():
        pytest.skip(f"needs the published predictions: {path} does not exist")
    return torch.load(path, weights_only=True)["DARTS_C32_n8"]


def test_names_and_shapes_are_the_published_ones(published: dict[str, Any]) -> None:
    expected = [(name, tuple(tensor.shape)) for name, tensor in published["params"].items()]
    assert len(expected) == 319
    assert [(tensor.name, tensor.shape) for tensor in DARTS_NETWORK.tensors()] == expected
    built = DARTS_NETWORK.build()
    assert [(name, tuple(parameter.shape)) for name, parameter in built.named_parameters()] == expected
    assert DARTS_NETWORK.num_parameters() == published["n_params"]


def test_the_graph_is_the_published_one(published: dict[str, Any]) -> None:
    """Node types, edges and all distances, with nodes matched by a canonical colouring of the graphs."""
    from trivet.graph.vocabulary import PRIMITIVES

    graph = graph_of(DARTS_NETWORK.build(), torch.zeros(1, 3, 32, 32))
    edges = [(a, b) for a, b, distance in published["edges"].tolist() if distance == 1]
    types = [PRIMITIVES[index] for index in published["node_feat"].flatten().tolist()]
    assert Counter(node.op for node in graph.nodes) == Counter(types)
    assert coloured([node.op for node in graph.nodes], graph.edges) == coloured(types, edges)
    ours = Counter(distance for _, _, distance in graph.distances(50).tolist())
    assert ours == Counter(distance for _, _, distance in published["edges"].tolist())


def coloured(types: list[str], edges: Any) -> Counter[int]:
    """Colours of all nodes: their types, refined by their neighbours' colours, both ways, until nothing changes."""
    before: list[list[int]] = [[] for _ in types]
    after: list[list[int]] = [[] for _ in types]
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    colours: list[int] = [hash(kind) for kind in types]
    for _ in range(len(types)):
        finer = [
            hash(
                (colours[i], tuple(sorted(colours[j] for j in before[i])), tuple(sorted(colours[j] for j in after[i])))
            )
            for i in range(len(types))
        ]
        if len(set(finer)) == len(set(colours)):
            break
        colours = finer
    return Counter(colours)


def attention_and_gates(network: CellArchitecture) -> tuple[int, int]:
    """Operations `msa` and `cse` that are computed."""
    flags = reductions(network.num_cells)
    found: Counter[str] = Counter()
    for reduction, parts in zip(flags, wiring(network.genotype, flags) or (), strict=True):
        names = [name for name, _ in network.genotype.cell(reduction)[0]]
        found.update(name for name, computed in zip(names, parts.operations, strict=True) if computed)
    return found["msa"], found["cse"]


@pytest.mark.parametrize("index", range(8))
def test_graphs_see_every_tensor_and_operation(index: int) -> None:
    network = DeepNets("test" if index % 2 else "train")[index]
    assert isinstance(network, CellArchitecture)
    with torch.device("meta"):
        graph = graph_of(network.build(), torch.zeros(1, 3, 32, 32))
    assert set(graph.unplaced) == {tensor.name for tensor in network.tensors() if not tensor.used}
    assert (graph.count("msa"), graph.count("cse")) == attention_and_gates(network)
    assert graph.count("input") == 1
    assert graph.count("glob_avg") == int(network.global_average)
    assert graph.macs == network.macs()


def test_resnet50_has_torchvisions_names_and_values() -> None:
    models = pytest.importorskip("torchvision").models
    theirs = models.resnet50(num_classes=3).eval()
    ours = ResNet50Architecture().build(3, image_size=64, running_statistics=True).eval()
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))


class Naive:
    """A cell network computed as the cells say, step by step, with None for what is absent and nothing left out."""

    def __init__(self, network: CellArchitecture, model: nn.Module) -> None:
        self.network = network
        self.model = model

    def __call__(self, images: Tensor) -> Tensor:
        model: Any = self.model
        if self.network.stem == "imagenet":
            first = model.stem0(images)
            states: list[Tensor | None] = [first, model.stem1(first)]
        elif self.network.stem == "patch":
            states = [model.stem0(images) + model.pos_enc.weight] * 2
        else:
            states = [model.stem(images)] * 2
        for cell, reduction in zip(model.cells, reductions(self.network.num_cells), strict=True):
            states.append(self.cell(cell, reduction, states[-2], states[-1]))
        last = states[-1]
        assert last is not None
        hidden = last.mean(dim=(2, 3)) if self.network.global_average else last.reshape(len(last), -1)
        return model.classifier(hidden)

    def cell(self, cell: Any, reduction: bool, first: Tensor | None, second: Tensor | None) -> Tensor | None:
        operations, concat = self.network.genotype.cell(reduction)
        states = [
            None if first is None else cell.preprocess0(first),
            None if second is None else cell.preprocess1(second),
        ]
        for step in range(len(operations) // 2):
            terms = [
                cell._ops[position](states[state])
                for position in (2 * step, 2 * step + 1)
                for name, state in [operations[position]]
                if name != "none" and states[state] is not None
            ]
            states.append(sum(terms) if terms else None)
        found = [states[state] for state in concat]
        present = [state for state in found if state is not None]
        if not present:
            return None
        return torch.cat([0 * present[0] if state is None else state for state in found], dim=1)


def sparse(seed: int) -> CellArchitecture | None:
    """A small network half of whose operations are `none`; None when that leaves no network."""
    draws = Draws(seed)
    genotype = sample_genotype(draws, draws.integer(2, 5))

    def thinned(cell: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return tuple(("none" if draws.flip() else name, state) for name, state in cell)

    genotype = replace(genotype, normal=thinned(genotype.normal), reduce=thinned(genotype.reduce))
    num_cells = draws.integer(3, 7)
    if wiring(genotype, reductions(num_cells)) is None:
        return None
    return CellArchitecture(
        genotype=genotype,
        num_cells=num_cells,
        channels=8,
        stem="patch" if genotype.has("msa") else draws.choice(("simple", "imagenet")),
        norm=draws.choice(("bn", "none")),
    )


def test_values_are_those_of_the_cells() -> None:
    """Networks full of holes, so that absent states and cells, unread states and zeros in concatenations occur."""
    torch.manual_seed(0)
    seen: Counter[str] = Counter()
    for seed in range(100):
        network = sparse(seed)
        if network is None:
            seen["disconnected"] += 1
            continue
        model = network.build(image_size=28).double()
        images = torch.randn(2, 3, 28, 28, dtype=torch.float64)
        with torch.no_grad():
            torch.testing.assert_close(model(images), Naive(network, model)(images))
        parts = wiring(network.genotype, reductions(network.num_cells)) or ()
        seen["absent cell"] += any(not part.runs for part in parts)
        seen["zeros"] += any(part.runs and not all(part.states) for part in parts)
        seen["network"] += 1
    assert min(seen[kind] for kind in ("disconnected", "absent cell", "zeros", "network")) >= 5


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 28), (1, 32), (3, 32)])
@pytest.mark.parametrize("split", ["train", "dense"])
def test_networks_learn_from_a_batch(split: str, channels: int, size: int) -> None:
    for seed in range(2):
        network = replace(sample(Draws(100 * size + seed), SPLITS[split]), channels=8)
        model = network.build(4, channels, size)
        loss = F.cross_entropy(model(torch.randn(3, channels, size, size)), torch.tensor([0, 1, 3]))
        loss.backward()
        used = {tensor.name for tensor in network.tensors(4, channels, size) if tensor.used}
        for name, parameter in model.named_parameters():
            assert (parameter.grad is not None) == (name in used)
            assert parameter.grad is None or torch.isfinite(parameter.grad).all()


def test_large_images() -> None:
    for network in (replace(DARTS_NETWORK, channels=8, stem="imagenet"), replace(VIT_NETWORK, num_cells=4, channels=8)):
        model = network.build(5, 3, 224)
        model(torch.randn(1, 3, 224, 224)).sum().backward()
        assert model(torch.zeros(2, 3, 224, 224)).shape == (2, 5)


@pytest.mark.parametrize("size", [28, 30, 224])
def test_flattened_heads_fit_the_image(size: int) -> None:
    for stem, pool in (("simple", False), ("simple", True), ("imagenet", False)):
        network = replace(
            DARTS_NETWORK, stem=stem, stem_pool=pool, global_average=False, channels=8, num_cells=4, norm="none"
        )
        with torch.device("meta"):
            assert network.build(image_size=size)(torch.zeros(2, 3, size, size)).shape == (2, 10)


def test_published_head_and_patch_sizes() -> None:
    """The classifier of the published builder takes 8 × 8 or 4 × 4 features, 14 × 14 or 7 × 7 of large images."""
    for stem, pool, size, side in (
        ("simple", False, 32, 8), ("simple", True, 32, 4), ("imagenet", False, 32, 4),
        ("simple", False, 224, 14), ("simple", True, 224, 7), ("imagenet", False, 224, 7),
    ):  # fmt: skip
        network = replace(DARTS_NETWORK, stem=stem, stem_pool=pool, global_average=False)
        shapes = {tensor.name: tensor.shape for tensor in network.tensors(image_size=size)}
        assert shapes["classifier.0.weight"] == (10, 4 * 128 * side**2)
    for size, kernel, side in ((32, 3, 11), (224, 16, 14)):
        shapes = {tensor.name: tensor.shape for tensor in VIT_NETWORK.tensors(image_size=size)}
        assert shapes["stem0.weight"] == (128, 3, kernel, kernel)
        assert shapes["pos_enc.weight"] == (1, 128, side, side)


def test_running_statistics_are_kept_on_request_alone() -> None:
    assert not list(DARTS_NETWORK.build().buffers())
    tracked = replace(DARTS_NETWORK, channels=8).build(running_statistics=True)
    assert len(list(tracked.buffers())) == 3 * 83
    tracked.eval()
    assert tracked(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_attention_against_its_formula() -> None:
    torch.manual_seed(1)
    layer = Transformer(16).double()
    images = torch.randn(2, 16, 3, 3, dtype=torch.float64)
    tokens = images.flatten(2).transpose(1, 2)
    normed = layer.ln1(tokens)
    query, key, value = (normed @ layer.to_qkv.weight.T).split(16, dim=-1)
    heads: list[Tensor] = []
    for head in range(8):
        part = slice(2 * head, 2 * head + 2)
        weights = torch.softmax(query[..., part] @ key[..., part].transpose(1, 2) / 2**0.5, dim=-1)
        heads.append(weights @ value[..., part])
    mixed = layer.to_out(torch.cat(heads, dim=-1)) + tokens
    inner: Any = layer.ff.net
    expected = inner[3](F.gelu(inner[0](layer.ln2(mixed)))) + mixed
    torch.testing.assert_close(layer(images), expected.transpose(1, 2).reshape(2, 16, 3, 3))


def test_squeeze_excite_against_its_formula() -> None:
    layer = SqueezeExcite(4, 2)
    images = torch.randn(2, 4, 5, 5)
    gate = F.hardswish(layer.fc2(torch.relu(layer.fc1(images.mean((2, 3))))))
    torch.testing.assert_close(layer(images), (images * gate.reshape(2, 4, 1, 1))[:, :, [0, 2, 4]][..., [0, 2, 4]])


def test_factorized_reduce_takes_every_second_pixel_and_those_between() -> None:
    from trivet.ghn.deepnets.operations import Norms

    layer = FactorizedReduce(1, 2, Norms("none"))
    nn.init.ones_(layer.conv_1.weight)
    nn.init.ones_(layer.conv_2.weight)
    even, odd = torch.arange(16.0).reshape(1, 1, 4, 4), torch.arange(9.0).reshape(1, 1, 3, 3)
    assert layer(even).tolist() == [[[[0, 2], [8, 10]], [[5, 7], [13, 15]]]]
    assert layer(odd).tolist() == [[[[0, 2], [6, 8]], [[4, 0], [0, 0]]]]


def test_unread_cells_are_not_computed() -> None:
    cell = (("none", 0), ("none", 1), ("conv_1x1", 0), ("none", 1))
    genotype = Genotype(normal=cell, reduce=cell, normal_concat=(3,), reduce_concat=(3,))
    network = CellArchitecture(genotype=genotype, num_cells=4, channels=8, channel_multiplier=1)
    calls: list[int] = []
    model: Any = network.build()
    for index, module in enumerate(model.cells):
        module._ops[2].register_forward_hook(lambda *_, index=index: calls.append(index))
    model(torch.zeros(1, 3, 32, 32))
    assert calls == [1, 3]  # each cell reads the output of the cell before the previous one alone


@pytest.mark.parametrize("network", [DARTS_NETWORK, VIT_NETWORK], ids=["darts", "vit"])
def test_building_draws_from_torchs_generator(network: Architecture) -> None:
    def total(seed: int) -> float:
        torch.manual_seed(seed)
        return sum(parameter.double().sum().item() for parameter in network.build().parameters())

    assert total(1) == total(1) != total(2)
