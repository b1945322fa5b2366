"""A graph whose nodes have features and labels, in memory, checked. Loads no torch.

Rules, the same for every file format:

- edges join two nodes, in both directions unless the graph is read as directed; repeated edges count once, and an edge
  from a node to itself is dropped (a network that wants one adds its own);
- a node without edges is kept: it is classified by its own features alone;
- a node with the label −1 (or NaN) has none: it stays in the graph and passes on its features, but no loss and no
  metric counts it, also where a split names it;
- the parts for training, validation and test share no node.

Not covered: weights, features or times of edges; several labels a node; graphs larger than memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trivet.tasks.data.errors import UnusableDataError
from trivet.tasks.data.select import hash_ranked

PARTS = ("train", "valid", "test")
SHARES = (0.6, 0.2, 0.2)
"""Parts of each class where a graph comes without a split."""

UNLABELED = -1

MOST = 2**62
"""Numbers above are no label and no node; they are cut here, so that none turns round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphData:
    """A graph that is ready to be learned from; see the module for its rules.

    Examples:
        >>> graph = checked_graph(
        ...     source="toy", features=np.eye(4), edges=np.array([[0, 1], [1, 2]]), labels=np.array([0, 1, 0, -1]),
        ...     parts={"train": np.array([0, 3]), "valid": np.array([1]), "test": np.array([2])},
        ... )
        >>> graph.edges.tolist(), graph.train.tolist(), graph.num_isolated
        ([[1, 0, 2, 1], [0, 1, 1, 2]], [0], 1)
    """

    source: str
    """File or folder."""
    features: np.ndarray
    """float32 [N, F]."""
    edges: np.ndarray
    """int64 [2, E]: from, to; sorted by where they go to."""
    labels: np.ndarray
    """int64 [N]; −1 for none."""
    num_classes: int
    """Classes told apart."""
    train: np.ndarray
    """int64, nodes with a label that are learned from, in ascending order."""
    valid: np.ndarray
    """The same for validation."""
    test: np.ndarray
    """The same for the test."""

    @property
    def num_nodes(self) -> int:
        """Number N of nodes."""
        return len(self.features)

    @property
    def num_isolated(self) -> int:
        """Nodes without any edge."""
        return self.num_nodes - len(np.union1d(self.edges[0], self.edges[1]))

    @property
    def num_unlabeled(self) -> int:
        """Nodes without a label."""
        return int((self.labels == UNLABELED).sum())

    def describe(self) -> str:
        """One line for a log."""
        return (
            f"{self.source}: {self.num_nodes:,} nodes ({self.num_isolated:,} without edges, {self.num_unlabeled:,} "
            f"without label), {self.edges.shape[1]:,} directed edges, {self.features.shape[1]:,} features, "
            f"{self.num_classes} classes; {len(self.train):,} nodes to learn from, {len(self.valid):,} for validation, "
            f"{len(self.test):,} for the test"
        )


def checked_graph(
    *,
    source: str,
    features: np.ndarray,
    edges: np.ndarray,
    labels: np.ndarray,
    parts: Mapping[str, np.ndarray] | None,
    num_classes: int = 0,
    undirected: bool = True,
    row_normalize: bool = False,
) -> GraphData:
    """Check what a file holds, and bring it into the form of `GraphData`.

    Args:
        source: Named in the errors.
        features: Numbers [N, F].
        edges: Whole numbers [2, E], from and to.
        labels: Whole numbers [N], or floating-point ones that are whole or NaN.
        parts: Nodes of `train`, `valid` and `test`; None splits each class 60 : 20 : 20 by the SHA-256 of the numbers
            of its nodes.
        num_classes: Classes; 0 takes the labels' word for it, and then each must occur.
        undirected: Whether an edge counts in both directions.
        row_normalize: Whether each node's features are divided by their sum.

    Raises:
        UnusableDataError: Wrong shapes, an edge to a node that does not exist, labels out of range, parts that overlap.
    """
    features = _features(features, source)
    if row_normalize:
        total = features.sum(1, keepdims=True)
        if (total < 0).any() or (features < 0).any():
            raise UnusableDataError(f"{source}: found negative features; `row_normalize` needs features ≥ 0")
        features = features / np.where(total == 0, 1, total)
    nodes = len(features)
    labels = _labels(labels, nodes, source)
    classes = _classes(labels, num_classes, source)
    split = _own_split(labels, source) if parts is None else _parts(parts, nodes, source)
    kept = {name: chosen[labels[chosen] != UNLABELED] for name, chosen in split.items()}
    for name, chosen in kept.items():
        if not len(chosen):
            raise UnusableDataError(f"{source}: the {name} part has no node with a label; allowed: at least one")
    return GraphData(
        source=source,
        features=np.ascontiguousarray(features, np.float32),
        edges=_edges(edges, nodes, source, undirected=undirected),
        labels=labels,
        num_classes=classes,
        **kept,
    )


