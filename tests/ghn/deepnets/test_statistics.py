"""Figures of splits, and the verb that prints them without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from trivet.ghn.deepnets import DARTS_NETWORK, VIT_NETWORK, DeepNets, ResNet50Architecture
from trivet.ghn.deepnets.statistics import average_path, measure, published
from trivet.graph import graph_of

COUNT = 40


def trivet(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trivet", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "140"},
    )


def test_figures_of_known_networks() -> None:
    nets = [DARTS_NETWORK, VIT_NETWORK, ResNet50Architecture()]
    found = measure(nets, graphs=False)
    assert found.count == 3
    assert found.parameters_mean == (919_722 + 1_012_234 + 23_520_842) / 3
    assert found.parameters_max == 23_520_842
    assert found.cells_mean == 10
    assert found.attention == 0.5
    assert found.nodes_mean is None
    with pytest.raises(ValueError, match="at least one"):
        measure([])


def test_average_path_is_the_published_one() -> None:
    """Of ResNet-50 and the vision transformer, as printed in the published notebook."""
    expected = [(126, 141, 11.193269841269842), (129, 148, 10.700096899224807)]
    for network, (nodes, edges, path) in zip(DeepNets("predefined"), expected, strict=True):
        with torch.device("meta"):
            graph = graph_of(network.build(), torch.zeros(1, 3, 32, 32))
        assert (len(graph.nodes), len(graph.edges)) == (nodes, edges)
        assert average_path(graph) == pytest.approx(path, rel=1e-12)


@pytest.mark.parametrize("split", ["val", "test", "wide", "bn_free"])
def test_parameters_are_like_the_published_ones(split: str) -> None:
    """Within 15 %: the means of this many networks have a standard error of 5 %."""
    expected = published(split)
    found = measure([DeepNets(split)[index] for index in range(COUNT)], graphs=False)
    assert expected is not None
    assert expected.parameters_mean is not None
    assert found.parameters_mean == pytest.approx(expected.parameters_mean, rel=0.15)


def test_the_verb_prints_both_rows() -> None:
    done = trivet("ghn", "stats", "--split", "predefined")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    [here] = [line for line in lines if "here" in line]
    [known] = [line for line in lines if "published" in line]
    assert here[:4] == ["predefined", "here", "2", "126–129"]
    assert known[:3] == ["published", "2", "126–129"]


def test_json_of_small_networks() -> None:
    done = trivet("ghn", "stats", "--split", "test", "--count", "3", "--small", "--no-graphs", "--json")
    [row] = json.loads(done.stdout)["splits"]
    assert row["split"] == "test"
    assert row["measured"]["count"] == 3
    assert row["measured"]["parameters_max"] <= 500_000
    assert row["published"] is None


def test_the_verb_loads_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; sys.argv = ['trivet', 'ghn', 'stats', '--split', 'test', '--count', '1', '--no-graphs']\n"
        "from trivet.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--split", "tset"), "did you mean 'test'"),
        (("--split", "predefined", "--small"), "does not apply"),
    ],
)
def test_requests_that_make_no_sense(arguments: tuple[str, ...], words: str, capsys: Any) -> None:
    done = trivet("ghn", "stats", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""
