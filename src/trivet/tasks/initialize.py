"""Initial parameters of a run of any task, as its `init` section asks for them.

The model comes with its own random parameters, drawn from the run's seed; a hypernetwork then writes over those that
it predicts. What it cannot predict stays random, and the log says which.

Not covered: running statistics of batch norms; training measures them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trivet.core.seeding import derive
from trivet.tasks.config import RunConfig

if TYPE_CHECKING:
    from trivet.ghn import InitReport

logger = logging.getLogger(__name__)


HEAD_REASON = "the classifier is kept, as asked"


def initialize(run: RunConfig, model: nn.Module, example: Any, *, heads: Iterable[nn.Module] = ()) -> Mapping[str, Any]:
    """Write the initial parameters that a run asks for into its model; nothing happens where it asks for none.

    Args:
        run: The run.
        model: Its model, with random parameters.
        example: One example as the model takes it.
        heads: Modules that `head: keep` shall leave as they are, besides the last linear layer.

    Returns:
        `{"init": …}` for the run's result: `method`, `ghn`, `tensors` and `predicted_tensors`, `parameters` and
        `predicted_parameters`, and `kept`, reason → names of tensors that were not predicted. Empty without a
        hypernetwork.

    Raises:
        ValueError: The hypernetwork is not there or damaged, or does not fit the model.
    """
    if run.init.is_random:
        return {}
    from trivet.ghn import GHN, init_
    from trivet.ghn.baselines import anchor_, orthogonal_, orthogonalize_, tiled_
    from trivet.graph import graph_of

    init, seed = run.init, derive(run.seed, "init")
    if init.method == "orthogonal":
        logger.info("init: %d weights are orthogonal", len(orthogonal_(model, seed)))
        return {}
    ghn, graph = GHN.from_pretrained(init.ghn), graph_of(model, example)
    random = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    report = init_(model, ghn, graph=graph, head=init.head)
    logger.info("init: %s", report)
    left = _names_of(model, heads) if init.head == "keep" else set()
    if init.method == "tiled":
        tiled_(model, graph, ghn.config, head=init.head, seed=seed)
    elif init.method == "anchor":
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(random[name])
        anchor_(model, graph, ghn.config, head=init.head)
    elif init.method == "orthogonalized":
        predicted = {row.name for row in report.rows if row.predicted}
        orthogonalize_((parameter for name, parameter in model.named_parameters() if name in predicted), seed)
    if init.method != "default":
        logger.info("init: method %s, in place of what was predicted", init.method)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in left:
                parameter.copy_(random[name])
    return {"init": {"method": init.method, "ghn": init.ghn, **_coverage(report, left)}}


def _names_of(model: nn.Module, heads: Iterable[nn.Module]) -> set[str]:
    theirs = {id(parameter) for head in heads for parameter in head.parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in theirs}


def _coverage(report: InitReport, left: set[str]) -> dict[str, Any]:
    predicted = [row for row in report.rows if row.predicted and row.name not in left]
    kept: dict[str, list[str]] = {}
    for row in report.rows:
        if row.name in left:
            kept.setdefault(HEAD_REASON, []).append(row.name)
        elif not row.predicted:
            kept.setdefault(row.reason, []).append(row.name)
    return {
        "tensors": len(report.rows),
        "predicted_tensors": len(predicted),
        "parameters": report.parameters,
        "predicted_parameters": sum(row.size for row in predicted),
        "kept": kept,
    }