def _features(features: np.ndarray, source: str) -> np.ndarray:
    if features.ndim != 2 or features.dtype.kind not in "fiub" or not features.size:
        raise UnusableDataError(
            f"{source}: found features {features.dtype} {list(features.shape)}; allowed: numbers [nodes, features]"
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
        features = features.astype(np.float32)
    bad = np.argwhere(~np.isfinite(features))
    if len(bad):
        node, column = bad[0].tolist()
        raise UnusableDataError(
            f"{source}: feature {column} of node {node} is {features[node, column]}; allowed: finite numbers"
        )
    return features


def _edges(edges: np.ndarray, nodes: int, source: str, *, undirected: bool) -> np.ndarray:
    """Edges in both directions if wanted, each once, without loops, sorted by target and then by origin."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu" or not edges.size:
        raise UnusableDataError(
            f"{source}: found edges {edges.dtype} {list(edges.shape)}; allowed: whole numbers [2, edges], at least one"
        )
    edges = _signed(edges)
    bad = np.flatnonzero(((edges < 0) | (edges >= nodes)).any(0))
    if len(bad):
        first = edges[:, bad[0]].tolist()
        raise UnusableDataError(
            f"{source}: edge {bad[0]} joins the nodes {first[0]} and {first[1]}; allowed: 0 to {nodes - 1}, as there "
            f"are {nodes} rows of features"
        )
    if undirected:
        edges = np.concatenate((edges, edges[::-1]), 1)
    edges = edges[:, edges[0] != edges[1]]
    keys = np.unique(edges[1] * nodes + edges[0])
    return np.stack((keys % nodes, keys // nodes))


def _labels(labels: np.ndarray, nodes: int, source: str) -> np.ndarray:
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind == "f":
        whole = np.where(np.isnan(labels), UNLABELED, labels)
        if not np.isfinite(whole).all() or (whole != np.round(whole)).any():
            raise UnusableDataError(f"{source}: found labels that are no whole numbers; NaN or −1 stands for none")
        labels = np.clip(whole, -MOST, MOST).astype(np.int64)
    if labels.ndim != 1 or labels.dtype.kind not in "iub" or len(labels) != nodes:
        raise UnusableDataError(
            f"{source}: found labels {labels.dtype} {list(labels.shape)}; allowed: one whole number for each of the "
            f"{nodes} nodes"
        )
    return _signed(labels)


def _signed(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers as int64, with those above it cut at `MOST`."""
    return (np.minimum(numbers, MOST) if numbers.dtype == np.uint64 else numbers).astype(np.int64)


def _classes(labels: np.ndarray, given: int, source: str) -> int:
    lowest, most = int(labels.min()), int(labels.max())
    if given > len(labels):
        raise UnusableDataError(f"{source}: found {given:,} classes; allowed: at most {len(labels):,}, one a node")
    classes = given or most + 1
    if lowest < UNLABELED or most >= classes:
        node = int(np.flatnonzero((labels < UNLABELED) | (labels >= classes))[0])
        raise UnusableDataError(
            f"{source}: node {node} has the label {labels[node]}; allowed: 0 to {classes - 1}, or −1 for none"
        )
    occur = np.unique(labels[labels != UNLABELED])
    if len(occur) < 2:
        raise UnusableDataError(f"{source}: found {len(occur)} class(es) among the labels; allowed: two or more")
    if not given and len(occur) != classes:
        lacking = next(label for label in range(classes) if label not in set(occur.tolist()))
        raise UnusableDataError(
            f"{source}: the labels run up to {most}, but no node has the label {lacking}; number the classes "
            "0, 1, 2, … without a gap, or give the array `num_classes`"
        )
    return classes


def _parts(parts: Mapping[str, np.ndarray], nodes: int, source: str) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    owner = np.full(nodes, -1)
    for number, name in enumerate(PARTS):
        if name not in parts:
            raise UnusableDataError(f"{source}: the split lacks its {name} part; allowed: all of {', '.join(PARTS)}")
        chosen = parts[name]
        if chosen.dtype == np.bool_ and chosen.shape == (nodes,):
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise UnusableDataError(
                f"{source}: found a {name} part {chosen.dtype} {list(chosen.shape)}; allowed: numbers of nodes, or a "
                f"mask [{nodes}] of true and false"
            )
        chosen = np.unique(chosen.astype(np.int64))
        if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < nodes:
            outside = chosen[0] if chosen[0] < 0 else chosen[-1]
            raise UnusableDataError(f"{source}: the {name} part names node {outside}; allowed: 0 to {nodes - 1}")
        taken = chosen[owner[chosen] >= 0]
        if len(taken):
            other = PARTS[owner[taken[0]]]
            raise UnusableDataError(f"{source}: node {taken[0]} is in the {other} part and in the {name} part")
        owner[chosen] = number
        found[name] = chosen
    return found


def _own_split(labels: np.ndarray, source: str) -> dict[str, np.ndarray]:
    """60 : 20 : 20 of each class, chosen by the hash of the nodes' numbers: the same on every machine."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in PARTS}
    for label in np.unique(labels[labels != UNLABELED]):
        ranked = hash_ranked(np.flatnonzero(labels == label), "graph")
        cuts = [round(SHARES[0] * len(ranked)), round((SHARES[0] + SHARES[1]) * len(ranked))]
        for name, chosen in zip(PARTS, np.split(ranked, cuts), strict=True):
            found[name].append(chosen)
    return {name: np.sort(np.concatenate(chosen)) for name, chosen in found.items()}
