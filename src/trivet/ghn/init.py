"""Initialize any module with the parameters that a hypernetwork predicts for it, in place, and say what was done.

Graph, prediction and every check come first, so that a refusal leaves the module as it was. What cannot be predicted
keeps the values it had and is listed with the reason.

Not covered: running statistics of batch norms (`recalibrate_bn`), and training from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from trivet.ghn.config import Head
from trivet.ghn.ghn import GHN
from trivet.ghn.writing import why_unwritable
from trivet.graph.trace import graph_of

if TYPE_CHECKING:
    from trivet.ghn.task_encoder import Task
    from trivet.graph.graph import Graph

SHOWN = 20
"""Rows of a printed report; `table` gives all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRow:
    """What became of one parameter tensor."""

    name: str
    """As in `named_parameters()`."""
    shape: tuple[int, ...]
    """Its shape."""
    op: str
    """Word of its node in the graph; empty if it has none."""
    predicted: bool
    """Whether it was predicted."""
    reason: str = ""
    """Why it was not."""

    @property
    def size(self) -> int:
        """Number of parameters in the tensor."""
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class InitReport:
    """What `init_` did; prints as a short table.

    Examples:
        >>> row = InitRow(name="fc.weight", shape=(10, 64), op="conv", predicted=True)
        >>> report = InitReport(rows=(row,), batch_norms=0, method="meta", graph_seconds=0.1, predict_seconds=0.2)
        >>> report.coverage, report.predicted_tensors, report.kept
        (1.0, 1, {})
    """

    rows: tuple[InitRow, ...]
    """One for each parameter tensor, in the module's order; tied ones once."""
    batch_norms: int
    """Batch norms that track running statistics, which were not predicted."""
    method: str
    """How the graph was made; see `Graph.method`."""
    graph_seconds: float
    """Wall seconds to make the graph; 0 if it was given."""
    predict_seconds: float
    """Wall seconds to predict and write."""

    @property
    def predicted_tensors(self) -> int:
        """Parameter tensors that were predicted."""
        return sum(row.predicted for row in self.rows)

    @property
    def parameters(self) -> int:
        """Parameters of the module."""
        return sum(row.size for row in self.rows)

    @property
    def predicted_parameters(self) -> int:
        """Parameters that were predicted."""
        return sum(row.size for row in self.rows if row.predicted)

    @property
    def coverage(self) -> float:
        """Fraction of the parameters that was predicted."""
        return self.predicted_parameters / self.parameters if self.parameters else 0.0

    @property
    def kept(self) -> dict[str, str]:
        """Tensors that kept the values they had → why."""
        return {row.name: row.reason for row in self.rows if not row.predicted}

    def table(self) -> str:
        """Every tensor on a line: name, shape, word, and what became of it."""
        return "\n".join(_lines(self.rows))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return {
            "predicted_tensors": self.predicted_tensors,
            "tensors": len(self.rows),
            "predicted_parameters": self.predicted_parameters,
            "parameters": self.parameters,
            "coverage": self.coverage,
            "batch_norms": self.batch_norms,
            "method": self.method,
            "graph_seconds": self.graph_seconds,
            "predict_seconds": self.predict_seconds,
            "rows": [{**asdict(row), "shape": list(row.shape)} for row in self.rows],
        }

    def __str__(self) -> str:
        """Coverage and times; what kept its own values, with the reasons; what to do about batch norms."""
        total = len(self.rows)
        seconds = self.graph_seconds + self.predict_seconds
        lines = [
            f"{self.predicted_tensors} of {total} parameter tensors predicted "
            f"({self.predicted_parameters:,} of {self.parameters:,} parameters, {self.coverage:.1%}) "
            f"in {seconds:.2f} s: graph {self.graph_seconds:.2f} s, predict and write {self.predict_seconds:.2f} s"
        ]
        kept = [row for row in self.rows if not row.predicted]
        if kept:
            lines.append("These kept their own values:")
            lines += [f"  {line}" for line in _lines(kept[:SHOWN])]
            if len(kept) > SHOWN:
                lines.append(f"  … and {len(kept) - SHOWN} more, see `report.table()`")
        if self.batch_norms:
            lines.append(
                f"The running statistics of {self.batch_norms} batch norms are not predicted: call "
                "`recalibrate_bn(model, batches)` before evaluating without training"
            )
        return "\n".join(lines)


