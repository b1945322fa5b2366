"""Draw a computational graph so that a person can follow it: `draw(graph, "net.svg")`.

Rows are nodes: operation, shape, scalars, and the shape of the result where it changes. They run from top to bottom;
rows on each other are a chain, wires are drawn where paths part and join. Frames are modules. Long pictures go on in
the next column; in large ones modules that repeat are drawn once, with their number.

Not covered: interactive pictures, and graphs of tens of thousands of nodes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from trivet.core.io import write_bytes, write_text
from trivet.graph.graph import Graph, Node
from trivet.graph.outline import Block, Cell, Outline, outline
from trivet.graph.picture import Sizes, draw_outline
from trivet.graph.sheet import Picture
from trivet.graph.svg import BOLD, LABEL_SIZE, Label, Texts, row_widths, to_svg
from trivet.graph.wording import kind_of, short, text_width, words_of

SUFFIXES = (".svg", ".png", ".pdf")
"""Files that can be written."""
COLLAPSE_FROM = 100
"""Nodes from which on repeated modules are drawn once, unless said otherwise."""
MOST_PIXELS = 60e6
"""A PNG gets twice the resolution, or what keeps it below this."""
SIGNS = {"sum": "+", "mul": "×", "cse": "×", "matmul": "·"}
"""Words that are drawn as a circle where they join paths, and what stands in it."""


def draw(graph: Graph, path: str | Path, *, title: str = "", collapse: bool | None = None) -> Path:
    """Write a picture of a graph.

    Args:
        graph: What to draw.
        path: File to write; its suffix (.svg, .png, .pdf) says in which format. Its folder is made if there is none.
        title: Heading.
        collapse: Draw modules that repeat once, with their number; None does from 100 nodes on.

    Returns:
        The path.

    Raises:
        ValueError: Another suffix, or a graph without nodes.
    """
    target = Path(path)
    check_suffix(target)
    text, width, height = _render(graph, title, collapse)
    if target.suffix.lower() == ".svg":
        write_text(target, text)
        return target
    import vl_convert

    if target.suffix.lower() == ".pdf":
        write_bytes(target, vl_convert.svg_to_pdf(text))
    else:
        scale = min(2.0, math.sqrt(MOST_PIXELS / (width * height)))
        write_bytes(target, vl_convert.svg_to_png(text, scale=scale))
    return target


def check_suffix(path: Path) -> None:
    """Refuse a file name whose suffix is none of `SUFFIXES` with `ValueError`."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"a picture ends in {', '.join(SUFFIXES)}, not as {str(path)!r} does; such as network.svg")


def svg(graph: Graph, *, title: str = "", collapse: bool | None = None) -> str:
    """The text of the SVG file that `draw` writes; arguments and errors as there.

    Examples:
        >>> nodes = (Node(name="x", op="input"), Node(name="fc.weight", op="conv", shape=(10, 64), parameters=("w",)))
        >>> "64→10" in svg(Graph(nodes=nodes, edges=((0, 1),)))
        True
    """
    return _render(graph, title, collapse)[0]


def _render(graph: Graph, title: str, collapse: bool | None) -> tuple[str, float, float]:
    if not graph.nodes:
        raise ValueError("`graph` has no nodes, so there is nothing to draw")
    if collapse is None:
        collapse = len(graph.nodes) >= COLLAPSE_FROM
    no_frame: frozenset[str] = frozenset()
    while True:
        made = outline(graph, collapse=collapse, no_frame=no_frame)
        labels = _labels(graph, made)
        picture, tall = draw_outline(made, _sizes(labels, graph))
        if not tall:
            break
        no_frame |= frozenset(tall)
    return to_svg(picture, _texts(graph, title, picture, labels))


def _labels(graph: Graph, made: Outline) -> dict[int, Label]:
    sizes = [graph.nodes[index].output[:1] for index in graph.inputs]
    batch = sizes[0][0] if sizes and sizes[0] else 1
    found: dict[int, Label] = {}
    for cell in made.root.cells():
        copies = [[graph.nodes[index] for index in nodes] for nodes in cell.copies]
        words, first = words_of(copies, batch), copies[0][0]
        tip = _tip(copies[0], len(copies))
        found[cell.index] = Label(kind=kind_of(first), words=words, sign=SIGNS.get(first.op, ""), tip=tip)
    return found


def _tip(nodes: Sequence[Node], copies: int) -> str:
    lines = [nodes[0].name if copies == 1 else f"{nodes[0].name}, the first of {copies} copies"]
    for node in nodes:
        if node.parameters:
            shape = "×".join(map(str, node.shape))
            lines.append(f"{', '.join(node.parameters)}: {shape or 'scalar'}, {node.size:,} scalars")
    if nodes[-1].output:
        lines.append(f"output {'×'.join(map(str, nodes[-1].output))}")
    macs = sum(node.macs for node in nodes)
    if macs:
        lines.append(f"{macs:,} multiply-accumulates")
    return "\n".join(lines)


def _sizes(labels: dict[int, Label], graph: Graph) -> Sizes:
    def op(cell: Cell) -> str:
        return graph.nodes[cell.index].op

    return Sizes(
        row=lambda cell, above: row_widths(labels[cell.index], labels[above.index] if above is not None else None),
        label=lambda block: _label_width(_frame_names(block)[1]),
        is_round=lambda cell: op(cell) in SIGNS,
        alone=lambda cell: op(cell) == "input",
    )


def _frame_names(block: Block) -> tuple[str, str]:
    """Path of a module, long and short; for several the first and how the last differs."""
    parts = block.path.split(".")
    short_name = ".".join(parts[-2:]) if parts[-1].isdigit() else parts[-1]
    if not block.copies:
        return block.path, short_name
    last = block.copies[-1].rpartition(".")[2]
    number = re.search(r"\d+$", last)
    if number and parts[-1].rstrip("0123456789") == last[: number.start()]:
        last = number[0]
    return f"{block.path} … {last}", f"{short_name} … {last}"


def _frame_name(block: Block, room: float) -> str:
    """The name that fits beside the wire that enters the frame."""
    names = _frame_names(block)
    for name in names:
        if _label_width(name) <= room:
            return name
    name = names[1]
    while name and _label_width(name + "…") > room:
        name = name[:-1]
    return name + "…"


def _label_width(text: str) -> float:
    return text_width(text, LABEL_SIZE) * BOLD


def _texts(graph: Graph, title: str, picture: Picture, labels: dict[int, Label]) -> Texts:
    parameters = sum(node.size for node in graph.nodes)
    totals = [f"{len(graph.nodes):,} nodes", f"{short(parameters)} parameters", f"{short(graph.macs)} MACs"]
    if graph.unplaced:
        many = "tensor" if len(graph.unplaced) == 1 else "tensors"
        totals.append(f"{len(graph.unplaced)} parameter {many} without a node")
    frames: list[tuple[str, str, str]] = []
    for frame in picture.frames:
        copies = frame.block.copies
        tip = f"{len(copies)} alike: {', '.join(copies)}" if copies else frame.block.path
        frames.append((_frame_name(frame.block, frame.label), f"×{len(copies)}" if copies else "", tip))
    kinds = Counter(kind_of(node) for node in graph.nodes if node.op != "bias")
    return Texts(title=title, totals=" · ".join(totals), labels=labels, frames=frames, kinds=sorted(kinds.items()))
