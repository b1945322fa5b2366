"""Drawing an architecture.

Number of cells, depth threshold, steps, the two cells and the rest of the network are drawn as the published generator
does, and drawn anew as a whole whenever one of its rules, or the split, refuses the draw. The generator draws the cells
through noise on every (edge, operation) pair and keeps the strongest. By symmetry that is: the two states of a step are
a random ordered pair of the earlier ones, and each operation is uniform; so they are drawn like this.

Refused: channel squeeze-and-excite without a convolution or more than one of it in a cell, more than one dense 5 × 5 or
7 × 7 convolution in a cell, nothing with parameters, an output that no path reaches, too many parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trivet.ghn.deepnets.architecture import CellArchitecture
from trivet.ghn.deepnets.genotype import OPERATIONS, WITHOUT_PARAMETERS, Genotype, Operation
from trivet.ghn.deepnets.splits import CLASSES, Split
from trivet.ghn.deepnets.tensors import reductions
from trivet.ghn.deepnets.wiring import wiring

if TYPE_CHECKING:
    from trivet.ghn.deepnets.draws import Draws

BASE_CHANNELS = 32
"""Channels at which the number of parameters is limited."""
LARGE_KERNELS = ("conv_5x5", "conv_7x7")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draw, and why it is refused.

    Examples:
        >>> from trivet.ghn.deepnets.draws import Draws
        >>> from trivet.ghn.deepnets.splits import SPLITS
        >>> next(candidates(Draws(1), SPLITS["test"])).refused
        'too many large kernels'
    """

    network: CellArchitecture | None
    """The network at 32 channels; None when refused."""
    refused: str = ""
    """The rule that refused it; empty when none did."""


def candidates(draws: Draws, split: Split) -> Iterator[Candidate]:
    """One draw after another, without end."""
    while True:
        yield _candidate(draws, split)


def sample(draws: Draws, split: Split) -> CellArchitecture:
    """The first draw that no rule refuses, at 32 channels.

    Args:
        draws: Where the choices come from.
        split: What to draw from.
    """
    return next(candidate.network for candidate in candidates(draws, split) if candidate.network is not None)


def _candidate(draws: Draws, split: Split) -> Candidate:
    num_cells = draws.integer(*split.num_cells)
    threshold = draws.integer(*split.deep_from)
    is_deep = num_cells > threshold
    num_steps = draws.integer(split.steps[0], split.deep_steps if is_deep else split.steps[1])
    genotype = sample_genotype(draws, num_steps)
    refused = _refused(genotype)
    if refused:
        return Candidate(None, refused)
    if genotype.identity % CLASSES not in split.classes:
        return Candidate(None, "genotype of another split")
    if wiring(genotype, reductions(num_cells)) is None:
        return Candidate(None, "disconnected")
    network = _network(draws, split, genotype, num_cells, is_deep)
    if any(network.num_parameters(image_size=size) > split.max_parameters for size in (32, 224)):
        return Candidate(None, "too many parameters")
    return Candidate(network)


def sample_genotype(draws: Draws, num_steps: int) -> Genotype:
    """A pair of cells.

    Half of the reduction cells only pool. With more than one step, operations may be `none`, and in half of the
    genotypes every state but the last is left out of the concatenation with probability one half.

    Args:
        draws: Where the choices come from.
        num_steps: Steps of a cell.
    """
    least = 0 if num_steps > 1 else 1  # 1 leaves out `none`
    only_pools = draws.flip()
    drops = draws.flip() and num_steps > 1
    normal = _cell(draws, num_steps, OPERATIONS[least:])
    reduce = _cell(draws, num_steps, WITHOUT_PARAMETERS[least:] if only_pools else OPERATIONS[least:])
    concat = tuple(state for state in range(2, num_steps + 2) if state == num_steps + 1 or not drops or draws.flip())
    return Genotype(normal=normal, reduce=reduce, normal_concat=concat, reduce_concat=concat)


def _cell(draws: Draws, num_steps: int, operations: tuple[str, ...]) -> tuple[Operation, ...]:
    chosen: list[Operation] = []
    for step in range(num_steps):
        chosen += [(draws.choice(operations), state) for state in draws.pair(step + 2)]
    return tuple(chosen)


def _refused(genotype: Genotype) -> str:
    """The rule that refuses a genotype; empty when none does."""
    cells = [[name for name, _ in cell] for cell in (genotype.normal, genotype.reduce)]
    both = cells[0] + cells[1]
    has_convolution = any("conv" in name for name in both)
    if "cse" in both and not has_convolution:
        return "squeeze-and-excite without convolution"
    if any(cell.count("cse") > 1 for cell in cells):
        return "too much squeeze-and-excite"
    if any(sum(name in LARGE_KERNELS for name in cell) > 1 for cell in cells):
        return "too many large kernels"
    if not has_convolution and "msa" not in both:
        return "nothing to learn"
    return ""


def _network(draws: Draws, split: Split, genotype: Genotype, num_cells: int, is_deep: bool) -> CellArchitecture:
    attends = genotype.has("msa")
    kernel = draws.choice((3, 5, 7))
    multiplier = draws.choice((1, 2))
    may_be_bare = genotype.num_steps == 1 and multiplier == 1
    is_bare = draws.flip(split.bare[attends]) and may_be_bare
    flattens = draws.flip(0.1) and not attends and not is_deep
    without = draws.flip()
    if split.norm == "some":
        shallow = num_cells <= split.num_cells[0] + 1 and genotype.num_steps <= split.deep_steps
        norm = "none" if without and shallow else "bn"
    else:
        norm = split.norm
    simple = draws.flip()
    pools = draws.flip() and simple
    return CellArchitecture(
        genotype=genotype,
        num_cells=num_cells,
        channels=BASE_CHANNELS,
        stem="patch" if attends else ("simple" if simple else "imagenet"),
        kernel=3 if attends else kernel,
        stem_pool=pools and not attends,
        norm=norm,
        preprocess=not is_bare,
        channel_multiplier=multiplier,
        fc_layers=draws.integer(1, 2),
        global_average=not flattens,
    )
