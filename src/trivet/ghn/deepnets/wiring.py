"""Which parts of a network of cells reach its output.

`none` makes states absent, dropping states from a concatenation leaves some unread, and either can cut off operations
or whole cells. This is worked out once, forwards (what is there?) and backwards (what is read?), and used by everyone:
by the sampler to refuse disconnected networks, by the counts, and by the network, which neither computes what nobody
reads nor what is absent. The published builder computes unread states too; the output is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trivet.ghn.deepnets.genotype import Genotype


@dataclass(frozen=True, slots=True)
class CellWiring:
    """What one cell computes.

    Examples:
        >>> from trivet.ghn.deepnets.genotype import VIT
        >>> wiring(VIT, (False, True))[1]
        CellWiring(inputs=(False, True), operations=(False, True), states=(True,))
    """

    inputs: tuple[bool, bool]
    """Whether the outputs of the cell before the previous one and of the previous one are read."""
    operations: tuple[bool, ...]
    """Whether each operation is computed."""
    states: tuple[bool, ...]
    """Whether each concatenated state is there; an absent one is zeros."""

    @property
    def runs(self) -> bool:
        """Whether the cell computes anything that is read."""
        return any(self.operations)


@lru_cache(maxsize=256)  # asked for by the sampler, the architecture and each of its counts in turn
def wiring(genotype: Genotype, reductions: tuple[bool, ...]) -> tuple[CellWiring, ...] | None:
    """Wire the cells of a network.

    Args:
        genotype: The two cells.
        reductions: For every cell of the network whether it is a reduction cell.

    Returns:
        One wiring a cell; None when the output would be absent, that is, when the network is disconnected.
    """
    there = [True, True]  # the stem's two outputs, then every cell's
    alive: list[list[bool]] = []
    for position, reduction in enumerate(reductions):
        states = _alive(genotype, reduction, there[position], there[position + 1])
        alive.append(states)
        there.append(any(states[state] for state in genotype.cell(reduction)[1]))
    if not there[-1]:
        return None
    read = [False] * (len(reductions) + 1) + [True]
    cells: list[CellWiring] = []
    for position in reversed(range(len(reductions))):
        cell = _read(genotype, reductions[position], alive[position], read[position + 2])
        read[position] |= cell.inputs[0]
        read[position + 1] |= cell.inputs[1]
        cells.append(cell)
    return tuple(reversed(cells))


def _alive(genotype: Genotype, reduction: bool, first: bool, second: bool) -> list[bool]:
    """For every state of a cell whether it is there."""
    operations, _ = genotype.cell(reduction)
    states = [first, second]
    for step in range(len(operations) // 2):
        pair = operations[2 * step : 2 * step + 2]
        states.append(any(name != "none" and states[state] for name, state in pair))
    return states


def _read(genotype: Genotype, reduction: bool, alive: Sequence[bool], is_read: bool) -> CellWiring:
    """The wiring of a cell of which `alive` states are there and whose output is read or not."""
    operations, concat = genotype.cell(reduction)
    wanted = {state for state in concat if is_read and alive[state]}
    computed = [False] * len(operations)
    for step in reversed(range(len(operations) // 2)):
        if step + 2 not in wanted:
            continue
        for position in (2 * step, 2 * step + 1):
            name, state = operations[position]
            if name != "none" and alive[state]:
                computed[position] = True
                wanted.add(state)
    return CellWiring(
        inputs=(0 in wanted, 1 in wanted),
        operations=tuple(computed),
        states=tuple(is_read and alive[state] for state in concat),
    )
