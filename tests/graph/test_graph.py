"""Graph as data: what is refused, distances and levels against networkx, the way to JSON and back."""

from __future__ import annotations

import copy
import json
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest

from trivet.graph import PRIMITIVES, Graph, Node, word, words
from trivet.graph import vocabulary as vocabulary_module
from trivet.graph.vocabulary import register_word


def random_graph(seed: int, count: int = 40) -> Graph:
    rng = random.Random(seed)
    edges = {(a, b) for b in range(1, count) for a in rng.sample(range(b), k=min(b, rng.randint(0, 3)))}
    nodes = tuple(Node(name=f"n{i}", op="sum" if i else "input") for i in range(count))
    return Graph(nodes=nodes, edges=tuple(sorted(edges)), inputs=(0,), outputs=(count - 1,))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cutoff", [1, 3, 50])
def test_distances_are_those_of_networkx(seed: int, cutoff: int) -> None:
    nx = pytest.importorskip("networkx")
    graph = random_graph(seed)
    lengths = dict(nx.all_pairs_shortest_path_length(graph.to_networkx(), cutoff=cutoff))
    expected = sorted((a, b, d) for a, found in lengths.items() for b, d in found.items() if d > 0)
    assert graph.distances(cutoff).tolist() == [list(row) for row in expected]
    assert graph.distances(cutoff) is graph.distances(cutoff)


def test_long_distances_are_cut_at_the_cutoff() -> None:
    nodes = tuple(Node(name=str(i), op="sum") for i in range(80))
    chain = Graph(nodes=nodes, edges=tuple((i, i + 1) for i in range(79)))
    assert chain.distances()[:, 2].max() == 50
    assert len(chain.distances(79)) == 80 * 79 // 2
    with pytest.raises(ValueError, match="`cutoff=0` must be at least 1"):
        chain.distances(0)


@pytest.mark.parametrize("seed", range(3))
def test_levels_split_the_nodes_by_longest_path(seed: int) -> None:
    graph = random_graph(seed)
    depth = {0: 0}
    for node in range(1, len(graph.nodes)):
        depth[node] = max([depth[a] + 1 for a, b in graph.edges if b == node], default=0)
    assert graph.depths.tolist() == list(depth.values())
    assert sorted(np.concatenate(graph.levels).tolist()) == list(range(len(graph.nodes)))
    assert all(depth[int(i)] == level for level, members in enumerate(graph.levels) for i in members)
    assert Graph(nodes=(), edges=()).levels == ()


def test_there_and_back() -> None:
    graph = Graph(
        nodes=(
            Node(name="input", op="input", output=(1, 3)),
            Node(name="w", op="conv", parameters=("w",), shape=(2, 3)),
        ),
        edges=((0, 1),),
        unplaced={"b": "unused"},
        inputs=(0,),
        outputs=(1,),
        method="real",
    )
    again = Graph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert again == graph
    assert again.key == graph.key
    assert again.parameters == {"w": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"nodes": 3},
        {"edges": [[1, 0]]},
        {"edges": [[0, 1], [0, 1]]},
        {"edges": [[0, 7]]},
        {"nodes": [{"name": "a", "op": "conv", "wrong": 1}]},
        {"nodes": [{"name": "a", "op": "no such word"}]},
        {"nodes": [{"name": 3, "op": "conv"}]},
        {"outputs": [9]},
        {"method": "guess"},
        {"unplaced": {"w": "why"}},
    ],
)
def test_what_is_no_graph_is_refused(change: dict[str, object]) -> None:
    nodes = (Node(name="a", op="input"), Node(name="w", op="conv", parameters=("w",)))
    content = Graph(nodes=nodes, edges=((0, 1),)).to_dict()
    Graph.from_dict(content)
    with pytest.raises(ValueError, match="not a graph"):
        Graph.from_dict({**content, **change})


def test_key_depends_on_structure_not_on_sizes_of_results() -> None:
    def make(**changes: object) -> str:
        node = {
            "name": "w",
            "op": "conv",
            "parameters": ("w",),
            "shape": (2, 3),
            "output": (1, 2),
            "macs": 6,
            **changes,
        }
        return Graph(nodes=(Node(name="i", op="input"), Node(**node)), edges=((0, 1),)).key  # type: ignore[arg-type]

    assert make() == make(output=(7, 2), macs=42)
    assert len({make(), make(op="ln"), make(shape=(2, 4)), make(name="v"), make(kernel=(1, 1))}) == 5


def test_words_keep_the_order_of_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [
        "max_pool", "avg_pool", "sep_conv", "dil_conv", "conv", "msa", "cse", "sum", "concat", "input", "bias", "bn",
        "ln", "pos_enc", "glob_avg",
    ]  # fmt: skip
    assert list(PRIMITIVES) == expected
    assert [entry.name for entry in words()[:15]] == expected
    assert [entry.index for entry in words()] == list(range(len(words())))
    assert all(entry.like in ("", *PRIMITIVES) and entry.what for entry in words())
    monkeypatch.setattr(vocabulary_module, "_WORDS", dict(vocabulary_module._WORDS))
    added = register_word("gate", like="cse", what="a gate")
    assert word("gate") is added
    assert added.index == len(words()) - 1
    with pytest.raises(ValueError, match="registered already"):
        register_word("gate")
    with pytest.raises(ValueError, match="did you mean 'conv'"):
        register_word("other", like="convv")
    with pytest.raises(ValueError, match="did you mean 'concat'"):
        word("concatt")


def test_graphs_load_without_torch() -> None:
    code = "import sys, trivet.graph.graph, trivet.graph.vocabulary; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_graphs_are_pickled_and_copied_as_values() -> None:
    graph = Graph(
        nodes=(Node(name="input", op="input"), Node(name="w", op="conv", parameters=("w",), shape=(2, 3))),
        edges=((0, 1),),
        unplaced={"b": "unused"},
    )
    for other in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert other == graph
        assert other.key == graph.key
