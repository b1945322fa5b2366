"""Which of many networks will be good once trained? Scores that need no training of the networks, or next to none.

| method | score | needs |
|---|---|---|
| predicted | accuracy with the parameters that a hypernetwork predicts | hypernetwork, labelled images |
| embedding | regression on the mean of the states of the graph's nodes | hypernetwork, networks of known accuracy |
| parameters | number of parameters | |
| macs | multiply-accumulates of one example | |
| loss | minus the loss after a few steps of SGD | images to train on, images to test on |

The last three are what the first two have to beat. How well an order agrees with the truth:
`trivet.stats.rank_agreement`; at scale: `trivet ghn rank`.

Not covered: properties other than accuracy, search over architectures.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from trivet.core.errors import unknown_name
from trivet.core.seeding import derive
from trivet.ghn.deepnets.architecture import Architecture
from trivet.ghn.early import EarlyConfig, outcome, train_early
from trivet.ghn.ghn import GHN
from trivet.ghn.meta.skeleton import Skeleton
from trivet.ghn.regression import FEWEST, fit_regression
from trivet.graph.graph import Graph
from trivet.graph.trace import graph_of
from trivet.training.batches import BatchOrder

Method = Literal["predicted", "embedding", "parameters", "macs", "loss"]
"""How networks are scored."""

Candidate = Architecture | nn.Module
Labelled = tuple[Tensor, Tensor]
"""Images as the networks take them, [N, …], and classes, [N]."""

SHOWN = 10
"""Rows of a printed ranking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Networks in the order of their scores.

    Examples:
        >>> found = Ranking(method="macs", names=("a", "b"), scores=(2.0, 3.0), seconds=0.001)
        >>> found.order, found.best
        ((1, 0), 'b')
        >>> print(found)
        rank  network  score (macs)
           1  b                   3
           2  a                   2
    """

    method: str
    """How they were scored."""
    names: tuple[str, ...]
    """Names of the networks, in the order they were given."""
    scores: tuple[float, ...]
    """Score of each, higher is better; minus infinity for a network that diverged."""
    seconds: float
    """Processor seconds a network."""

    @property
    def order(self) -> tuple[int, ...]:
        """Positions of the networks, best first; equal ones as they were given."""
        return tuple(sorted(range(len(self.scores)), key=lambda place: -self.scores[place]))

    @property
    def best(self) -> str:
        """Name of the first."""
        return self.names[self.order[0]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, best network first; a score that is not finite becomes None."""
        rows = [
            {"name": self.names[place], "score": self.scores[place] if math.isfinite(self.scores[place]) else None}
            for place in self.order
        ]
        return {"method": self.method, "seconds_per_network": self.seconds, "networks": rows}

    def __str__(self) -> str:
        """Write the first rows as a table."""
        head = ("rank", "network", f"score ({self.method})")
        order = self.order[:SHOWN]
        rows = [(str(i + 1), self.names[place], f"{self.scores[place]:.6g}") for i, place in enumerate(order)]
        wide = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
        lines = [f"{a:>{wide[0]}}  {b:<{wide[1]}}  {c:>{wide[2]}}" for a, b, c in (head, *rows)]
        left = len(self.names) - len(order)
        return "\n".join([*lines, *([f"… and {left} more"] if left else [])])


def rank_architectures(
    candidates: Sequence[Candidate] | Mapping[str, Candidate],
    ghn: GHN | None = None,
    *,
    method: Method = "predicted",
    example_input: Tensor | None = None,
    data: Labelled | None = None,
    training_data: Labelled | None = None,
    known: Sequence[tuple[Candidate, float]] = (),
    num_classes: int = 10,
    early: EarlyConfig | None = None,
    seed: int = 0,
) -> Ranking:
    """Order networks by how good they promise to be.

    Args:
        candidates: Networks, or name → network: architectures of `DeepNets`, or modules, which are not changed.
        ghn: A hypernetwork, for the methods `predicted` and `embedding`.
        method: See the table above.
        example_input: A batch as the networks take it; the first of the images by default, or else 3 × 32 × 32.
        data: Labelled images that scores are measured on, for `predicted` and `loss`; in batches of 64, whose
            statistics batch normalisation takes.
        training_data: Labelled images to train on, for `loss`.
        known: Networks and what each reached, 10 or more, for `embedding`; none of the candidates.
        num_classes: Outputs of architectures; modules have their own.
        early: Steps and rate of the training for `loss`.
        seed: Of parameters and order of images for `loss`, and of the folds for `embedding`.

    Raises:
        ValueError: An unknown method, no candidates, or something the method needs is missing.

    Examples:
        >>> nets = {f"width {width}": nn.Sequential(nn.Flatten(), nn.Linear(12, width)) for width in (4, 8)}
        >>> rank_architectures(nets, method="parameters").best
        'width 8'
    """
    if method not in get_args(Method):
        raise ValueError(unknown_name("method", method, get_args(Method)))
    named = candidates if isinstance(candidates, Mapping) else {str(i): one for i, one in enumerate(candidates)}
    if not named:
        raise ValueError("`candidates` is empty; give one network or more")
    _check("data", data)
    _check("training_data", training_data)
    if example_input is None:
        example_input = data[0][:1] if data else torch.zeros(1, 3, 32, 32)
    maker = _Maker(example_input, num_classes, ghn, data)
    began = time.process_time()
    if method == "embedding":
        scores = maker.by_embedding(list(named.values()), known, seed)
    elif method == "loss":
        plan = early or EarlyConfig()
        scores = [
            maker.by_loss(one, training_data, plan, derive(seed, "early", place))
            for place, one in enumerate(named.values())
        ]
    else:
        score = {"predicted": maker.by_prediction, "parameters": maker.parameters, "macs": maker.macs}[method]
        scores = [score(one) for one in named.values()]
    seconds = (time.process_time() - began) / len(named)
    return Ranking(method=method, names=tuple(named), scores=tuple(scores), seconds=seconds)


