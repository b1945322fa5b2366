"""The graph hypernetwork: reads the graphs of networks and predicts all of their parameters in one pass.

A node starts as the embedding of its word plus that of its four sizes; the encoder passes messages over the graph; the
decoders make a weight, a scale or a bias of each node's state; tiling and normalization fit them to the parameters.
Formulas and sources are in the modules that do each step.

Not covered: training it, and running statistics of batch normalization, which no published hypernetwork predicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import TrivetError
from trivet.ghn.batch import Cache, GraphBatch, join, plan_graph
from trivet.ghn.config import GHNConfig, Head
from trivet.ghn.decoder import VectorDecoder, make_decoder
from trivet.ghn.gated import GatedEncoder, MLPEncoder
from trivet.ghn.graphormer import GraphormerEncoder
from trivet.ghn.groups import Group, group_targets
from trivet.ghn.normalize import factor, offset
from trivet.ghn.shapes import ShapeVocabulary
from trivet.ghn.targets import Coverage, targets_of
from trivet.ghn.task_encoder import ClassDecoder, Task, TaskEncoder, TaskStates, check_tasks
from trivet.ghn.writing import made, overflows, why_unwritable, write_part

if TYPE_CHECKING:
    from trivet.graph.graph import Graph

KEPT_PLANS = 64
"""Graphs, and batches of graphs, whose plans a hypernetwork keeps; see `GHN.remember`."""


class GHN(nn.Module):
    """A graph hypernetwork.

    Args:
        config: Its structure.
        seed: Seed of its initial weights; None takes them from torch's global generator.

    Examples:
        >>> from trivet.graph import Graph, Node
        >>> ghn = GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0)
        >>> weight = Node(name="w", op="conv", parameters=("w",), shape=(32, 3, 3, 3))
        >>> graph = Graph(nodes=(Node(name="input", op="input"), weight), edges=((0, 1),))
        >>> ghn.predict_batch([graph])[0]["w"].shape
        torch.Size([32, 3, 3, 3])
    """

    def __init__(self, config: GHNConfig, *, seed: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.sizes = ShapeVocabulary(config.num_classes, config.max_shape[2])
        with torch.random.fork_rng(devices=(), enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            d = config.hid
            self.word = nn.Embedding(config.words, d)
            self.channel = nn.Embedding(len(self.sizes.channels) + 1, d // 4)
            self.kernel = nn.Embedding(len(self.sizes.kernels) + 1, d // 4)
            encoders = {"gated": GatedEncoder, "graphormer": GraphormerEncoder, "mlp": MLPEncoder}
            self.encoder = encoders[config.encoder](config)
            self.norm = nn.LayerNorm(d) if config.layer_norm else nn.Identity()
            self.decoder = make_decoder(config)
            self.vectors = VectorDecoder(config)
            if config.encoder == "graphormer":
                self._start_small()
            if config.task == "set":
                self.tasks = TaskEncoder(config)
                self.rows = ClassDecoder(config)
                del self.decoder.classes, self.vectors.classes  # of one fixed number of classes
        self._plans = Cache(KEPT_PLANS)
        self._batches = Cache(KEPT_PLANS)

    def _start_small(self) -> None:
        """The initial weights of GHN-3: embeddings of size 1/√d, and last layers a fifth as large, without bias."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.trunc_normal_(module.weight, std=module.embedding_dim**-0.5)
        if isinstance(self.encoder, GraphormerEncoder):
            self.encoder.reset_distances()
        decoder = self.decoder
        last = [getattr(decoder, name, None) for name in ("out", "classes")]
        for layer in (self.vectors.out, *last):
            if isinstance(layer, nn.Linear):
                with torch.no_grad():
                    layer.weight /= 5
                    layer.bias.zero_()

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.word.weight.device

    def predict(
        self,
        model: nn.Module,
        example_input: Any = None,
        *,
        graph: Graph | None = None,
        head: Head = "predict",
        task: Task | None = None,
    ) -> dict[str, Tensor]:
        """Parameters for a module, through which gradients flow back to the hypernetwork.

        Use them with `torch.func.functional_call`; parameters that are missing in the result keep their own values.

        Args:
            model: Any module. It is not changed.
            example_input: A batch as the module takes it, from which its graph is made: a tensor, a tuple, or a
                mapping of keyword arguments. Not needed with `graph`.
            graph: Its graph, if you have it already.
            head: What happens to the classifier when there is one: "predict" it, which needs as many classes as the
                hypernetwork was trained on, "resize": decode it like any other linear layer, or "keep": leave it out.
            task: For a hypernetwork with `GHNConfig.task` "set": a few images as the module takes them, [N, C, H, W],
                and their labels 0, 1, … [N]. The classifier must have as many classes as there are labels.

        Returns:
            Name → parameter, in the order of the graph, on the hypernetwork's device and of its type.

        Raises:
            ValueError: The classifier has another number of classes, the graph is not that of the module, neither
                graph nor input is given, or the task is missing, unusable or not asked for.

        Examples:
            >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 10))
            >>> ghn = GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0)
            >>> parameters = ghn.predict(net, torch.zeros(1, 3, 8, 8))
            >>> torch.func.functional_call(net, parameters, torch.ones(2, 3, 8, 8)).shape
            torch.Size([2, 10])
        """
        graph = _graph(model, example_input, graph)
        return self.predict_batch([graph], head=head, tasks=_listed(task))[0]

    def predict_batch(
        self, graphs: Sequence[Graph], *, head: Head = "predict", tasks: Sequence[Task] | None = None
    ) -> list[dict[str, Tensor]]:
        """Parameters for several networks at once, given their graphs and, if need be, tasks; else like `predict`.

        Raises:
            ValueError: As `predict`, or there is no graph.
        """
        results: list[dict[str, Tensor]] = [{} for _ in graphs]
        with torch.autocast(self.device.type, enabled=False):
            batch, groups = self._batch(graphs, head)
            told = self._told(batch, graphs, head, tasks)
            for group, block in self._decoded(self._states(batch, told), groups, told):
                for part in group.parts:
                    for (index, name), value in zip(part.names, made(part, block), strict=True):
                        results[index][name] = value
        return [
            {name: own[name] for name in graph.parameters if name in own}
            for graph, own in zip(graphs, results, strict=True)
        ]

    @torch.no_grad()
    def predict_(
        self,
        model: nn.Module,
        example_input: Any = None,
        *,
        graph: Graph | None = None,
        head: Head = "predict",
        task: Task | None = None,
    ) -> Coverage:
        """Write predicted parameters into a module, in one pass over its storage; arguments as for `predict`.

        Everything is checked before the first parameter is touched. Strides, types and devices of the parameters stay.
        Frozen parameters, and those that cannot hold what is predicted, keep their values and are listed.

        Returns:
            What was predicted, and what kept its own values, with the reasons.

        Raises:
            ValueError: As `predict`, or a parameter has no storage ("meta" device).
            TrivetError: What is predicted is not finite.
        """
        graph = _graph(model, example_input, graph)
        parameters = dict(model.named_parameters())
        empty = [name for name in graph.parameters if parameters[name].is_meta]
        if empty:
            raise ValueError(
                f"parameter `{empty[0]}` is on the meta device and has no storage; call `model.to_empty` first"
            )
        coverage = self._plans.get((graph.key, head), lambda: self.coverage(graph, head=head))
        left = {name: why_unwritable(parameters[name]) for name in coverage.predicted}
        takes = {name: parameters[name] for name, reason in left.items() if not reason}
        with torch.autocast(self.device.type, enabled=False):
            batch, groups = self._batch([graph], head)
            told = self._told(batch, [graph], head, _listed(task))
            decoded = list(self._decoded(self._states(batch, told), groups, told))
        for group, block in decoded:
            # Extremes pass on what is not a number, in one pass and without a mask.
            if not all(bool(torch.stack(values.aminmax()).isfinite().all()) for values in block.values()):
                name = group.parts[0].names[0][1]
                raise TrivetError(f"what is predicted for `{name}` is not finite; nothing was written into the module")
            narrow = next(filter(None, (overflows(part, block, takes) for part in group.parts)), "")
            if narrow:
                raise TrivetError(
                    f"what is predicted for `{narrow}` is not finite in float16; nothing was written into the module"
                )
        for group, block in decoded:
            for part in group.parts:
                write_part(part, block, takes)
        return Coverage(
            tuple(name for name in coverage.predicted if name in takes),
            {**coverage.kept, **{name: reason for name, reason in left.items() if reason}},
        )

    def embed(self, graphs: Sequence[Graph], *, tasks: Sequence[Task] | None = None) -> list[Tensor]:
        """States of the nodes, just before they are decoded: [nodes, hid] for each graph."""
        batch, _ = self._batch(graphs, "keep")
        return list(self._states(batch, self._told(batch, graphs, "keep", tasks)).split(batch.counts))

    def coverage(self, graph: Graph, *, head: Head = "predict") -> Coverage:
        """Which parameters of a graph would be predicted, and why the others would not.

        Raises:
            ValueError: The classifier has another number of classes than is predicted.
        """
        targets, kept = targets_of(graph, self.config, head)
        return Coverage(tuple(target.name for target in targets), kept)

    def remember(self, graphs: int) -> None:
        """Keep the plans of up to so many graphs, about 20 kB each: training meets the same ones again and again.

        Raises:
            ValueError: Fewer than one.
        """
        if graphs < 1:
            raise ValueError(f"`graphs={graphs}` must be ≥ 1")
        self._plans.size = 3 * graphs  # plan, targets and coverage of each

    def _batch(self, graphs: Sequence[Graph], head: Head) -> tuple[GraphBatch, list[Group]]:
        """Plans of graphs, from the cache where they were met before."""
        if not graphs:
            raise ValueError("`graphs` must hold at least one graph")
        keys = tuple(graph.key for graph in graphs)

        def joined() -> GraphBatch:
            plans = [
                self._plans.get(key, lambda graph=graph: plan_graph(graph, self.config, self.sizes))
                for key, graph in zip(keys, graphs, strict=True)
            ]
            return join(plans, self.config, self.device)

        def grouped() -> list[Group]:
            targets = [
                self._plans.get((key, head, "targets"), lambda graph=graph: targets_of(graph, self.config, head)[0])
                for key, graph in zip(keys, graphs, strict=True)
            ]
            return group_targets(targets, [len(graph.nodes) for graph in graphs], self.config, self.device)

        # What is kept must serve later calls with gradients too.
        with torch.inference_mode(False):
            batch = self._batches.get((keys, self.device), joined)
            return batch, self._batches.get((keys, self.device, head), grouped)

    def _told(
        self, batch: GraphBatch, graphs: Sequence[Graph], head: Head, tasks: Sequence[Task] | None
    ) -> TaskStates | None:
        """What nodes and classifiers are told of the tasks; None without."""
        check_tasks(self.config, graphs, head, tasks)
        return None if tasks is None else self.tasks(tasks, batch.counts)

    def _states(self, batch: GraphBatch, told: TaskStates | None = None) -> Tensor:
        """Encode a batch: [nodes, hid]."""
        nothing = self.word.weight.new_zeros(1, self.config.hid)
        words = F.embedding(batch.words, torch.cat((self.word.weight, nothing)))
        sizes = torch.cat((self.channel(batch.sizes[:, :2]), self.kernel(batch.sizes[:, 2:])), 1).flatten(1)
        known = words + sizes if told is None else words + sizes + told.nodes
        return self.norm(self.encoder(known, batch))

    def _decoded(
        self, x: Tensor, groups: Sequence[Group], told: TaskStates | None = None
    ) -> Iterator[tuple[Group, Mapping[str, Tensor]]]:
        """Blocks of every group, by the kind of parameter that they are for, squashed where they are vectors."""
        weights = [group for group in groups if group.kind == "weight"]
        if weights:
            blocks = self.decoder(x, [(group.nodes, group.view) for group in weights])
            yield from ((group, {"weight": block}) for group, block in zip(weights, blocks, strict=True))
        as_factor, as_offset = (factor, offset) if self.config.weight_norm else (_same, _same)
        for group in groups:
            if group.kind == "vector":
                both = self.vectors(x[group.nodes])
                yield group, {"factor": as_factor(both[:, 0]), "offset": as_offset(both[:, 1])}
            elif group.kind == "class_weight" and told:
                rows = self.rows.weights(x[group.nodes], told.classes_of(group.nodes), group.view[1])
                yield group, {"class_weight": rows}
            elif group.kind == "class_bias" and told:
                biases = self.rows.biases(x[group.nodes], told.classes_of(group.nodes))
                yield group, {"class_bias": as_offset(biases)}
            elif group.kind == "class_weight":
                yield group, {"class_weight": self.decoder.classifiers(x[group.nodes], group.view[1]).contiguous()}
            elif group.kind == "class_bias":
                yield group, {"class_bias": as_offset(self.vectors.classifiers(x[group.nodes]))}

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write `config.json` and `model.safetensors` into a folder, made if it does not exist; returns it."""
        from trivet.ghn.store import save

        return save(self, Path(folder))

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path) -> GHN:
        """Load what `save_pretrained` wrote, or a hypernetwork that comes with this package, by its name.

        Raises:
            ValueError: There is no such folder or name, or what it holds is damaged or of another kind.
        """
        from trivet.ghn.store import load

        return load(name_or_folder)

    @classmethod
    def from_reference_checkpoint(cls, path: str | Path) -> GHN:
        """Load a checkpoint of the code published with GHN-1, GHN-2 or GHN-3.

        Raises:
            ValueError: The file cannot be read safely, or what it holds is no such checkpoint.
        """
        from trivet.ghn.reference import load

        return load(Path(path))

    def extra_repr(self) -> str:
        """Name the configuration when the module is printed."""
        return str(self.config)


def _graph(model: nn.Module, example_input: Any, graph: Graph | None) -> Graph:
    """The given graph, checked against the module, or the module's own."""
    if graph is None:
        if example_input is None:
            raise ValueError("`example_input` must be a batch as the module takes it, unless `graph` is given")
        from trivet.graph.trace import graph_of

        return graph_of(model, example_input)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    for node in graph.nodes:
        for name in node.parameters:
            if name not in shapes:
                raise ValueError(f"`graph` is not that of the module: the module has no parameter `{name}`")
        if node.parameters and shapes[node.parameters[0]] != node.shape:
            name = node.parameters[0]
            raise ValueError(
                f"`graph` is not that of the module: `{name}` is {shapes[name]} there and {node.shape} here"
            )
    return graph


def _listed(task: Task | None) -> list[Task] | None:
    return None if task is None else [task]


def _same(decoded: Tensor) -> Tensor:
    return decoded
