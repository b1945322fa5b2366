"""Options of the task node-classification. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from trivet.core.errors import MissingDataError, Problem, TrivetError
from trivet.tasks.task_config import TaskConfig, said

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig
    from trivet.tasks.data.graph_data import GraphData

MAX_HIDDEN = 16_384
MAX_LAYERS = 64
"""Largest sizes; more is a slip of the pen, or more memory than a machine has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeClassificationConfig(TaskConfig):
    """The `task` section of a run that classifies the nodes of a graph.

    Examples:
        >>> NodeClassificationConfig(data="cora.npz", model="gat", hidden=64, heads=8).data
        'cora.npz'
    """

    reported: ClassVar[tuple[str, ...]] = (
        "test_accuracy",
        "test_loss",
        "test_roc_auc",
        "valid_accuracy",
        "valid_loss",
        "valid_roc_auc",
        "train_loss",
    )

    name: Literal["", "node-classification"] = ""
    """node-classification."""
    data: str = ""
    """`sbm` (also when empty), a made-up graph inside the package; path of an .npz file or of a folder as OGB lays it
    out. A relative one is looked for here and then in the data roots."""
    model: Literal["gcn", "sage", "gat"] = "gcn"
    """Kind of layers, see `trivet.models.GraphNet`."""
    hidden: int = 16
    """Numbers that stand for a node between layers, all heads of a `gat` together."""
    layers: int = 2
    """Layers, the last one included."""
    heads: int = 1
    """Heads of a `gat` in every layer but the last."""
    dropout: float = 0.5
    """Share dropped behind every layer but the last, and of the attention of a `gat`."""
    input_dropout: float = 0.0
    """Share of the features dropped."""
    norm: Literal["none", "layer"] = "none"
    """`layer`: a layer norm behind every layer but the last."""
    quantize_aggregation: bool = False
    """Whether the sum over neighbors computes at few bits as well; otherwise it stays in full precision."""
    undirected: bool = True
    """Whether an edge counts in both directions."""
    row_normalize: bool = False
    """Whether each node's features are divided by their sum, as is usual for bags of words."""
    split: int = 0
    """Which split, where a file holds several."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "node-classification")
        object.__setattr__(self, "data", self.data or "sbm")
        _within("hidden", self.hidden, 1, MAX_HIDDEN, "16 is usual for a small graph")
        _within("layers", self.layers, 1, MAX_LAYERS, "2 or 3 are usual")
        _within("heads", self.heads, 1, self.hidden, "8 is usual with `hidden: 64`")
        for name, share in (("dropout", self.dropout), ("input_dropout", self.input_dropout)):
            if not 0 <= share < 1:
                raise ValueError(f"`{name}={share}` must lie in [0, 1); 0 drops nothing")
        if self.split < 0:
            raise ValueError(f"`split={self.split}` must be ≥ 0; 0 is the first one")
        if self.heads > 1 and self.model != "gat":
            raise ValueError(f"`heads={self.heads}` has no effect with `model: {self.model}`; remove it")
        if self.hidden % self.heads:
            raise ValueError(f"`heads={self.heads}` must divide `hidden={self.hidden}`")

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """A graph that cannot be used, batches that there are none of; the graph is read for it.

        See `TaskConfig.problems`.
        """
        from trivet.models.graph_names import check_graph_library

        check_graph_library()
        found: list[Problem] = []
        if run.training is not None and run.training.batch_size != 1:
            allowed = "1, as every step takes the whole graph"
            found.append(
                Problem(file, "training.batch_size", str(run.training.batch_size), allowed, "write batch_size: 1")
            )
        try:
            self.load()
        except MissingDataError:
            raise
        except TrivetError as error:
            found.append(said(file, "task.data", repr(self.data), error))
        return found

    def load(self) -> GraphData:
        """Read the graph; see `trivet.tasks.data.graphs.load_graph` for the errors."""
        from trivet.tasks.data.graphs import load_graph

        return load_graph(self.data, split=self.split, undirected=self.undirected, row_normalize=self.row_normalize)


def _within(name: str, value: int, least: int, most: int, advice: str) -> None:
    if not least <= value <= most:
        raise ValueError(f"`{name}={value}` must lie in [{least}, {most}]; {advice}")