def mean_embedding(ghn: GHN, graph: Graph) -> list[float]:
    """Mean over the nodes of a graph of their states just before they are decoded, [hid]."""
    with evaluating(ghn):
        return ghn.embed([graph])[0].float().mean(0).tolist()


def _check(name: str, pair: Labelled | None) -> None:
    if pair is not None and (len(pair[0]) != len(pair[1]) or not len(pair[0])):
        raise ValueError(f"`{name}` holds {len(pair[0])} images and {len(pair[1])} labels; give one label an image")


@contextmanager
def evaluating(ghn: GHN) -> Generator[None]:
    """Inside, the hypernetwork neither trains nor tracks gradients; afterwards it is as it was."""
    was_training = ghn.training
    ghn.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        ghn.train(was_training)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Scores of one candidate at a time."""

    example: Tensor
    num_classes: int
    ghn: GHN | None
    data: Labelled | None

    def module(self, candidate: Candidate, device: torch.device | str) -> nn.Module:
        """A network that nobody else uses."""
        if isinstance(candidate, nn.Module):
            return copy.deepcopy(candidate)
        with torch.device(device):
            return candidate.build(self.num_classes, *self._shape())

    def graph(self, candidate: Candidate) -> Graph:
        """Its graph."""
        if isinstance(candidate, nn.Module):
            return graph_of(candidate, self.example)
        channels, size = self._shape()
        return graph_of(self.module(candidate, "meta"), torch.empty(2, channels, size, size, device="meta"))

    def parameters(self, candidate: Candidate) -> float:
        """Numbers in all of its parameters."""
        if isinstance(candidate, nn.Module):
            return float(sum(parameter.numel() for parameter in candidate.parameters()))
        return float(candidate.num_parameters(self.num_classes, *self._shape()))

    def macs(self, candidate: Candidate) -> float:
        """Multiply-accumulates of one example."""
        if isinstance(candidate, nn.Module):
            return self.graph(candidate).macs / len(self.example)
        return float(candidate.macs(self.num_classes, *self._shape()))

    def by_prediction(self, candidate: Candidate) -> float:
        """Accuracy with predicted parameters; those that are not predicted keep their own values."""
        if self.ghn is None or self.data is None:
            raise ValueError('the method "predicted" needs `ghn` and `data`')
        graph = self.graph(candidate)
        own: dict[str, Tensor] = {}
        if isinstance(candidate, nn.Module):
            own = {name: parameter.detach() for name, parameter in candidate.named_parameters()}
        with evaluating(self.ghn):
            found = self.ghn.predict_batch([graph])[0]
        images, labels = self.data
        shell = self._shell(candidate, graph, images.device)
        parameters = {name: value.to(images.device) for name, value in {**own, **found}.items()}
        return outcome(shell, parameters, images, labels).accuracy

    def by_loss(self, candidate: Candidate, training: Labelled | None, early: EarlyConfig, seed: int) -> float:
        """Minus the loss after a few steps, from the parameters of a module or random ones of an architecture."""
        if training is None or self.data is None:
            raise ValueError('the method "loss" needs `data` and `training_data`')
        images, labels = training
        order = BatchOrder(num_examples=len(labels), batch_size=early.batch_size, seed=seed, device=labels.device)
        picks = (order.indices(step) for step in range(early.steps))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            trained = train_early(
                self.module(candidate, images.device), ((images[pick], labels[pick]) for pick in picks), early
            )
        shell = self._shell(candidate, None, self.data[0].device)
        return -outcome(shell, trained, *self.data).loss

    def by_embedding(
        self, candidates: Sequence[Candidate], known: Sequence[tuple[Candidate, float]], seed: int
    ) -> list[float]:
        """What a regression on the known networks' mean embeddings expects of each."""
        if self.ghn is None:
            raise ValueError('the method "embedding" needs `ghn`')
        if len(known) < FEWEST:
            raise ValueError(f"{len(known)} networks in `known`; a regression needs {FEWEST} or more")
        ghn = self.ghn
        fitted = fit_regression(
            [mean_embedding(ghn, self.graph(one)) for one, _ in known], [value for _, value in known], seed=seed
        )
        return fitted.predict(np.array([mean_embedding(ghn, self.graph(one)) for one in candidates])).tolist()

    def _shell(self, candidate: Candidate, graph: Graph | None, device: torch.device) -> Skeleton:
        module = self.module(candidate, "meta")
        return Skeleton(module, device=device, unused=graph.unplaced if graph else ())

    def _shape(self) -> tuple[int, int]:
        """Channels and size of the images."""
        if self.example.ndim != 4:
            raise ValueError(f"`example_input` has shape {list(self.example.shape)}; architectures take [N, C, H, W]")
        return self.example.shape[1], self.example.shape[2]
