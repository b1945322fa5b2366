"""Marks of a picture with their places, and how the layers of one block are put on paper: in one column or several.

All in pixels, y downwards. Not covered: what the marks look like (`svg`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trivet.graph.layout import Arrangement, Step
from trivet.graph.outline import Block, Cell

HEADER = 20.0
"""Room for a frame's label."""
ASPECT = 1.35
"""Width over height that the columns aim at."""
ONE_COLUMN = 760.0
"""A picture up to this height is not cut."""
MOST_COLUMNS = 16
WORTH = 0.02
"""How much nearer to that a further column must bring the logarithm of width over height."""
GUTTER, TRACK = 26.0, 7.0
"""Space between columns, and what each wire in it adds."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """A cell as a rectangle, or a circle when it is round."""

    cell: Cell
    x: float
    y: float
    width: float
    height: float
    is_round: bool = False
    column: float = 0.0
    """Width of the last column of its stack, in pixels."""
    above: Cell | None = None
    """The cell above it in its stack."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A block."""

    block: Block
    x: float
    y: float
    width: float
    height: float
    label: float
    """Room for its label, in pixels from its left border."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A piece of wire."""

    points: tuple[Point, ...]
    is_smooth: bool = True
    """Points beside each other are joined by a curve that starts and ends vertically; else by a line."""


