"""Graphs from every form of file: the rules for edges, labels and parts, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.core.errors import MissingDataError
from trivet.tasks.data import UnusableDataError
from trivet.tasks.data.graph_data import GraphData, checked_graph
from trivet.tasks.data.graphs import load_graph

SMALL: dict[str, Any] = {
    "features": np.arange(12, dtype=np.float32).reshape(6, 2),
    "edge_index": np.array([[0, 1, 1, 2, 4], [1, 0, 2, 1, 4]]),
    "labels": np.array([0, 1, 0, 1, -1, 0]),
    "train_idx": np.array([0, 1, 4]),
    "val_idx": np.array([2]),
    "test_idx": np.array([3, 5]),
}


def saved(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "g.npz", **arrays)
    return str(folder / "g.npz")


def changed(**changes: Any) -> dict[str, Any]:
    """The small graph with other arrays; None removes one."""
    return {name: value for name, value in {**SMALL, **changes}.items() if value is not None}


def assert_same(one: GraphData, other: GraphData) -> None:
    for name in ("features", "edges", "labels", "train", "valid", "test"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.num_classes == other.num_classes


def test_the_rules(tmp_path: Path) -> None:
    """Loops go, repeated edges count once; nodes without edges or labels stay, but belong to no part."""
    graph = load_graph(saved(tmp_path, **SMALL))
    assert graph.edges.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert (graph.num_nodes, graph.num_isolated, graph.num_unlabeled, graph.num_classes) == (6, 3, 1, 2)
    assert (graph.train.tolist(), graph.valid.tolist(), graph.test.tolist()) == ([0, 1], [2], [3, 5])
    assert "6 nodes (3 without edges, 1 without label), 4 directed edges" in graph.describe()
    one_way = changed(edge_index=np.array([[0, 1], [1, 2]]))
    assert load_graph(saved(tmp_path, **one_way), undirected=False).edges.tolist() == [[0, 1], [1, 2]]
    assert_same(load_graph(saved(tmp_path, **one_way)), graph)


def mask(nodes: list[int]) -> np.ndarray:
    return np.isin(np.arange(6), nodes)


@pytest.mark.parametrize(
    ("changes", "split"),
    [
        ({"features": None, "x": SMALL["features"], "labels": None, "y": SMALL["labels"]}, 0),
        ({"edge_index": None, "edges": SMALL["edge_index"].T}, 0),
        ({"edge_index": SMALL["edge_index"].T.astype(np.int32)}, 0),
        ({"labels": np.array([0, 1, 0, 1, np.nan, 0])[:, None]}, 0),
        ({"features": None, "feat_row": np.array([0, *np.repeat(range(1, 6), 2)]),
          "feat_col": np.array([1, *[0, 1] * 5]), "feat_val": np.arange(1.0, 12.0), "num_nodes": np.array(6)}, 0),
        ({"train_idx": None, "val_idx": None, "test_idx": None,
          "train_mask": mask([0, 1, 4]), "val_mask": mask([2]), "test_mask": mask([3, 5])}, 0),
        ({"train_idx": None, "val_idx": None, "test_idx": None,
          "train_masks": np.stack([mask([5]), mask([0, 1, 4])]), "valid_masks": np.stack([mask([0]), mask([2])]),
          "test_masks": np.stack([mask([1]), mask([3, 5])]).T.astype(int)}, 1),
    ],
)  # fmt: skip
def test_every_form_of_archive_is_the_same_graph(tmp_path: Path, changes: dict[str, Any], split: int) -> None:
    expected = load_graph(saved(tmp_path, **SMALL))
    assert_same(load_graph(saved(tmp_path, **changed(**changes)), split=split), expected)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edge_index": np.array([[0, 1], [1, 6]])}, "edge 1 joins the nodes 1 and 6; allowed: 0 to 5"),
        ({"edge_index": np.array([[0, -1], [1, 2]])}, "edge 1 joins the nodes -1 and 2"),
        ({"edge_index": np.zeros((3, 4), int)}, r"edges int64 \[3, 4\]; allowed: whole numbers \[2, edges\]"),
        ({"edge_index": np.zeros((2, 4))}, "edges float64"),
        ({"edge_index": np.zeros((2, 0), int)}, "at least one"),
        ({"edge_index": None}, r"no edges; allowed: edge_index, edges"),
        ({"features": None}, "no features"),
        ({"features": np.full((6, 2), np.nan)}, "feature 0 of node 0 is nan; allowed: finite"),
        ({"features": np.zeros(6)}, r"features float64 \[6\]"),
        ({"labels": None}, "no labels; allowed: labels, node_labels"),
        ({"labels": np.zeros(5, int)}, r"labels int64 \[5\]; allowed: one whole number for each of the 6 nodes"),
        ({"labels": np.array([0, 1, 0, 1, -2, 0])}, "node 4 has the label -2; allowed: 0 to 1, or −1 for none"),
        ({"labels": np.array([0, 1, 0, 3, 1, 0])}, "run up to 3, but no node has the label 2"),
        ({"labels": np.array([0, 1, 0, 3, 1, 0]), "num_classes": np.array(3)}, "the label 3; allowed: 0 to 2"),
        ({"labels": np.zeros(6, int)}, r"found 1 class\(es\)"),
        ({"labels": np.array([0, 1, 0.5, 1, 0, 1])}, "no whole numbers"),
        ({"num_classes": np.array([2])}, "`num_classes`"),
        ({"train_idx": np.array([0, 6])}, "the train part names node 6; allowed: 0 to 5"),
        ({"test_idx": np.array([1, 3])}, "node 1 is in the train part and in the test part"),
        ({"val_idx": None}, "lacks its valid part"),
        ({"train_idx": np.array([0]), "val_idx": np.array([4])}, "the valid part has no node with a label"),
        ({"val_idx": np.array([0.5])}, "valid part float64"),
        ({"features": None, "feat_row": np.array([7]), "feat_col": np.array([0]), "feat_val": np.ones(1)}, "outside"),
        ({"features": None, "feat_row": np.array([1]), "feat_col": np.array([0]), "feat_val": np.ones(2)}, "equal"),
        ({"num_classes": np.array(10**12)}, "found 1,000,000,000,000 classes; allowed: at most 6"),
        ({"edge_index": np.full((2, 4), 2**64 - 1, np.uint64)}, "edge 0 joins the nodes 4611686018427387904 and"),
        ({"labels": np.array([0, 1, 0, 1, 2**63, 0], np.uint64)}, "run up to 4611686018427387904, but no node"),
        ({"features": np.full((6, 2), 1e300)}, "feature 0 of node 0 is inf; allowed: finite"),
        ({"features": None, "feat_row": np.array([1]), "feat_col": np.array([10**12]), "feat_val": np.ones(1)},
         "6 nodes × 1,000,000,000,001 features are more than"),
        ({"features": None, "feat_row": np.array([1]), "feat_col": np.array([1]), "feat_val": np.array(["x"])},
         "found feat_val <U1; allowed: numbers"),
        ({"features": None, "feat_row": np.array([1]), "feat_col": np.array([1]), "feat_val": np.ones(1),
          "num_nodes": np.array("x")}, "`num_nodes` is x; allowed: one whole number"),
        ({"labels": np.array([None] * 6)}, "not a readable numpy archive of plain arrays"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnusableDataError, match=words):
        load_graph(saved(tmp_path, **changed(**changes)))


def test_splits_that_are_not_there(tmp_path: Path) -> None:
    file = saved(tmp_path, **SMALL)
    with pytest.raises(UnusableDataError, match="no several splits; allowed: 0"):
        load_graph(file, split=1)
    masks = {
        f"{part}_masks": np.stack([mask([node]), mask([node])]) for node, part in enumerate(("train", "val", "test"))
    }
    with pytest.raises(UnusableDataError, match=r"`split=2` must lie in \[0, 1\]"):
        load_graph(saved(tmp_path, **changed(train_idx=None, val_idx=None, test_idx=None, **masks)), split=2)
    with pytest.raises(UnusableDataError, match="allowed: 0, the only one"):
        load_graph("sbm", split=1)


def test_row_normalize(tmp_path: Path) -> None:
    graph = load_graph(
        saved(tmp_path, **changed(features=np.array([[1, 3], [0, 0], *[[1, 1]] * 4]))), row_normalize=True
    )
    assert graph.features[:3].tolist() == [[0.25, 0.75], [0, 0], [0.5, 0.5]]
    with pytest.raises(UnusableDataError, match="needs features ≥ 0"):
        load_graph(saved(tmp_path, **changed(features=-SMALL["features"])), row_normalize=True)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    assert load_graph(saved(tmp_path, **SMALL)).num_nodes == 6
    longer = changed(features=np.zeros((7, 2)), labels=np.array([0, 1, 0, 1, -1, 0, 1]))
    assert load_graph(saved(tmp_path, **longer)).num_nodes == 7


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04" + b"\0" * 40])
def test_damaged_archives(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "g.npz").write_bytes(content)
    with pytest.raises(UnusableDataError, match="not a readable numpy archive"):
        load_graph(str(tmp_path / "g.npz"))


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingDataError, match=r"graph 'cora.npz' is not on this machine[^$]*looked for"):
        load_graph("cora.npz")
    (tmp_path / "g.txt").write_text("0 1")
    with pytest.raises(UnusableDataError, match=r"not an \.npz file"):
        load_graph("g.txt")


def ogb_folder(folder: Path) -> Path:
    """The small graph as the package ogb leaves it behind."""
    tables = {
        "raw/edge": SMALL["edge_index"].T,
        "raw/node-feat": SMALL["features"],
        "raw/node-label": np.where(SMALL["labels"] < 0, np.nan, SMALL["labels"])[:, None],
        "split/time/train": SMALL["train_idx"][:, None],
        "split/time/valid": SMALL["val_idx"][:, None],
        "split/time/test": SMALL["test_idx"][:, None],
    }
    for name, table in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            np.savetxt(file, table, delimiter=",", fmt="%g")
    return folder


def test_a_folder_as_ogb_lays_it_out(tmp_path: Path) -> None:
    folder = ogb_folder(tmp_path / "ogbn_small")
    assert_same(load_graph(str(folder)), load_graph(saved(tmp_path, **SMALL)))
    with pytest.raises(UnusableDataError, match="the only one of an OGB folder"):
        load_graph(str(folder), split=1)
    (folder / "raw" / "node-feat.csv.gz").write_bytes(gzip.compress(b"1,2\n3,x\n"))
    with pytest.raises(UnusableDataError, match=r"node-feat\.csv\.gz: not a readable table of numbers"):
        load_graph(str(folder))
    (folder / "split" / "other").mkdir()
    with pytest.raises(MissingDataError, match=r"no split/other/train\.csv\.gz"):
        load_graph(str(folder))
    (folder / "raw" / "edge.csv.gz").unlink()
    with pytest.raises(MissingDataError, match=r"no raw/edge\.csv\.gz.*processed/ is not read"):
        load_graph(str(folder))


@given(st.lists(st.integers(-1, 3), min_size=12, max_size=60))
@settings(max_examples=25, deadline=None)
def test_own_split_holds_every_labelled_node_once(found: list[int]) -> None:
    labels = np.array([0, 1, 2, 3] * 5 + found)
    graph = checked_graph(
        source="x", features=np.ones((len(labels), 1)), edges=np.array([[0], [1]]), labels=labels, parts=None
    )
    together = np.concatenate((graph.train, graph.valid, graph.test))
    assert sorted(together.tolist()) == np.flatnonzero(labels >= 0).tolist()
    for label in range(4):
        count = int((labels == label).sum())
        assert abs((labels[graph.train] == label).sum() - 0.6 * count) <= 0.5
        assert abs((labels[graph.test] == label).sum() - 0.2 * count) <= 1


def test_the_built_in_graph_is_the_same_everywhere() -> None:
    graph = load_graph("sbm")
    content = b"".join(array.tobytes() for array in (graph.features, graph.edges, graph.labels))
    assert hashlib.sha256(content).hexdigest()[:16] == "99dd1f9882849172"
    homophily = (graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).mean()
    assert 0.7 < homophily < 0.77
    assert [len(part) for part in (graph.train, graph.valid, graph.test)] == [100, 200, 500]
    assert graph.num_isolated > 0


def test_real_graphs(shared_dir: Path) -> None:
    """Sizes as published; Citeseer has nodes without edges and without labels."""
    cora = load_graph(str(shared_dir / "data" / "planetoid" / "cora.npz"))
    assert (cora.num_nodes, cora.edges.shape[1], cora.features.shape[1], cora.num_classes) == (2708, 10556, 1433, 7)
    citeseer = load_graph(str(shared_dir / "data" / "planetoid" / "citeseer.npz"))
    assert (citeseer.num_nodes, citeseer.num_isolated, citeseer.num_unlabeled) == (3327, 48, 15)
    assert [len(part) for part in (citeseer.train, citeseer.valid, citeseer.test)] == [120, 500, 1000]
    tolokers = load_graph(str(shared_dir / "data" / "heterophilous" / "tolokers.npz"), split=9)
    assert (tolokers.num_nodes, tolokers.edges.shape[1], tolokers.num_classes) == (11758, 1038000, 2)
