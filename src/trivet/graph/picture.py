"""From an outline to geometry: every row, frame and wire with its place, in pixels, y downwards.

Each block is laid out by itself (`layout.arrange`), from the inside out, and then is one part of the block around it;
wires cross its border at its top and bottom only. Cells that follow each other without a branch are stacked without
wires. A long picture is cut into columns between two layers of its outermost block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from trivet.graph.layout import Link, Part, arrange
from trivet.graph.outline import Block, Cell, Outline
from trivet.graph.sheet import HEADER, Frame, Picture, Row, Sheet, cut, page_height, paint

ROW, ROW_GAP = 20.0, 2.0
"""Height of a row, and space between two of a stack."""
RADIUS = 10.0
"""Of the circle of a sum or a product."""
PADDING = 12.0
"""Pixels between a frame and what is in it."""
LONGEST_STACK = 16
"""Rows in a stack, so that a long chain can be cut into columns."""
LONGEST_LABEL, LABEL_SPACE = 240.0, 15.0
"""A frame is widened to the left for a label up to this wide; pixels around it, up to the wire that enters."""
TOO_TALL = 1.25
"""Height of a frame, in heights of the page, from which on it is better left out."""
FEW_WIRES = 3
"""A tall frame is left out only if not many more wires than this would go from column to column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the geometry must know of the texts."""

    row: Callable[[Cell, Cell | None], tuple[float, float]]
    """Width of the row of a cell below another cell of its stack, if any: up to the last column, and that column."""
    label: Callable[[Block], float]
    """Least width of the label of a frame."""
    is_round: Callable[[Cell], bool]
    """Whether a cell is drawn as a circle where it joins paths."""
    alone: Callable[[Cell], bool]
    """Whether a cell never begins a stack with others."""


def draw_outline(made: Outline, sizes: Sizes) -> tuple[Picture, list[str]]:
    """Geometry of a picture, its top left corner at (left, 0).

    Returns:
        The picture, and the paths of frames that are taller than a column; without them it could be cut better.
    """
    return _Drawing(made, sizes).root()


class _Drawing:
    def __init__(self, made: Outline, sizes: Sizes) -> None:
        self.made, self.sizes = made, sizes
        self.can_be_cut: set[str] = set()
        self.before: dict[int, set[int]] = {cell.index: set() for cell in made.root.cells()}
        self.after: dict[int, set[int]] = {cell.index: set() for cell in made.root.cells()}
        for a, b in made.links:
            self.before[b].add(a)
            self.after[a].add(b)

    def root(self) -> tuple[Picture, list[str]]:
        """The whole picture in columns."""
        sheet, items = self.sheet(self.made.root)
        most = TOO_TALL * page_height(sheet)
        tall = [
            item.path
            for item, piece in zip(items, sheet.pieces, strict=True)
            if isinstance(item, Block) and piece.height > most and item.path in self.can_be_cut and not item.copies
        ]
        return paint(sheet, cut(sheet)), tall

    def block(self, block: Block) -> Picture:
        """A block with its frame."""
        sheet, _ = self.sheet(block)
        if len(block.items) > 1 and sorted(sheet.nets)[len(sheet.nets) // 2] <= FEW_WIRES:
            self.can_be_cut.add(block.path)
        found, inner = Picture(), paint(sheet, [0])
        top = 0.0 if sheet.entries else HEADER + 6
        found.put(inner, 0.0, top)
        found.enter, found.leave = inner.enter, inner.leave
        found.height = top + inner.height + (0.0 if sheet.exits else PADDING)
        left = min(inner.left - PADDING, -min(self.sizes.label(block), LONGEST_LABEL) - LABEL_SPACE)
        right = max(inner.right, 40.0) + PADDING
        found.frames.insert(0, Frame(block, left, 0.0, right - left, found.height, -left - LABEL_SPACE))
        found.left, found.right = left, right
        return found

    def sheet(self, block: Block) -> tuple[Sheet, list[tuple[Cell, ...] | Block]]:
        """A block laid out, and its parts."""
        level = _Level(self, block)
        return level.sheet(), level.items

    def stacks(self, block: Block) -> list[tuple[Cell, ...] | Block]:
        """Items of a block, with cells that follow each other put together."""
        here = {item.index for item in block.items if isinstance(item, Cell)}
        found: list[list[Cell] | Block] = []
        place: dict[int, list[Cell]] = {}
        for item in block.items:
            if isinstance(item, Block):
                found.append(item)
                continue
            before = self.before[item.index]
            above = next(iter(before)) if len(before) == 1 else -1
            stack = place.get(above) if above in here else None
            joins = stack is not None and stack[-1].index == above and len(self.after[above]) == 1
            if stack is None or not joins or self.apart(stack[-1]) or len(stack) == LONGEST_STACK:
                stack = []
                found.append(stack)
            stack.append(item)
            place[item.index] = stack
        return [item if isinstance(item, Block) else tuple(item) for item in found]

    def apart(self, cell: Cell) -> bool:
        """Whether nothing is stacked below a cell."""
        return self.round(cell) or self.sizes.alone(cell)

    def round(self, cell: Cell) -> bool:
        """Whether a cell is drawn as a circle."""
        return self.sizes.is_round(cell) and len(self.before[cell.index]) > 1

    def stack(self, cells: tuple[Cell, ...]) -> Picture:
        """Rows on each other."""
        if self.round(cells[0]):
            row = Row(cells[0], -RADIUS, 0.0, 2 * RADIUS, 2 * RADIUS, is_round=True)
            return Picture(rows=[row], left=-RADIUS, right=RADIUS, height=2 * RADIUS)
        above = [None, *cells]
        wanted = [self.sizes.row(cell, over) for cell, over in zip(cells, above, strict=False)]
        column = max(last for _, last in wanted)
        width = math.ceil((max(most for most, _ in wanted) + column) / 10) * 10.0
        rows = [
            Row(cell, -width / 2, index * (ROW + ROW_GAP), width, ROW, column=column, above=above[index])
            for index, cell in enumerate(cells)
        ]
        return Picture(rows=rows, left=-width / 2, right=width / 2, height=len(cells) * (ROW + ROW_GAP) - ROW_GAP)


class _Level:
    """The parts of one block and the links between them."""

    def __init__(self, drawing: _Drawing, block: Block) -> None:
        self.links = drawing.made.links
        self.items = drawing.stacks(block)
        self.pieces = [drawing.block(item) if isinstance(item, Block) else drawing.stack(item) for item in self.items]
        self.owner: dict[int, int] = {}
        for position, item in enumerate(self.items):
            for cell in item.cells() if isinstance(item, Block) else item:
                self.owner[cell.index] = position
        feeds: dict[int, set[int]] = {}
        exits: set[int] = set()
        for a, b in self.links:
            if b in self.owner and a not in self.owner:
                feeds.setdefault(a, set()).add(b)
            elif a in self.owner and b not in self.owner:
                exits.add(a)
        groups: dict[tuple[int, ...], list[int]] = {}
        for source in sorted(feeds):
            groups.setdefault(tuple(sorted(feeds[source])), []).append(source)
        self.entries = list(groups.values())
        """Outside cells that feed the same cells here share a port."""
        self.exits = sorted(exits)
        """Cells here that feed something outside; each has a port."""

    def sheet(self) -> Sheet:
        """Lay them out."""
        parts = [
            Part(left=-piece.left, right=piece.right, height=piece.height, weight=float(len(piece.rows)))
            for piece in self.pieces
        ]
        port = Part(left=0.0, right=0.0, height=0.0, weight=0.01)
        parts += [replace(port, end=-1)] * len(self.entries) + [replace(port, end=1)] * len(self.exits)
        return Sheet(tuple(self.pieces), arrange(parts, self._links()), self.entries, self.exits)

    def _links(self) -> list[Link]:
        found: list[Link] = []
        first = len(self.items)
        entry = {source: first + index for index, group in enumerate(self.entries) for source in group}
        for a, b in self.links:
            if b not in self.owner:
                continue
            target = self.owner[b]
            enter = self.pieces[target].enter.get(a, 0.0)
            if a not in self.owner:
                found.append(Link(entry[a], target, 0.0, enter))
            elif self.owner[a] != target:
                found.append(Link(self.owner[a], target, self.pieces[self.owner[a]].leave.get(a, 0.0), enter))
        for index, cell in enumerate(self.exits, first + len(self.entries)):
            source = self.owner[cell]
            found.append(Link(source, index, self.pieces[source].leave.get(cell, 0.0), 0.0))
        return found
