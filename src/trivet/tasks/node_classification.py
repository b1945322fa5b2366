"""Node classification: a graph network learns the labels of some nodes of a graph and is asked for those of others.

Every step takes the whole graph, so `training.batch_size` is 1: one graph. Loss: mean cross-entropy of the nodes of the
training part. Metrics of the validation and the test part, at the precision that the configuration declares:
`…_accuracy` (share of nodes that are right), `…_loss` (mean cross-entropy) and `…_roc_auc`, the area under the
receiver operating characteristic; with more than two classes its mean over the classes, each against all others. A part
that holds a single class has no area, so the metric is left out.

At few bits, all layers are quantized, the last one too, as published; the sum over neighbors is only with
`quantize_aggregation`, and counts at 32 bits otherwise. Norms, dropout and attention scores stay in full precision.

Nodes without a label belong to no part. Seeds differ in initial parameters, dropout and the rounding of gradients.

Not covered: sampled neighbors, so a graph must fit into memory with all its activations; several graphs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.seeding import derive, seed_everything
from trivet.models.graph_net import GraphNet, layer_classes
from trivet.tasks.config import RunConfig
from trivet.tasks.data.graph_data import GraphData
from trivet.tasks.initialize import initialize
from trivet.tasks.node_classification_config import NodeClassificationConfig
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.training.job import Job

logger = logging.getLogger(__name__)

import_libraries = layer_classes
"""What the warm server calls before the first run of this task is forked."""


def build_job(run: RunConfig, device: torch.device) -> Job:
    """Read the graph, build the network, and say how to train and evaluate it.

    Args:
        run: A run of the task node-classification.
        device: Where it trains.

    Raises:
        MissingDataError: The graph is not on this machine.
        UnusableDataError: It cannot be used.
        MissingExtraError: PyTorch Geometric is not installed.
    """
    task = options_of(run, NodeClassificationConfig)
    graph = task.load()
    logger.info("graph %s", graph.describe())
    seed_everything(derive(run.seed, "init"))
    model, features = _model(task, graph, device)
    initial = initialize(run, model, features)
    precision = RunPrecision(run, model, features, quantizes)
    seed_everything(derive(run.seed, "training"))
    labels = torch.from_numpy(graph.labels).to(device)
    learned = torch.from_numpy(graph.train).to(device)
    held_out = {"test": graph.test, "valid": graph.valid}

    def loss(forward: nn.Module, step: int) -> Tensor:
        return F.cross_entropy(forward(features)[0, learned].float(), labels[learned])

    def evaluate() -> Mapping[str, float]:
        with precision.evaluation():
            logits = model(features)[0].detach().double().cpu().numpy()
        found: dict[str, float] = {}
        for part, nodes in held_out.items():
            found |= {f"{part}_{name}": value for name, value in figures(logits[nodes], graph.labels[nodes]).items()}
        return found

    return Job(
        model=model, loss=loss, evaluate=evaluate, observe=precision.observe, steppers=precision.steppers, extra=initial
    )


def quantizes(module: nn.Module, name: str) -> bool:
    """Which layers compute at few bits: all that multiply, and the sums over neighbors whose layer says so."""
    return bool(getattr(module, "rounds_neighbors", True))


def counted(run: RunConfig) -> tuple[nn.Module, Any]:
    """The model of a run and its input, one graph, for counting multiply-accumulates."""
    task = options_of(run, NodeClassificationConfig)
    return _model(task, task.load(), torch.device("cpu"))


def _model(task: NodeClassificationConfig, graph: GraphData, device: torch.device) -> tuple[GraphNet, Tensor]:
    model = GraphNet(
        task.model,
        torch.from_numpy(graph.edges),
        graph.num_nodes,
        in_features=graph.features.shape[1],
        num_classes=graph.num_classes,
        hidden=task.hidden,
        layers=task.layers,
        heads=task.heads,
        dropout=task.dropout,
        input_dropout=task.input_dropout,
        norm=task.norm,
        quantize_aggregation=task.quantize_aggregation,
    )
    return model.to(device), torch.from_numpy(graph.features)[None].to(device)


def figures(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracy, mean cross-entropy and area under the ROC curve of some nodes.

    Args:
        logits: float64 [M, K].
        labels: Whole numbers [M] in [0, K).

    Examples:
        >>> figures(np.array([[2.0, 0.0], [0.0, 2.0], [0.0, 1.0], [1.0, 0.0]]), np.array([0, 1, 0, 0]))["roc_auc"]
        1.0
    """
    shifted = logits - logits.max(1, keepdims=True)
    log_chance = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    found = {
        "accuracy": float((logits.argmax(1) == labels).mean()),
        "loss": float(-log_chance[np.arange(len(labels)), labels].mean()),
    }
    classes = [1] if logits.shape[1] == 2 else range(logits.shape[1])
    areas = [roc_auc(log_chance[:, label], labels == label) for label in classes]
    known = [area for area in areas if math.isfinite(area)]
    if known:
        found["roc_auc"] = sum(known) / len(known)
    return found


def roc_auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Chance that a positive example scores higher than a negative one, ties counting half; NaN without both kinds.

    (Σ ranks of the positives − P (P + 1) / 2) / (P N), the statistic of Mann and Whitney, with mean ranks for ties.

    Args:
        scores: Numbers [M].
        positive: Booleans [M].

    Examples:
        >>> roc_auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, True, False, True]))
        0.875
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return math.nan
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[place]
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))
