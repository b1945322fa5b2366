"""Why a prediction is good or bad, layer by layer; the network itself is never changed.

For every layer: the size of its weight against a Kaiming draw's, its effective rank, the rows that tiling repeats, what
passes through it, and its sensitivity: how loss and accuracy on labelled images change when this layer alone is
replaced by Kaiming draws, by zeros, or by the layer of the same network trained. A layer that the network is better
without breaks the prediction.

Batch normalization takes the statistics of each batch, dropout is off. Not covered: layers that are only bad together
(see `Diagnosis.random_accuracy` and `together`), and losses other than cross-entropy over classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trivet.core.seeding import derive
from trivet.ghn import layer_statistics as statistics
from trivet.ghn.config import Head
from trivet.ghn.findings import Culprit, Diagnosis, LayerFinding, Neighbor
from trivet.ghn.ghn import GHN
from trivet.ghn.replacing import Bench, Outcome, change
from trivet.ghn.targets import Target, targets_of
from trivet.graph.trace import graph_of

if TYPE_CHECKING:
    from trivet.graph.graph import Graph

Progress = Callable[[int, int], None]
"""Called with the number of layers done and of all layers."""
EMBEDDED_AT_ONCE = 16
"""Training graphs that are read together."""


def diagnose(
    module: nn.Module,
    ghn: GHN | str | Path,
    example_input: Any = None,
    *,
    batch: tuple[Tensor, Tensor],
    twin: nn.Module | Mapping[str, Tensor] | None = None,
    graph: Graph | None = None,
    head: Head = "predict",
    training: Mapping[str, Graph] | None = None,
    nearest: int = 5,
    draws: int = 3,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Look into what a hypernetwork predicts for a module.

    Args:
        module: A classifier that maps a batch of images to logits [images, classes]. It is not changed.
        ghn: A hypernetwork, or the name or folder of one.
        example_input: A batch as the module takes it. Not needed with `graph`.
        batch: Images as the module takes them, the first size counting images, and their labels, int64 [images].
        twin: The same network after training, or its parameters by name.
        graph: The module's graph, if you have it already.
        head: What happens to the classifier, see `GHN.predict`.
        training: Graphs of architectures that the hypernetwork was trained on, by a name to show.
        nearest: How many of them are shown.
        draws: Kaiming draws.
        batch_size: Images that are passed at once; a last batch smaller than half of it is left out.
        seed: Of the draws.
        progress: Called after each layer.

    Raises:
        ValueError: Images, labels or twin do not fit the module, nothing is predicted, or as `GHN.predict`.

    Examples:
        >>> from trivet.ghn import GHNConfig
        >>> net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> images, labels = torch.rand(32, 1, 8, 8), torch.arange(32) % 10
        >>> ghn = GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0)
        >>> found = diagnose(net, ghn, images[:1], batch=(images, labels))
        >>> [(layer.name, layer.distinct_rows) for layer in found.layers], found.images
        ([('0', 8), ('3', 10)], 32)
    """
    if draws < 1 or batch_size < 2:
        raise ValueError(f"`draws={draws}` must be ≥ 1 and `batch_size={batch_size}` ≥ 2")
    ghn = ghn if isinstance(ghn, GHN) else GHN.from_pretrained(ghn)
    if graph is None:
        if example_input is None:
            raise ValueError("`example_input` must be a batch as the module takes it, unless `graph` is given")
        graph = graph_of(module, example_input)
    targets, kept = targets_of(graph, ghn.config, head)
    if not targets:
        raise ValueError("none of the module's parameters can be predicted, so there is nothing to diagnose")
    with torch.no_grad():
        predicted = ghn.predict(module, graph=graph, head=head)
        bench = Bench(module, predicted, batch, batch_size)
        trained = None if twin is None else _trained(twin, bench.parameters)
        layers = _layers(module, targets)
        draw = [_draws(layers, bench.parameters, derive(seed, "diagnose", number)) for number in range(draws)]
        findings, result = _examine(bench, layers, draw, trained, graph, progress)
        randoms = [bench.test(_merged(one.values())) for one in draw]
        neighbors, pool = _neighbors(ghn, graph, training or {}, nearest)
        found = Diagnosis(
            layers=findings,
            accuracy=result.accuracy,
            loss=result.loss,
            random_accuracy=sum(one.accuracy for one in randoms) / draws,
            random_loss=sum(one.loss for one in randoms) / draws,
            images=len(result.right),
            batch_size=batch_size,
            draws=draws,
            classes=result.classes,
            answered=result.answered,
            twin_accuracy=None if trained is None else bench.test(trained).accuracy,
            together=None,
            kept=kept,
            neighbors=neighbors,
            pool_similarity=pool,
        )
        return _with_together(found, bench, draw)