def _lines(rows: tuple[InitRow, ...] | list[InitRow]) -> Iterator[str]:
    shapes = ["×".join(map(str, row.shape)) or "1" for row in rows]
    widths = [max(map(len, column), default=0) for column in ([row.name for row in rows], shapes)]
    for row, shape in zip(rows, shapes, strict=True):
        end = f"predicted as {row.op}" if row.predicted else row.reason
        yield f"{row.name:<{widths[0]}}  {shape:>{widths[1]}}  {end}"


def init_(
    module: nn.Module,
    ghn: GHN | str | Path,
    example_input: Any = None,
    *,
    graph: Graph | None = None,
    head: Head = "predict",
    task: Task | None = None,
    strict: bool = False,
) -> InitReport:
    """Write predicted parameters into a module, in place; frozen ones (`requires_grad=False`) are kept.

    Args:
        module: Any module that can run on `example_input`. Only parameters change, and only predicted ones; buffers,
            flags, hooks, types, strides and devices stay.
        ghn: A hypernetwork, or the name or folder of one, as `GHN.from_pretrained` takes it.
        example_input: A batch as the module takes it: a tensor, a tuple of positional arguments, or a mapping of
            keyword arguments. Its values do not matter. Not needed with `graph`.
        graph: The module's graph, if you have it already.
        head: What happens to the classifier: "predict" it, which needs as many classes as the hypernetwork was trained
            on; "resize": decode it like any other linear layer of its size; "keep": leave it as it is.
        task: For a hypernetwork that predicts for tasks: a few labelled images, see `GHN.predict`.
        strict: Refuse unless every parameter can be predicted.

    Returns:
        What was predicted and what was not, tensor by tensor.

    Raises:
        ValueError: The module has no parameters or fails on the example, the classifier has another number of classes,
            or, with `strict`, something cannot be predicted. The module is as it was.
        TrivetError: A predicted value is not finite. The module is as it was.

    Examples:
        >>> import torch
        >>> from trivet.ghn import GHNConfig
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> report = init_(net, GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0), torch.zeros(1, 3, 8, 8))
        >>> report.predicted_tensors, report.coverage
        (6, 1.0)
    """
    if not isinstance(ghn, GHN):
        ghn = GHN.from_pretrained(ghn)
    started = time.perf_counter()
    if graph is None:
        if example_input is None:
            raise ValueError("`example_input` must be a batch as the module takes it, unless `graph` is given")
        graph = graph_of(module, example_input)
    graph_done = time.perf_counter()
    if strict:
        _refuse_kept({**ghn.coverage(graph, head=head).kept, **_unwritable(module)})
    coverage = ghn.predict_(module, graph=graph, head=head, task=task)
    done = time.perf_counter()
    predicted = set(coverage.predicted)
    rows = tuple(
        InitRow(
            name=name,
            shape=tuple(parameter.shape),
            op=graph.nodes[graph.parameters[name]].op if name in graph.parameters else "",
            predicted=name in predicted,
            reason="" if name in predicted else coverage.kept[name],
        )
        for name, parameter in module.named_parameters()
    )
    norms = [part for part in module.modules() if isinstance(part, _NormBase) and part.running_mean is not None]
    return InitReport(
        rows=rows,
        batch_norms=len(norms),
        method=graph.method,
        graph_seconds=graph_done - started,
        predict_seconds=done - graph_done,
    )


def _unwritable(module: nn.Module) -> dict[str, str]:
    reasons = {name: why_unwritable(parameter) for name, parameter in module.named_parameters()}
    return {name: reason for name, reason in reasons.items() if reason}


def _refuse_kept(kept: Mapping[str, str]) -> None:
    if not kept:
        return
    some = "; ".join(f"`{name}`: {reason}" for name, reason in list(kept.items())[:3])
    raise ValueError(
        f"{len(kept)} parameter tensors cannot be predicted ({some}); leave `strict` out to keep their own values; "
        "nothing was changed"
    )
