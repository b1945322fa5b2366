"""Pictures of graphs: geometry by property, what they say on small graphs, real networks, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.graph.draw import _labels, _sizes, draw, svg
from trivet.graph.graph import Graph, Node
from trivet.graph.outline import Block, outline
from trivet.graph.picture import draw_outline
from trivet.graph.sheet import ASPECT, ONE_COLUMN, Frame, Picture, Row

SVG = "{http://www.w3.org/2000/svg}"


def chain(*ops: str, module: str = "") -> Graph:
    """Nodes one after another."""
    nodes = tuple(Node(name=f"{op}{index}", op=op, module=module) for index, op in enumerate(ops))
    return Graph(nodes=nodes, edges=tuple((index, index + 1) for index in range(len(nodes) - 1)))


def conv(name: str, shape: tuple[int, ...], module: str) -> Node:
    size = shape[0] * shape[1]
    return Node(name=name, op="conv", parameters=(f"{name}.weight",), shape=shape, size=size, module=module)


def residual(blocks: int, widths: Sequence[int], path: str = "layers") -> Graph:
    """An input and residual blocks: two linear layers with a bias each, and a sum."""
    nodes = [Node(name="input", op="input", output=(1, widths[0]))]
    edges: list[tuple[int, int]] = []
    for block in range(blocks):
        module, entry, width = f"{path}.{block}", len(nodes) - 1, widths[block]
        for layer in range(2):
            name = f"{module}.{layer}"
            nodes.append(conv(name, (width, width), name))
            bias = Node(name=f"{name}.bias", op="bias", parameters=(f"{name}.bias",), shape=(width,), size=width)
            nodes.append(replace(bias, module=name))
        start = entry + 1
        nodes.append(Node(name=f"{module}.sum", op="sum", module=module, output=(1, width)))
        edges += [(entry + step, start + step) for step in range(5)] + [(entry, start + 4)]
    return Graph(nodes=tuple(nodes), edges=tuple(sorted(edges)), inputs=(0,))


@st.composite
def graphs(draw_: Any, most: int = 24) -> Graph:
    """Graphs of any structure, with modules inside each other whose work may be interleaved."""
    count = draw_(st.integers(1, most))
    ops = ("conv", "bias", "bn", "sum", "concat", "cse", "max_pool", "input", "raw")
    modules = ("", "a", "a.0", "a.0.x", "a.1", "a.1.y", "b", "b.0", "c.d.e.f")
    nodes = []
    for index in range(count):
        op = draw_(st.sampled_from(ops))
        own = {"parameters": (f"p{index}",), "shape": (3, 2), "size": 6} if op in ("conv", "bn", "raw", "bias") else {}
        nodes.append(Node(name=f"n{index}", op=op, module=draw_(st.sampled_from(modules)), **own))
    pairs = list(combinations(range(count), 2))
    edges = draw_(st.lists(st.sampled_from(pairs), max_size=2 * count, unique=True)) if pairs else []
    edges += [(index, index + 1) for index in range(count - 1) if draw_(st.booleans())]
    return Graph(nodes=tuple(nodes), edges=tuple(sorted(set(edges))))


def picture_of(graph: Graph, *, collapse: bool = False, page: float = ONE_COLUMN) -> Picture:
    """The geometry; with a small page even small graphs are cut into columns."""
    made = outline(graph, collapse=collapse)
    aspect = ASPECT if page == ONE_COLUMN else 8.0
    with patch("trivet.graph.sheet.ONE_COLUMN", page), patch("trivet.graph.sheet.ASPECT", aspect):
        return draw_outline(made, _sizes(_labels(graph, made), graph))[0]


def nodes_in(picture: Picture) -> list[int]:
    return sorted(index for row in picture.rows for nodes in row.cell.copies for index in nodes)


def overlap(a: Row | Frame, b: Row | Frame) -> bool:
    across = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    down = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return across > 1e-6 and down > 1e-6


def inside(a: Row | Frame, b: Frame) -> bool:
    return (
        a.x >= b.x - 1e-6
        and a.y >= b.y - 1e-6
        and a.x + a.width <= b.x + b.width + 1e-6
        and a.y + a.height <= b.y + b.height + 1e-6
    )


def points_of(picture: Picture) -> Iterator[tuple[float, float]]:
    """Points along all wires."""
    for wire in picture.wires:
        for (x, y), (a, b) in pairwise(wire.points):
            for step in range(11):
                t = step / 10
                if wire.is_smooth and x != a:
                    middle, s = (y + b) / 2, 1 - t
                    across = x * (s**3 + 3 * s * s * t) + a * (t**3 + 3 * s * t * t)
                    yield across, y * s**3 + middle * (3 * s * s * t + 3 * s * t * t) + b * t**3
                else:
                    yield x + (a - x) * t, y + (b - y) * t


PAGES = st.sampled_from([ONE_COLUMN, 60.0])


@given(graphs(), st.booleans(), PAGES)
@settings(deadline=None, max_examples=50)
def test_every_node_is_drawn_once_and_nothing_overlaps(graph: Graph, collapse: bool, page: float) -> None:
    picture = picture_of(graph, collapse=collapse, page=page)
    assert nodes_in(picture) == list(range(len(graph.nodes)))
    assert not any(overlap(a, b) for a, b in combinations(picture.rows, 2))
    for a, b in combinations(picture.frames, 2):
        assert not overlap(a, b) or inside(a, b) or inside(b, a)
    for frame in picture.frames:
        own = {cell.index for cell in frame.block.cells()}
        assert all(inside(row, frame) == (row.cell.index in own) for row in picture.rows)
        assert all(row.cell.index in own or not overlap(row, frame) for row in picture.rows)
    ends = [(item.x, item.x + item.width, item.y + item.height) for item in [*picture.rows, *picture.frames]]
    assert all(x >= picture.left - 1e-6 and right <= picture.right + 1e-6 for x, right, _ in ends)
    assert all(0 < bottom <= picture.height + 1e-6 for _, _, bottom in ends)


@given(graphs(), PAGES)
@settings(deadline=None, max_examples=60)
def test_wires_run_beside_the_rows_and_downwards(graph: Graph, page: float) -> None:
    picture = picture_of(graph, page=page)
    for x, y in points_of(picture):
        for row in picture.rows:
            assert not (row.x + 0.5 < x < row.x + row.width - 0.5 and row.y + 0.5 < y < row.y + row.height - 0.5), (
                f"a wire runs through a row at {x}, {y}"
            )
    for wire in picture.wires:
        assert not wire.is_smooth or all(b > a for (_, a), (_, b) in pairwise(wire.points))
    tops = {(row.x + row.width / 2, row.y) for row in picture.rows}
    assert all(any(abs(x - a) < 1e-6 and abs(y - b) < 1e-6 for a, b in tops) for x, y in picture.heads)


@given(graphs(12), PAGES)
@settings(deadline=None, max_examples=40)
def test_wires_join_what_edges_join(graph: Graph, page: float) -> None:
    """Follow the wires from the bottom of each row: they reach exactly the rows that its edges lead to."""
    picture = picture_of(graph, page=page)
    owner = {index: row for row in picture.rows for nodes in row.cell.copies for index in nodes}
    wanted = {(owner[a].cell.index, owner[b].cell.index) for a, b in graph.edges if owner[a] is not owner[b]}
    below: dict[tuple[float, float], set[tuple[float, float]]] = {}
    for wire in picture.wires:
        first, last = (tuple(round(value, 3) for value in wire.points[end]) for end in (0, -1))
        below.setdefault(first, set()).add(last)
    tops = {(round(row.x + row.width / 2, 3), round(row.y, 3)): row for row in picture.rows}
    stacked = {(row.above.index, row.cell.index) for row in picture.rows if row.above is not None}
    found = set(stacked)
    for row in picture.rows:
        seen = {(round(row.x + row.width / 2, 3), round(row.y + row.height, 3))}
        ready = list(seen)
        while ready:
            for point in below.get(ready.pop(), ()):
                if point in tops:
                    found.add((row.cell.index, tops[point].cell.index))
                elif point not in seen:
                    seen.add(point)
                    ready.append(point)
    assert found == wanted


@given(graphs(), st.booleans())
@settings(deadline=None, max_examples=30)
def test_the_same_graph_gives_the_same_well_formed_text(graph: Graph, collapse: bool) -> None:
    text = svg(graph, title="a", collapse=collapse)
    assert text == svg(Graph.from_dict(graph.to_dict()), title="a", collapse=collapse)
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    tips = list(root.iter(f"{SVG}title"))
    assert len(tips) > len(picture_of(graph, collapse=collapse).rows)


def test_the_text_is_the_same_in_another_process() -> None:
    graph = residual(3, [8, 8, 8])
    code = (
        "import json, sys; from trivet.graph.graph import Graph; from trivet.graph.draw import svg;"
        "sys.stdout.write(svg(Graph.from_dict(json.load(sys.stdin)), title='r'));"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(graph.to_dict()),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONHASHSEED": "77", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == svg(graph, title="r")


def test_names_cannot_break_the_file() -> None:
    nasty = "</title><script>alert('&\"')</script>\x00\u2028"
    nodes = (
        Node(name=nasty, op="input"),
        Node(name="w", op="raw", parameters=(f"m.{nasty}",), shape=(2,), module=nasty),
    )
    text = svg(Graph(nodes=nodes, edges=((0, 1),)), title=nasty)
    root = ET.fromstring(text)
    assert not list(root.iter(f"{SVG}script"))
    assert "alert('&" in "".join(root.itertext())


def blocks_of(block: Block) -> dict[str, int]:
    """Path of every frame and how many modules it stands for."""
    found: dict[str, int] = {}
    for item in block.items:
        if isinstance(item, Block):
            found |= {item.path: max(1, len(item.copies)), **blocks_of(item)}
    return found


def test_equal_blocks_are_drawn_once_with_their_number() -> None:
    graph = residual(12, [16] * 12)
    made = outline(graph, collapse=True)
    assert blocks_of(made.root) == {"layers.0": 12}
    assert [len(cell.copies) for cell in made.root.cells()] == [1, 12, 12, 12]
    text = svg(graph, collapse=True)
    assert "×12" in text
    assert "layers.0 … 11" in text
    assert blocks_of(outline(graph, collapse=False).root) == {f"layers.{index}": 1 for index in range(12)}


def test_blocks_of_other_widths_are_one_only_when_they_are_many() -> None:
    assert blocks_of(outline(residual(5, [8, 16, 24, 32, 40]), collapse=True).root) == {
        f"layers.{index}": 1 for index in range(5)
    }
    many = residual(9, [8 * (index + 1) for index in range(9)])
    assert blocks_of(outline(many, collapse=True).root) == {"layers.0": 9}
    assert "8…72→8…72" in svg(many, collapse=True)
    mixed = residual(6, [8, 8, 8, 16, 16, 16])
    assert blocks_of(outline(mixed, collapse=True).root) == {"layers.0": 3, "layers.3": 3}


def test_large_graphs_are_collapsed_by_default() -> None:
    assert "×30" in svg(residual(30, [4] * 30))
    assert "×15" not in svg(residual(15, [4] * 15))
    assert "×30" not in svg(residual(30, [4] * 30), collapse=False)


def test_a_block_whose_output_is_used_twice_is_not_lost_when_collapsed() -> None:
    """Every block feeds a last concatenation, too; the links of all copies are those of the first."""
    base = residual(4, [8] * 4)
    end = len(base.nodes)
    sums = [index for index, node in enumerate(base.nodes) if node.op == "sum"]
    nodes = (*base.nodes, Node(name="concat", op="concat"))
    graph = Graph(nodes=nodes, edges=tuple(sorted([*base.edges, *((index, end) for index in sums)])))
    made = outline(graph, collapse=True)
    assert blocks_of(made.root) == {"layers.0": 4}
    assert (sums[0], end) in made.links
    assert nodes_in(picture_of(graph, collapse=True)) == list(range(end + 1))


def test_a_module_whose_work_is_interleaved_gets_no_frame() -> None:
    """b works between two calls of a: no rectangle can hold a alone."""
    modules = ["", "a.x", "a.y", "a", "b.x", "b.y", "b", "a.z", "a"]
    ops = ["input", "conv", "conv", "sum", "conv", "conv", "sum", "conv", "sum"]
    nodes = tuple(
        Node(name=f"n{index}", op=op, module=module)
        for index, (op, module) in enumerate(zip(ops, modules, strict=True))
    )
    edges = ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6), (6, 7), (6, 8), (7, 8))
    graph = Graph(nodes=nodes, edges=edges)
    assert set(blocks_of(outline(graph, collapse=False).root)) == {"b"}


def test_wrappers_get_no_frame_but_what_is_in_them_does() -> None:
    """As in T5: encoder and decoder, each a list of blocks in a module of its own."""
    first, second = residual(3, [8] * 3, "enc.block"), residual(3, [8] * 3, "dec.block")
    start = len(first.nodes)
    edges = [*first.edges, *((a + start - 1, b + start - 1) for a, b in second.edges)]
    graph = Graph(nodes=(*first.nodes, *second.nodes[1:]), edges=tuple(sorted(edges)), inputs=(0,))
    frames = blocks_of(outline(graph, collapse=False).root)
    assert set(frames) == {*("enc", "dec"), *(f"{side}.block.{i}" for side in ("enc", "dec") for i in range(3))}
    last = picture_of(graph).frames[-1]
    below = max(row.y + row.height for row in picture_of(graph).rows)
    assert last.y + last.height > below + 5, "the last row touches its frame"


def test_a_bias_goes_with_its_weight_and_only_there() -> None:
    nodes = (
        conv("w", (4, 4), "w"),
        Node(name="w.bias", op="bias", parameters=("w.bias",), shape=(4,), size=4, module="w"),
        Node(name="v.bias", op="bias", parameters=("v.bias",), shape=(4,), size=4, module="v"),
    )
    made = outline(Graph(nodes=nodes, edges=((0, 1), (1, 2))), collapse=False)
    assert [cell.copies for cell in made.root.cells()] == [((0, 1),), ((2,),)]
    twice = outline(Graph(nodes=nodes, edges=((0, 1), (0, 2))), collapse=False)
    assert len(list(twice.root.cells())) == 3


def test_long_pictures_go_on_in_the_next_column() -> None:
    tall = picture_of(residual(24, [8] * 24))
    wide = tall.right - tall.left
    assert 0.5 < wide / tall.height < 3
    assert sum(not wire.is_smooth for wire in tall.wires) >= 3
    small = picture_of(residual(2, [8] * 2))
    assert all(wire.is_smooth for wire in small.wires)


def test_a_thousand_nodes_in_a_row_and_beside_each_other() -> None:
    row = chain("input", *["conv"] * 999)
    assert len(picture_of(row).rows) == 1000
    fan = Graph(
        nodes=(
            Node(name="input", op="input"),
            *(Node(name=f"n{i}", op="conv") for i in range(300)),
            Node(name="s", op="concat"),
        ),
        edges=tuple(sorted([(0, i) for i in range(1, 301)] + [(i, 301) for i in range(1, 301)])),
    )
    assert len(picture_of(fan).rows) == 302


def test_the_totals_are_those_of_the_graph() -> None:
    graph = replace(residual(2, [8, 8]), unplaced={"lost": "never used"})
    text = svg(graph)
    assert "11 nodes · 288 parameters · 0 MACs · 1 parameter tensor without a node" in text


def test_real_networks() -> None:
    """ResNet-20 of this package whole, and a vision transformer whose layers are drawn once."""
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("torchvision.models")

    from trivet.graph import graph_of
    from trivet.models import resnet20

    small = graph_of(resnet20(), torch.zeros(1, 3, 32, 32))
    picture = picture_of(small)
    assert sum(row.is_round for row in picture.rows) == 9
    assert {"stage1.0", "stage3.2"} <= {frame.block.path for frame in picture.frames}
    with torch.device("meta"):
        vit = models.vit_b_16(weights=None)
    graph = graph_of(vit, torch.zeros(1, 3, 224, 224, device="meta"))
    text = svg(graph)
    assert "×12" in text
    assert "86.6 M parameters" in text
    assert text.count(">attention</tspan>") == 1
    assert svg(graph, collapse=False).count(">attention</tspan>") == 12


def test_files_in_each_format(tmp_path: Path) -> None:
    graph = residual(3, [8, 8, 8])
    image = pytest.importorskip("PIL.Image")
    made = draw(graph, tmp_path / "new" / "net.PNG", title="net")
    assert made.read_bytes().startswith(b"\x89PNG")
    with image.open(made) as opened:
        pixels = opened.convert("RGB")
        assert len(pixels.getcolors(1 << 24)) > 20, "the picture is blank"
        text = draw(graph, str(tmp_path / "net.svg"), title="net").read_text(encoding="utf-8")
        assert pixels.width == pytest.approx(2 * float(ET.fromstring(text).attrib["width"]), abs=2)
    assert text == svg(graph, title="net")
    assert draw(graph, tmp_path / "net.pdf").read_bytes().startswith(b"%PDF")
    assert graph.draw(tmp_path / "again.svg").read_text(encoding="utf-8") == svg(graph)


def test_a_huge_picture_becomes_a_png_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr("trivet.graph.draw.MOST_PIXELS", 40_000)
    with image.open(draw(residual(3, [8] * 3), tmp_path / "net.png")) as opened:
        assert 20_000 < opened.width * opened.height < 60_000


@pytest.mark.parametrize("name", ["net.jpg", "net", "svg"])
def test_a_suffix_that_cannot_be_drawn(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.svg, \.png, \.pdf"):
        draw(chain("input"), tmp_path / "sub" / name)
    assert not (tmp_path / "sub").exists()


def test_a_graph_without_nodes() -> None:
    with pytest.raises(ValueError, match="no nodes"):
        svg(Graph(nodes=(), edges=()))
