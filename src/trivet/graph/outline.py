"""What a picture of a graph shows: rows, blocks of them by module, and repeated blocks once.

- A weight and its bias are one cell.
- A block is a module worth a frame: one in which paths join, or one beside such a module; neither a leaf, nor a wrapper
  around nearly everything, nor deeper than two blocks. A module whose work is interleaved with another's gets no frame.
- With `collapse`, blocks in a row that are alike become one with a count: first those that are equal, shapes included,
  then, from six on, those that differ in numbers of channels only.

Every node is in exactly one cell. Not covered: repetitions that are no modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trivet.graph.graph import Graph
from trivet.graph.layout import topological

DEEPEST = 2
"""Frames inside each other, at most."""
WRAPPER = 0.75
"""A module with more than this share of its parent's cells only repeats its parent; it gets no frame."""
ALIKE_RUN = 6
"""Blocks in a row, from which on they are drawn once though their numbers of channels differ."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A node with its bias, or the same node of every copy of a block that is drawn once."""

    index: int
    """Name of the cell: index of its first node."""
    copies: tuple[tuple[int, ...], ...]
    """Nodes of each copy."""


@dataclass(slots=True)
class Block:
    """A module with a frame around it; the whole graph is one too."""

    path: str
    items: list[Cell | Block]
    """In the order of their first nodes."""
    copies: list[str] = field(default_factory=list)
    """Paths of all modules that this one stands for, itself first, if it stands for several."""

    def cells(self) -> Iterator[Cell]:
        """Cells in it and in the blocks in it."""
        for item in self.items:
            if isinstance(item, Cell):
                yield item
            else:
                yield from item.cells()

    @property
    def index(self) -> int:
        """Index of its first node."""
        return min(cell.index for cell in self.cells())


@dataclass(slots=True)
class Outline:
    """A graph as it is drawn."""

    root: Block
    links: set[tuple[int, int]]
    """Pairs of cell names."""


def outline(graph: Graph, *, collapse: bool, keep: int = DEEPEST, no_frame: frozenset[str] = frozenset()) -> Outline:
    """Group the nodes of a graph for a picture.

    Args:
        graph: What to draw.
        collapse: Draw repeated blocks once.
        keep: Frames inside each other, at most.
        no_frame: Modules that get no frame.

    Examples:
        >>> from trivet.graph.graph import Node
        >>> nodes = (Node(name="a", op="conv", parameters=("w",)), Node(name="b", op="bias"), Node(name="c", op="bn"))
        >>> found = outline(Graph(nodes=nodes, edges=((0, 1), (1, 2))), collapse=False)
        >>> [cell.copies for cell in found.root.cells()], found.links
        ([((0, 1),), ((2,),)], {(0, 2)})
    """
    cells, owner = _fold(graph)
    links = {(owner[a], owner[b]) for a, b in graph.edges if owner[a] != owner[b]}
    modules = _Modules(graph, cells, links, keep, no_frame)
    root = Block("", modules.items("", keep))
    made = Outline(root, links)
    _settle(root, links)
    if collapse:
        _Collapse(graph, made)
    return made