@dataclass(slots=True)
class Picture:
    """Everything to draw, and its extent."""

    rows: list[Row] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    heads: list[Point] = field(default_factory=list)
    """Tips of arrows; all point downwards."""
    left: float = 0.0
    right: float = 0.0
    height: float = 0.0
    enter: dict[int, float] = field(default_factory=dict)
    """Cell outside that feeds it → where that wire enters at the top."""
    leave: dict[int, float] = field(default_factory=dict)
    """Cell in it that feeds something outside → where its wire leaves at the bottom."""

    def put(self, other: Picture, x: float, y: float) -> None:
        """Add another picture, moved."""
        self.rows += [replace(row, x=row.x + x, y=row.y + y) for row in other.rows]
        self.frames += [replace(frame, x=frame.x + x, y=frame.y + y) for frame in other.frames]
        self.wires += [replace(wire, points=tuple((a + x, b + y) for a, b in wire.points)) for wire in other.wires]
        self.heads += [(a + x, b + y) for a, b in other.heads]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A block laid out in layers."""

    pieces: tuple[Picture, ...]
    """What each part looks like; ports have no picture."""
    arrangement: Arrangement
    """Of the parts, then the entries, then the exits."""
    entries: Sequence[Sequence[int]]
    """For each entry the cells outside that come in there."""
    exits: Sequence[int]
    """For each exit the cell whose output leaves there."""

    @property
    def heights(self) -> list[float]:
        """Height of each layer."""
        count = len(self.pieces)
        layers = self.arrangement.layers
        return [max((self.pieces[v].height for v in layer if v < count), default=0.0) for layer in layers]

    @property
    def gaps(self) -> list[float]:
        """Height of the gap below each layer: more where wires have a long way to go sideways."""
        found = [0.0] * len(self.arrangement.layers)
        for step in self.arrangement.steps:
            way = abs(step.start - step.stop)
            found[step.layer] = max(found[step.layer], 18.0 + min(22.0, 0.08 * way))
        if self.entries and found:
            found[0] = max(found[0], HEADER + 6)
        return found

    @property
    def nets(self) -> list[int]:
        """How many outputs cross the gap below each layer."""
        layers = range(len(self.arrangement.layers))
        return [len({step.source for step in self.arrangement.steps if step.layer == layer}) for layer in layers]

    def span(self, first: int, stop: int) -> tuple[float, float]:
        """Left and right end of some layers."""
        found = self.arrangement
        lefts, rights = [0.0 if first == 0 else math.inf], [0.0 if first == 0 else -math.inf]
        for layer in found.layers[first:stop]:
            for v in layer:
                piece = self.pieces[v] if v < len(self.pieces) else Picture()
                lefts.append(found.x[v] + piece.left)
                rights.append(found.x[v] + piece.right)
        for lane in found.lanes:
            if first <= lane.layer < stop:
                lefts.append(lane.x)
                rights.append(lane.x)
        return min(lefts), max(rights)


def page_height(sheet: Sheet) -> float:
    """Height of a page of good proportions that has room for all layers."""
    spans = [sheet.span(layer, layer + 1) for layer in range(len(sheet.heights))]
    sizes = zip(sheet.heights, sheet.gaps, spans, strict=True)
    area = sum((height + gap) * (right - left) for height, gap, (left, right) in sizes)
    return max(ONE_COLUMN, math.sqrt(area / ASPECT))


def cut(sheet: Sheet) -> list[int]:
    """First layer of each column, so that the picture has about the proportions of a page."""
    heights, gaps, nets = sheet.heights, sheet.gaps, sheet.nets
    if sum(heights) + sum(gaps) <= ONE_COLUMN:
        return [0]
    found: list[tuple[float, list[int]]] = []
    for count in range(1, min(MOST_COLUMNS, len(heights)) + 1):
        starts = _balanced(heights, gaps, nets, count)
        stops = [*starts[1:], len(heights)]
        tallest = max(sum(heights[a:b]) + sum(gaps[a:b]) for a, b in zip(starts, stops, strict=True))
        spans = [sheet.span(a, b) for a, b in zip(starts, stops, strict=True)]
        width = sum(right - left for left, right in spans) + GUTTER * (count - 1)
        found.append((round(abs(math.log(width / tallest / ASPECT)) + WORTH * count, 6), starts))
    return min(found)[1]


def _balanced(heights: Sequence[float], gaps: Sequence[float], nets: Sequence[int], count: int) -> list[int]:
    """First layer of each of `count` columns, of heights as even as can be, cut where few wires cross."""
    tops = [0.0]
    for height, gap in zip(heights, gaps, strict=True):
        tops.append(tops[-1] + height + gap)
    size, mean = len(heights), tops[-1] / count
    cost = [((tops[j] / mean) ** 2 if j else math.inf) for j in range(size + 1)]
    came: list[list[int]] = []
    for _ in range(count - 1):
        now, back = [math.inf] * (size + 1), [0] * (size + 1)
        for j in range(2, size + 1):
            for i in range(1, j):
                found = cost[i] + ((tops[j] - tops[i]) / mean) ** 2 + 0.05 * (nets[i - 1] - 1) ** 2
                if found < now[j]:
                    now[j], back[j] = found, i
        cost = now
        came.append(back)
    starts: list[int] = []
    j = size
    for back in reversed(came):
        j = back[j]
        starts.append(j)
    return [0, *reversed(starts)]


def paint(sheet: Sheet, starts: Sequence[int]) -> Picture:
    """Give everything its place; the spine of the first column is at x = 0.

    Args:
        sheet: What to place.
        starts: First layer of each column.
    """
    return _Painter(sheet, starts).picture


class _Painter:
    def __init__(self, sheet: Sheet, starts: Sequence[int]) -> None:
        self.sheet, self.found = sheet, sheet.arrangement
        self.heights, gaps = sheet.heights, sheet.gaps
        count = len(self.heights)
        stops = [*starts[1:], count]
        self.top, self.shift = [0.0] * count, [0.0] * count
        self.picture = Picture()
        tracks = [self._nets(stop - 1) for stop in stops[:-1]] + [[]]
        head = max((6 + TRACK * (len(nets) + 1) for nets in tracks if nets), default=0.0)
        cursor = 0.0
        self.lowest: dict[int, float] = {}
        self.gutter: dict[int, float] = {}
        for number, (first, stop) in enumerate(zip(starts, stops, strict=True)):
            left, right = sheet.span(first, stop)
            shift = 0.0 if number == 0 else cursor - left
            y = head if len(starts) > 1 else 0.0
            for layer in range(first, stop):
                self.top[layer], self.shift[layer] = y, shift
                y += self.heights[layer] + (gaps[layer] if layer < stop - 1 else 0.0)
            self.lowest[stop - 1] = y
            self.gutter[stop - 1] = right + shift
            cursor = right + shift + GUTTER + TRACK * len(tracks[number])
            self.picture.left = min(self.picture.left, left + shift)
            self.picture.right = max(self.picture.right, right + shift)
            self.picture.height = max(
                self.picture.height, y + (6 + TRACK * (len(tracks[number]) + 1)) * bool(tracks[number])
            )
        self.cuts = {stop - 1: nets for stop, nets in zip(stops[:-1], tracks, strict=False)}
        self._parts()
        self._wires()

    def _nets(self, layer: int) -> list[tuple[int, float]]:
        """Outputs that cross the gap below a layer, from left to right."""
        steps = [step for step in self.found.steps if step.layer == layer]
        where = {step.source: step.start for step in steps}
        return sorted(where, key=lambda net: (where[net], net))

    def _place(self, v: int) -> tuple[float, float, float]:
        """Axis, top and bottom of a part."""
        layer = self.found.depth[v]
        height = self.sheet.pieces[v].height if v < len(self.sheet.pieces) else 0.0
        y = self.top[layer] + (self.heights[layer] - height) / 2
        return self.found.x[v] + self.shift[layer], y, y + height

    def _parts(self) -> None:
        for v, piece in enumerate(self.sheet.pieces):
            x, y, _ = self._place(v)
            self.picture.put(piece, x, y)
        first = len(self.sheet.pieces)
        for index, sources in enumerate(self.sheet.entries, first):
            self.picture.enter.update(dict.fromkeys(sources, self._place(index)[0]))
        for index, cell in enumerate(self.sheet.exits, first + len(self.sheet.entries)):
            self.picture.leave[cell] = self._place(index)[0]

    def _wires(self) -> None:
        for lane in self.found.lanes:
            x, y = lane.x + self.shift[lane.layer], self.top[lane.layer]
            if self.heights[lane.layer]:
                self.picture.wires.append(Wire(((x, y), (x, y + self.heights[lane.layer]))))
        heads: set[Point] = set()
        for step in self.found.steps:
            above, below = self._ends(step)
            if step.part >= 0 and step.part < len(self.sheet.pieces) and not self.sheet.pieces[step.part].frames:
                heads.add(below[-1])
            if step.layer in self.cuts:
                self._around(step, above, below)
            else:
                self.picture.wires.append(Wire(_tidy((*above, *below))))
        self.picture.heads += sorted(heads)

    def _ends(self, step: Step) -> tuple[list[Point], list[Point]]:
        """Points of a step above and below its gap."""
        layer = step.layer
        start = step.start + self.shift[layer]
        bottom = self.top[layer] + self.heights[layer]
        above = [(start, bottom)]
        part = step.source[0]
        if self.found.depth[part] == layer:
            above.insert(0, (start, self._place(part)[2]))
        stop = step.stop + self.shift[layer + 1]
        below = [(stop, self.top[layer + 1])]
        if step.part >= 0:
            below.append((stop, self._place(step.part)[1]))
        return above, below

    def _around(self, step: Step, above: list[Point], below: list[Point]) -> None:
        """A wire from the bottom of a column through the gutter to the top of the next."""
        nets = self.cuts[step.layer]
        rank = nets.index(step.source)
        x = self.gutter[step.layer] + GUTTER / 2 + TRACK * (len(nets) - 1 - rank)
        low = self.lowest[step.layer] + 6 + TRACK * (len(nets) - rank)
        high = self.top[step.layer + 1] - 6 - TRACK * (len(nets) - rank)
        route = [*above, (above[-1][0], low), (x, low), (x, high), (below[0][0], high), *below]
        self.picture.wires.append(Wire(_tidy(tuple(route)), is_smooth=False))


def _tidy(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Points without repeated ones."""
    return tuple(point for index, point in enumerate(points) if not index or point != points[index - 1])
