"""`trivet graph` and the process it asks: table, JSON, pictures, refusals before any tracing."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trivet.cli.child import ChildError, ask, serve
from trivet.cli.graph import _print
from trivet.cli.graphs import answer
from trivet.graph.graph import Graph

LOUD = """
import torch
from torch import nn

class Loud(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(12, 10)
        self.unused = nn.Linear(3, 4)

    def forward(self, x):
        print("hello from a user's model")
        return self.used(x.flatten(1))

def loud(): return Loud()
"""


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch is here already; the request and the answer still go through JSON."""

    def here(module: str, request: Any, problem: str, variables: Any = None) -> Any:
        assert module == "trivet.cli.graphs"
        return json.loads(json.dumps(answer(json.loads(json.dumps(request)))))

    monkeypatch.setattr("trivet.cli.child.ask", here)


def test_the_answer_is_the_graph_of_the_model_asked_for() -> None:
    made = Graph.from_dict(answer({"model": "resnet8", "width": 4, "input": [1, 28, 28], "classes": 7})["graph"])
    assert [made.count(op) for op in ("conv", "bn", "sum", "input")] == [10, 9, 3, 1]
    assert made.nodes[made.inputs[0]].output == (1, 1, 28, 28)
    assert made.nodes[-1].shape == (7,)


def test_the_table_adds_up(trivet: Any, in_this_process: None) -> None:
    ended = trivet("graph", "resnet8", "--width", "4")
    assert ended.code == 0, ended.err
    assert "resnet8, input 3×32×32, 10 classes" in ended.out
    content = json.loads(trivet("graph", "resnet8", "--width", "4", "--json").out)
    assert content["nodes"] == sum(row["nodes"] for row in content["by_op"]) == len(content["graph"]["nodes"])
    assert content["parameters"] == sum(row["parameters"] for row in content["by_op"])
    assert content["macs"] == sum(row["macs"] for row in content["by_op"]) > 0
    assert content["unplaced"] == []
    assert f"{content['parameters']:,} parameters in {content['tensors']} tensors" in " ".join(ended.out.split())


def test_the_real_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line never imports torch; what the model prints does not get into the answer; nothing is lost."""
    (tmp_path / "loudnets.py").write_text(LOUD, encoding="utf-8")
    code = (
        "import sys; from trivet.__main__ import main\n"
        "sys.argv = ['trivet', 'graph', 'python:loudnets:loud', '--input', '3x2x2', '--out', 'net.svg', '--json']\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["parameters"] == 130 + 16
    unplaced = [(row["tensor"], row["parameters"]) for row in content["unplaced"]]
    assert unplaced == [("unused.weight", 12), ("unused.bias", 4)]
    assert all(row["reason"] for row in content["unplaced"])
    assert "2 parameter tensors without a node" in (tmp_path / "net.svg").read_text(encoding="utf-8")
    _print(content)
    printed = capsys.readouterr().out
    assert "unused.weight" in printed
    assert content["unplaced"][0]["reason"] in printed


def test_a_picture_and_its_figures_at_once(trivet: Any, tmp_path: Path, in_this_process: None) -> None:
    ended = trivet("graph", "resnet8", "--out", "new/net.svg", "--json")
    assert ended.code == 0, ended.err
    assert "drawn to new/net.svg" in ended.err
    assert json.loads(ended.out)["nodes"] > 20
    text = (tmp_path / "new" / "net.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "resnet8, input 3×32×32, 10 classes" in text
    assert text.count(">+</text>") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet21",), "did you mean 'resnet20'"),
        (("torchvision:resnet19",), "did you mean 'resnet"),
        (("resnet8", "--out", "net.jpg"), ".svg, .png, .pdf"),
        (("resnet8", "--out", "file/net.svg"), "nothing can be written"),
        (("resnet8", "--out", "folder.svg"), "is a folder"),
        (("resnet8", "--input", "3x32"), "CHANNELSxHEIGHTxWIDTH"),
        (("resnet8", "--classes", "-1"), "at least 1"),
        (("torchvision:resnet18", "--width", "8"), "no effect"),
    ],
)
def test_refused_before_anything_is_traced(
    arguments: tuple[str, ...], said: str, trivet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder.svg").mkdir()
    monkeypatch.setattr("trivet.cli.child.subprocess.run", lambda *a, **k: pytest.fail("a process was started"))
    ended = trivet("graph", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert ended.out == ""


def test_a_process_that_crashes_ends_with_its_last_word(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text("raise MemoryError('no room for this model')", encoding="utf-8")
    with pytest.raises(ChildError, match=r"^it failed: MemoryError: no room for this model$") as caught:
        ask("crashing", {}, "it failed", {"PYTHONPATH": str(tmp_path)})
    assert caught.value.exit_code == 1


def test_an_error_on_purpose_is_an_answer_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(request: Any) -> Any:
        sys.stdout.write("talk of the model's")
        raise ValueError(f"not {request['what']}")

    monkeypatch.setattr("sys.stdin", io.StringIO('{"what": "this"}'))
    assert serve(refuse) == 0
    said = capsys.readouterr().out
    assert json.loads(said) == {"error": "not this", "exit_code": 2}
    done = subprocess.CompletedProcess([], 0, stdout=said, stderr="")
    monkeypatch.setattr("trivet.cli.child.subprocess.run", lambda *a, **k: done)
    with pytest.raises(ChildError, match="not this") as caught:
        ask("some.module", {}, "it failed")
    assert caught.value.exit_code == 2


def test_a_process_that_cannot_start_is_told_apart() -> None:
    with pytest.raises(ChildError, match=r"it cannot be counted: .*no_such_module"):
        ask("no_such_module", {}, "it cannot be counted")
