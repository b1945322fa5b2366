"""Cells: refused nonsense, and the identity that keeps splits apart."""

from __future__ import annotations

import random

import pytest

from trivet.ghn.deepnets.draws import Draws
from trivet.ghn.deepnets.genotype import DARTS, KERNELS, OPERATIONS, VIT, Genotype, Operation
from trivet.ghn.deepnets.sample import sample_genotype

Cell = tuple[tuple[Operation, ...], tuple[int, ...]]


def renumbered(cell: Cell, rng: random.Random) -> Cell:
    """The same cell with its steps in another order that is possible, and the two operations of steps swapped."""
    operations, concat = cell
    pairs = [operations[at : at + 2] for at in range(0, len(operations), 2)]
    order: list[int] = []
    while len(order) < len(pairs):
        ready = [
            step
            for step, pair in enumerate(pairs)
            if step not in order and all(state < 2 or state - 2 in order for _, state in pair)
        ]
        order.append(rng.choice(ready))
    new = {0: 0, 1: 1, **{step + 2: place + 2 for place, step in enumerate(order)}}
    found: list[Operation] = []
    for step in order:
        pair = [(name, new[state]) for name, state in pairs[step]]
        found += rng.sample(pair, 2)
    return tuple(found), tuple(sorted(new[state] for state in concat))


def test_the_operations_are_the_published_ones() -> None:
    assert len(OPERATIONS) == 15
    assert OPERATIONS[0] == "none"
    assert OPERATIONS[:4] == ("none", "max_pool_3x3", "avg_pool_3x3", "skip_connect")
    assert {name: kernel for name, kernel in KERNELS.items() if kernel == 7} == {"conv_7x1_1x7": 7, "conv_7x7": 7}


@pytest.mark.parametrize("seed", range(40))
def test_identity_survives_renumbering_and_swapping(seed: int) -> None:
    rng = random.Random(seed)
    genotype = sample_genotype(Draws(seed), 2 + seed % 5)
    normal, normal_concat = renumbered(genotype.cell(False), rng)
    reduce, reduce_concat = renumbered(genotype.cell(True), rng)
    other = Genotype(normal=normal, reduce=reduce, normal_concat=normal_concat, reduce_concat=reduce_concat)
    assert other.identity == genotype.identity


def test_identity_ignores_what_reaches_no_output() -> None:
    def genotype(dead: str) -> Genotype:
        cell: tuple[Operation, ...] = ((dead, 0), ("skip_connect", 1), ("conv_3x3", 0), ("msa", 1))
        return Genotype(normal=cell, reduce=cell, normal_concat=(3,), reduce_concat=(3,))

    assert genotype("conv_1x1").identity == genotype("cse").identity


def test_identity_sees_every_operation_and_state() -> None:
    found: set[int] = set()
    for name in OPERATIONS[1:]:
        for state in (0, 1, 2):
            cell = (("conv_1x1", 0), ("conv_1x1", 1), (name, state), ("conv_3x3", 1))
            found.add(Genotype(normal=cell, reduce=cell, normal_concat=(2, 3), reduce_concat=(2, 3)).identity)
            found.add(Genotype(normal=cell, reduce=cell, normal_concat=(3,), reduce_concat=(3,)).identity)
    # Without state 2 in the concatenation and in the sum it is not computed, and the two are still different.
    assert len(found) == 14 * 3 * 2
    swapped = Genotype(normal=DARTS.reduce, reduce=DARTS.normal, normal_concat=(2, 3, 4, 5), reduce_concat=(2, 3, 4, 5))
    assert swapped.identity != DARTS.identity


def test_identity_is_the_same_for_ever() -> None:
    assert (DARTS.identity, VIT.identity) == (10_009_182_905_505_650_821, 14_163_134_521_511_026_663)


@pytest.mark.parametrize(
    ("normal", "concat", "words"),
    [
        ((), (2,), "two for every step"),
        ((("msa", 0),), (2,), "two for every step"),
        ((("msa", 0), ("msa", 2)), (2,), "must be one of the earlier states, 0 to 1"),
        ((("msa", -1), ("msa", 1)), (2,), "must be one of the earlier states"),
        ((("msa", 0), ("mas", 1)), (2,), "did you mean 'msa'"),
        ((("msa", 0), ("msa", 1)), (), "must ascend and lie in 2 to 2"),
        ((("msa", 0), ("msa", 1)), (1, 2), "must ascend and lie in 2 to 2"),
        ((("msa", 0), ("msa", 1)), (3,), "must ascend and lie in 2 to 2"),
    ],
)
def test_cells_that_make_no_sense(normal: tuple[Operation, ...], concat: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Genotype(normal=normal, reduce=normal, normal_concat=concat, reduce_concat=concat)


def test_cells_of_different_length() -> None:
    with pytest.raises(ValueError, match="8 operations and `reduce` 2"):
        Genotype(normal=DARTS.normal, reduce=VIT.reduce, normal_concat=(2,), reduce_concat=(2,))