def _trained(twin: nn.Module | Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    given = dict(twin.named_parameters()) if isinstance(twin, nn.Module) else dict(twin)
    for name, value in own.items():
        shape = tuple(given[name].shape) if name in given else None
        if shape != tuple(value.shape):
            has = "lacks it" if shape is None else f"has shape {shape}"
            raise ValueError(f"`twin` must be the same network: `{name}` is {tuple(value.shape)} and the twin {has}")
    return {name: given[name].detach().to(value) for name, value in own.items()}


Layers = dict[str, list[Target]]


def _layers(module: nn.Module, targets: Iterable[Target]) -> Layers:
    """Targets by the module that holds them, in its order."""
    by_name = {target.name: target for target in targets}
    layers: Layers = {}
    for name, _ in module.named_parameters():
        if name in by_name:
            layers.setdefault(name.rpartition(".")[0] or name, []).append(by_name[name])
    return layers


Drawn = dict[str, dict[str, Tensor]]


def _draws(layers: Layers, parameters: Mapping[str, Tensor], seed: int) -> Drawn:
    """One Kaiming draw of every layer; a layer's draw depends on its name and on no other layer."""
    found: Drawn = {}
    for layer, targets in layers.items():
        generator = torch.Generator().manual_seed(derive(seed, layer))
        found[layer] = {
            target.name: statistics.random_draw(target, parameters[target.name], generator) for target in targets
        }
    return found


def _merged(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: value for part in parts for name, value in part.items()}


def _examine(
    bench: Bench,
    layers: Layers,
    draws: Sequence[Drawn],
    trained: Mapping[str, Tensor] | None,
    graph: Graph,
    progress: Progress | None,
) -> tuple[tuple[LayerFinding, ...], Outcome]:
    """Every layer, and the network as predicted."""
    modules = dict(bench.shell.named_modules())
    with statistics.watched({name: modules[name] for name in layers if name in modules}) as signals:
        before = bench.test({})
    comparisons = len(layers) * (2 if trained is None else 3)
    findings = []
    for number, (name, targets) in enumerate(layers.items(), 1):
        zeros = {target.name: torch.zeros_like(bench.parameters[target.name]) for target in targets}
        replacements: dict[str, list[Mapping[str, Tensor]]] = {"random": [one[name] for one in draws], "zeros": [zeros]}
        if trained is not None:
            replacements["twin"] = [{target.name: trained[target.name] for target in targets}]
        changes = {
            kind: change(before, [bench.test(values) for values in several], comparisons)
            for kind, several in replacements.items()
        }
        signal = signals.get(name, statistics.Signal())
        findings.append(
            LayerFinding(
                name=name,
                ops=tuple(dict.fromkeys(graph.nodes[target.node].op for target in targets)),
                shape=max(targets, key=lambda one: bench.parameters[one.name].numel()).shape,
                parameters=sum(bench.parameters[target.name].numel() for target in targets),
                output_std=signal.output_std,
                dead_inputs=signal.dead_inputs,
                **_numbers(targets, bench.parameters, draws[0][name]),
                random=changes["random"],
                zeros=changes["zeros"],
                twin=changes.get("twin"),
            )
        )
        if progress is not None:
            progress(number, len(layers))
    return tuple(findings), before


def _numbers(targets: Sequence[Target], values: Mapping[str, Tensor], random: Mapping[str, Tensor]) -> dict[str, Any]:
    """What a layer's tensors are like, for `LayerFinding`."""
    found: dict[str, Any] = {}
    weights = [target for target in targets if target.form != "vector"]
    if weights:
        largest = max(weights, key=lambda one: values[one.name].numel())
        matrix = statistics.as_matrix(values[largest.name], largest)
        is_position = largest.form in ("positions", "map")
        found = {
            "norm": None if is_position else statistics.norm_ratio(matrix),
            "effective_rank": statistics.effective_rank(matrix),
            "random_rank": statistics.effective_rank(statistics.as_matrix(random[largest.name], largest)),
            "max_rank": min(matrix.shape),
            "distinct_rows": statistics.distinct_rows(matrix),
            "rows": matrix.shape[0],
        }
    for target in targets:
        if target.form == "vector":
            found["scale" if target.kind == "factor" else "bias"] = statistics.spread(values[target.name])
    return found


def _with_together(found: Diagnosis, bench: Bench, draws: Sequence[Drawn]) -> Diagnosis:
    """Add what replacing all culprits at once gives."""
    culprits = found.culprits
    if len(culprits) < 2:
        return found

    def replaced(one: Culprit, drawn: Drawn) -> dict[str, Tensor]:
        values = drawn[one.layer]
        return values if one.replacement == "random" else {n: torch.zeros_like(v) for n, v in values.items()}

    tested = [bench.test(_merged(replaced(one, drawn) for one in culprits)) for drawn in draws]
    return dataclasses.replace(found, together=sum(one.accuracy for one in tested) / len(tested))


def _neighbors(
    ghn: GHN, graph: Graph, training: Mapping[str, Graph], nearest: int
) -> tuple[tuple[Neighbor, ...], tuple[float, ...]]:
    """Training architectures with the most similar mean node state, and how similar they are to each other."""
    if not training:
        return (), ()
    names = list(training)
    own = _embedded(ghn, [graph])[0]
    pool = torch.cat(
        [
            _embedded(ghn, [training[name] for name in names[first : first + EMBEDDED_AT_ONCE]])
            for first in range(0, len(names), EMBEDDED_AT_ONCE)
        ]
    )
    similarity = pool @ own
    best = similarity.argsort(descending=True, stable=True)[:nearest].tolist()
    neighbors = tuple(Neighbor(name=names[i], similarity=float(similarity[i])) for i in best)
    if len(names) < 2:
        return neighbors, ()
    mutual = (pool @ pool.T).fill_diagonal_(-2.0)
    return neighbors, tuple(mutual.max(1).values.tolist())


def _embedded(ghn: GHN, graphs: Sequence[Graph]) -> Tensor:
    """Mean node states at length 1, float64 [graphs, hid]."""
    means = torch.stack([states.mean(0) for states in ghn.embed(graphs)]).double()
    return functional.normalize(means, dim=1)
