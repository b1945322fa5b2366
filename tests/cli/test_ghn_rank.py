"""`trivet ghn rank`: its table, its file, and what it refuses before a process starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from trivet.cli import stream

RESULT: dict[str, Any] = {
    "ghn": "x", "split": "test", "fit_split": "val", "weights": "abc", "data": "fashion-mnist", "images": 48,
    "truth_images": 50, "networks": 6, "architectures": list("abcdef"),
    "batch_norm": [True, True, True, True, False, False], "truth": [0.5, 0.6, 0.7, 0.8, 0.2, 0.1], "truth_steps": 400,
    "truth_seconds_per_network": 12.5, "early_steps": 50, "fit": {"networks": 100, "seconds": 1200.0},
    "methods": {
        "predicted": {"scores": [0.1, 0.2, 0.3, 0.4, 0.05, 0.01], "seconds_per_network": 0.5},
        "embedding": {"scores": [0.1, 0.2, 0.3, 0.4, 0.05, 0.01], "seconds_per_network": 0.1},
        "size": {"scores": [1, 1, 1, 1, 1, 1], "seconds_per_network": 0.001},
        "loss": {"scores": [-1, -2, -3, -4, -5, None], "seconds_per_network": 2.0},
    },
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Mapping[str, Any]]:
    """Answers without a process; a hypernetwork's folder "x" is there."""
    requests: list[Mapping[str, Any]] = []

    def answers(module: str, request: Mapping[str, Any], problem: str) -> Iterator[dict[str, Any]]:
        assert module == "trivet.tasks.ghn_rank"
        requests.append(request)
        yield from ({"split": "test", "done": done + 1, "of": 6} for done in range(6))
        yield {"result": json.loads(json.dumps(RESULT))}

    monkeypatch.setattr(stream, "answers", answers)
    (tmp_path / "x").mkdir()
    return requests


def test_the_table_says_how_well_each_ranker_agrees(
    trivet: Any, asked: list[Mapping[str, Any]], tmp_path: Path
) -> None:
    ended = trivet("ghn", "rank", "x", "--twin-steps", "300")
    assert ended.code == 0, ended.err
    assert asked[0]["twin"] == {"points": [300], "rates": [0.1, 0.05, 0.01]}
    rows = {line.split("  ")[0]: line for line in ended.out.splitlines()}
    assert rows["accuracy with predicted parameters"].split()[4:6] == ["+1.00", "+1.00"]
    assert "+0.00" in rows["fitted: parameters and MACs"]
    assert rows["loss after 50 steps"].split()[4] == "+0.20"  # 9 pairs in order and 6 not
    assert "accuracy with predicted parameters minus loss after 50 steps: +0.80" in ended.out
    assert "paired percentile bootstrap, n = 6" in ended.out
    assert "test: 6 of 6 networks" in ended.err
    assert "Fitted on 100 networks of val, whose training took 1.2e+03 CPU s" in ended.err
    path = next((tmp_path / "ghn-rank").glob("ranking-*.json"))
    assert json.loads(path.read_text())["agreement"]["loss"]["bn"]["tau"] == -1
    assert str(path.relative_to(tmp_path)) in ended.out


def test_json(trivet: Any, asked: list[Mapping[str, Any]]) -> None:
    found = json.loads(trivet("ghn", "rank", "x", "--json", "--out", "here").out)
    assert asked[0]["out"] == "here"
    assert found["agreement"]["predicted"]["all"]["n"] == 6
    assert "bn_free" not in found["agreement"]["predicted"]  # two networks have no rank correlation
    assert {(one["of"], one["minus"]) for one in found["differences"]} == {
        (of, minus) for of in ("predicted", "embedding") for minus in ("size", "loss")
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "--split", "tset"), "did you mean 'test'"),
        (("x", "--split", "predefined"), "two networks, too few to rank"),
        (("x", "--fit-split", "test"), "must differ from `--split`"),
        (("x", "--fit-networks", "5"), "must be 10 or more, or 0"),
        (("x", "--networks", "2"), "--networks"),
        (("x", "--out", "file"), "`--out file` is a file"),
        (("x", "--rates", "0.1;1"), "must be numbers above 0 and commas"),
        (("x", "--rates", "0"), "must be numbers above 0 and commas"),
        (("nowhere",), "nowhere"),
    ],
)
def test_refusals(
    trivet: Any, asked: list[Mapping[str, Any]], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "file").touch()
    ended = trivet("ghn", "rank", *arguments)
    assert ended.code == 2
    assert message in ended.err
    assert not asked


def test_the_real_process_refuses_a_hypernetwork_without_recipe(trivet: Any, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    ended = trivet("ghn", "rank", "bare")
    assert ended.code == 2
    assert "no recipe.yaml" in ended.err
    assert not (tmp_path / "ghn-rank").exists()