def _fold(graph: Graph) -> tuple[list[Cell], list[int]]:
    """Cells, and for each node the name of its cell: a bias goes with the weight that only feeds it."""
    before: list[list[int]] = [[] for _ in graph.nodes]
    fed = [0] * len(graph.nodes)
    for a, b in graph.edges:
        before[b].append(a)
        fed[a] += 1
    owner = list(range(len(graph.nodes)))
    members: dict[int, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.op == "bias" and len(before[index]) == 1:
            weight = before[index][0]
            if fed[weight] == 1 and graph.nodes[weight].op != "bias" and graph.nodes[weight].parameters:
                owner[index] = weight
        members.setdefault(owner[index], []).append(index)
    return [Cell(name, (tuple(nodes),)) for name, nodes in members.items()], owner


class _Modules:
    """The tree of module paths over the cells, and which of them are blocks."""

    def __init__(
        self,
        graph: Graph,
        cells: Sequence[Cell],
        links: set[tuple[int, int]],
        deepest: int,
        no_frame: frozenset[str],
    ) -> None:
        self.own: dict[str, list[Cell]] = {"": []}
        self.children: dict[str, list[str]] = {"": []}
        self.size: dict[str, int] = {}
        self.joins: dict[str, bool] = {}
        self.deepest, self.no_frame = deepest, no_frame
        met: dict[int, int] = {}
        for _, b in links:
            met[b] = met.get(b, 0) + 1
        for cell in cells:
            path = graph.nodes[cell.index].module
            self._add(path)
            self.own[path].append(cell)
            for part in _ancestors(path):
                self.size[part] = self.size.get(part, 0) + 1
                self.joins[part] = self.joins.get(part, False) or met.get(cell.index, 0) > 1

    def _add(self, path: str) -> None:
        for part in _ancestors(path):
            if part not in self.own:
                self.own[part] = []
                self.children[part] = []
                self.children[part.rpartition(".")[0]].append(part)

    def items(self, path: str, depth: int) -> list[Cell | Block]:
        """Cells and blocks of a module."""
        found: list[Cell | Block] = [*self.own[path]]
        for child in self.children[path]:
            if depth > 0 and self._is_worth_it(child, path):
                found.append(Block(child, self.items(child, depth - 1)))
                continue
            inside = depth < self.deepest and path
            only = sum(self._is_worth_it(grandchild, child) for grandchild in self.children[child]) == 1
            skip = inside and only and self.size[child] > WRAPPER * self.size[path]
            found += self.items(child, depth - 1 if skip else depth)
        return sorted(found, key=lambda item: item.index)

    def _is_worth_it(self, child: str, path: str) -> bool:
        """Whether a module gets a frame in the module around it."""
        return (
            child not in self.no_frame
            and 3 <= self.size[child] <= WRAPPER * self.size[path]
            and any(self.joins[beside] for beside in self.children[path])
        )


def _ancestors(path: str) -> list[str]:
    """The path and every path above it, the outermost first.

    Examples:
        >>> _ancestors("a.b")
        ['', 'a', 'a.b']
    """
    parts = path.split(".") if path else []
    return ["", *(".".join(parts[: depth + 1]) for depth in range(len(parts)))]


def level_links(items: Sequence[Cell | Block], links: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Links between the items of one block, as pairs of positions among them."""
    owner: dict[int, int] = {}
    for position, item in enumerate(items):
        for cell in [item] if isinstance(item, Cell) else item.cells():
            owner[cell.index] = position
    pairs = {(owner[a], owner[b]) for a, b in links if a in owner and b in owner}
    return {(a, b) for a, b in pairs if a != b}


def _settle(block: Block, links: set[tuple[int, int]]) -> None:
    """Open the blocks in a block that lie on cycles, because other work goes on between theirs: one if that helps."""
    while stuck := _on_cycles(block.items, links):
        framed = [item for item in stuck if isinstance(item, Block)]
        opened = (
            _opened(block.items, [item]) for item in sorted(framed, key=lambda item: sum(1 for _ in item.cells()))
        )
        helped = (items for items in opened if not _on_cycles(items, links))
        block.items = next(helped, None) or _opened(block.items, framed)
    for item in block.items:
        if isinstance(item, Block):
            _settle(item, links)


def _on_cycles(items: Sequence[Cell | Block], links: set[tuple[int, int]]) -> list[Cell | Block]:
    """Items that lie on a cycle, or between two."""
    pairs = sorted(level_links(items, links))
    done = set(topological(len(items), pairs)) | set(topological(len(items), [(b, a) for a, b in pairs]))
    return [item for position, item in enumerate(items) if position not in done]


def _opened(items: Sequence[Cell | Block], blocks: Sequence[Block]) -> list[Cell | Block]:
    """Items with what is in some blocks instead of these."""
    found: list[Cell | Block] = []
    for item in items:
        found += item.items if isinstance(item, Block) and any(item is other for other in blocks) else [item]
    return sorted(found, key=lambda item: item.index)


class _Collapse:
    """Draw blocks in a row that are alike once."""

    def __init__(self, graph: Graph, made: Outline) -> None:
        self.graph = graph
        self.all_links = set(made.links)
        self.links = made.links
        self.runs: dict[int, list[tuple[int, int]]] = {}
        self.stands_for: dict[int, int] = {}
        self.count = 0
        self._block(made.root)
        made.links = self.links

    def _block(self, block: Block) -> None:
        for item in block.items:
            if isinstance(item, Block):
                self._block(item)
        for exact in (True, False):
            start = 0
            while start < len(block.items):
                stop = self._run(block, start, exact)
                if stop - start >= (2 if exact else ALIKE_RUN):
                    self._merge(block, start, stop)
                start += 1
        for position, item in enumerate(block.items):
            if isinstance(item, Block) and not item.copies and len(item.items) == 1:
                block.items[position] = item.items[0]  # a frame around one frame with a count says nothing

    def _run(self, block: Block, start: int, exact: bool) -> int:
        """End of the run of blocks that begins at a position and could be drawn as one."""
        first = block.items[start]
        if not isinstance(first, Block) or first.copies:
            return start
        wanted, stop = self._signature(first, exact), start + 1
        links = level_links(block.items, self.links)
        while stop < len(block.items):
            item = block.items[stop]
            if not isinstance(item, Block) or item.copies or (stop - 1, stop) not in links:
                break
            if self._signature(item, exact) != wanted:
                break
            stop += 1
        pairs = {(start if start <= a < stop else a, start if start <= b < stop else b) for a, b in links}
        pairs = {(a, b) for a, b in pairs if a != b}
        acyclic = len(topological(len(block.items), sorted(pairs))) == len(block.items)
        return stop if acyclic else start

    def _signature(self, block: Block, exact: bool) -> tuple[object, ...]:
        """What two blocks must have in common."""
        cells = list(block.cells())
        position = {cell.index: index for index, cell in enumerate(cells)}
        before: dict[int, list[int]] = {cell.index: [] for cell in cells}
        outside = set[int]()
        for a, b in self.links:
            if b in position:
                if a in position:
                    before[b].append(position[a])
                else:
                    outside.add(b)
        found: list[object] = [tuple(len(item.copies) for item in block.items)]
        for cell in cells:
            nodes = [self.graph.nodes[index] for index in cell.copies[0]]
            looks = tuple(
                (node.op, node.kernel, node.shape if exact else (len(node.shape), node.shape[2:]), node.calls)
                for node in nodes
            )
            size = nodes[-1].output if exact else ()
            found.append((looks, size, tuple(sorted(before[cell.index])), cell.index in outside, len(cell.copies)))
        return tuple(found)

    def _merge(self, block: Block, start: int, stop: int) -> None:
        """Put blocks together; links between them go, links from outside go to the first."""
        members = [item for item in block.items[start:stop] if isinstance(item, Block)]
        columns = [list(member.cells()) for member in members]
        joined: dict[int, Cell] = {}
        for same in zip(*columns, strict=True):
            copies = tuple(nodes for cell in same for nodes in cell.copies)
            joined[same[0].index] = Cell(same[0].index, copies)
            for number, cell in enumerate(same):
                self.runs.setdefault(cell.index, []).append((self.count, number))
                if number:
                    self.stands_for[cell.index] = same[0].index
        self.count += 1
        _replace(members[0], joined)
        members[0].copies = [member.path for member in members]
        block.items[start:stop] = [members[0]]
        self.links = {(self._first(a), self._first(b)) for a, b in self.all_links if not self._apart(a, b)}

    def _first(self, cell: int) -> int:
        while cell in self.stands_for:
            cell = self.stands_for[cell]
        return cell

    def _places(self, cell: int) -> Iterator[tuple[int, int]]:
        while True:
            yield from self.runs.get(cell, ())
            if cell not in self.stands_for:
                return
            cell = self.stands_for[cell]

    def _apart(self, a: int, b: int) -> bool:
        """Whether two cells are in different copies of what is drawn once."""
        places: dict[int, int] = {}
        for run, number in self._places(a):
            places.setdefault(run, number)
        other: dict[int, int] = {}
        for run, number in self._places(b):
            other.setdefault(run, number)
        return any(places[run] != number for run, number in other.items() if run in places)


def _replace(block: Block, joined: dict[int, Cell]) -> None:
    for position, item in enumerate(block.items):
        if isinstance(item, Cell):
            block.items[position] = joined[item.index]
        else:
            _replace(item, joined)
