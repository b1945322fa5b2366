"""Cells in plain words: which operation joins which states.

A cell has two inputs, states 0 and 1, and a number of steps. Step i adds up two operations, each on one of the
earlier states, to state i + 2; the cell's output is the concatenation of chosen states (DARTS, Liu, Simonyan, Yang
2019, arXiv:1806.09055). A `Genotype` is two such cells, one that keeps the size of the image (normal) and one that
may halve it (reduce). The operations and their rules are those of DeepNets-1M (Knyazev et al. 2021, arXiv:2110.13100).

`none` is the absent operation. A state whose two operations are absent, or stand on absent states, is absent too.

Not covered: cells with more than two operations a step, and operations of one's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trivet.core.errors import unknown_name

KERNELS = {
    "none": 0,
    "max_pool_3x3": 3,
    "avg_pool_3x3": 3,
    "skip_connect": 0,
    "sep_conv_3x3": 3,
    "sep_conv_5x5": 5,
    "dil_conv_3x3": 3,
    "dil_conv_5x5": 5,
    "conv_1x1": 1,
    "conv_7x1_1x7": 7,
    "conv_3x3": 3,
    "conv_5x5": 5,
    "conv_7x7": 7,
    "msa": 0,
    "cse": 0,
}
"""Operation → width of its kernel; 0 where it has none."""

OPERATIONS = tuple(KERNELS)
"""What a step can be made of: pooling, convolutions (separable, dilated, dense, 1 × 7 then 7 × 1), multi-head
self-attention, channel squeeze-and-excite, the identity and nothing."""

WITHOUT_PARAMETERS = OPERATIONS[:4]
"""The operations of a reduction cell that only pools."""

Operation = tuple[str, int]
"""A name of `OPERATIONS` and the state it works on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Genotype:
    """A normal and a reduction cell.

    Examples:
        >>> DARTS.normal[:2], DARTS.num_steps, VIT.has("msa")
        ((('sep_conv_3x3', 0), ('sep_conv_3x3', 1)), 4, True)
        >>> Genotype(normal=(("conv_9x9", 0), ("msa", 1)), reduce=(("none", 0), ("msa", 1)), normal_concat=(2,),
        ...          reduce_concat=(2,))
        Traceback (most recent call last):
        ...
        ValueError: unknown operation 'conv_9x9'; allowed: none, ...; did you mean 'conv_7x7'?
    """

    normal: tuple[Operation, ...]
    """Two operations a step."""
    reduce: tuple[Operation, ...]
    """Two operations a step, as many as in `normal`."""
    normal_concat: tuple[int, ...]
    """States that make the normal cell's output, ascending."""
    reduce_concat: tuple[int, ...]
    """States that make the reduction cell's output, ascending."""

    def __post_init__(self) -> None:
        if len(self.normal) != len(self.reduce):
            raise ValueError(
                f"`normal` has {len(self.normal)} operations and `reduce` {len(self.reduce)}; give both as many"
            )
        for operations, concat in ((self.normal, self.normal_concat), (self.reduce, self.reduce_concat)):
            _check(operations, concat)

    @property
    def num_steps(self) -> int:
        """Steps of a cell."""
        return len(self.normal) // 2

    def has(self, *names: str) -> bool:
        """Whether one of these operations occurs in either cell."""
        return any(name in names for name, _ in self.normal + self.reduce)

    def cell(self, reduction: bool) -> tuple[tuple[Operation, ...], tuple[int, ...]]:
        """Operations and concatenated states of one of the two cells."""
        return (self.reduce, self.reduce_concat) if reduction else (self.normal, self.normal_concat)

    @property
    def identity(self) -> int:
        """A number of 64 bits that genotypes share when they compute the same functions.

        The order of the two operations of a step, the order and numbering of steps, and steps that reach no output do
        not matter to it, so no renumbering of a cell can pass as another genotype. Hash of the hashes of what the
        concatenated states are made of, the same on every machine.

        Examples:
            >>> a = Genotype(normal=(("conv_1x1", 0), ("msa", 1)), reduce=(("msa", 0), ("msa", 1)), normal_concat=(2,),
            ...              reduce_concat=(2,))
            >>> b = Genotype(normal=(("msa", 1), ("conv_1x1", 0)), reduce=(("msa", 1), ("msa", 0)), normal_concat=(2,),
            ...              reduce_concat=(2,))
            >>> a.identity == b.identity, a.identity == DARTS.identity
            (True, False)
        """
        cells = [_cell_hash(*self.cell(reduction)) for reduction in (False, True)]
        return int.from_bytes(_hash("cells", cells)[:8], "big")

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON and YAML; `from_dict` takes them back."""
        return {
            "normal": [list(operation) for operation in self.normal],
            "reduce": [list(operation) for operation in self.reduce],
            "normal_concat": list(self.normal_concat),
            "reduce_concat": list(self.reduce_concat),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Genotype:
        """The genotype that `to_dict` wrote.

        Examples:
            >>> Genotype.from_dict(DARTS.to_dict()) == DARTS
            True
        """
        return cls(
            normal=tuple((str(name), int(state)) for name, state in plain["normal"]),
            reduce=tuple((str(name), int(state)) for name, state in plain["reduce"]),
            normal_concat=tuple(int(state) for state in plain["normal_concat"]),
            reduce_concat=tuple(int(state) for state in plain["reduce_concat"]),
        )


def _check(operations: Sequence[Operation], concat: Sequence[int]) -> None:
    if not operations or len(operations) % 2:
        raise ValueError(f"a cell of {len(operations)} operations; it needs two for every step, and one step at least")
    for position, (name, state) in enumerate(operations):
        if name not in KERNELS:
            raise ValueError(unknown_name("operation", name, OPERATIONS))
        if not 0 <= state < position // 2 + 2:
            raise ValueError(
                f"operation {position} ({name!r}) works on state {state}; it must be one of the earlier states, "
                f"0 to {position // 2 + 1}"
            )
    last = len(operations) // 2 + 1
    if not concat or list(concat) != sorted(set(concat)) or concat[0] < 2 or concat[-1] > last:
        raise ValueError(f"concatenated states {tuple(concat)}; they must ascend and lie in 2 to {last}")


def _hash(kind: str, parts: Sequence[bytes]) -> bytes:
    return hashlib.sha256(kind.encode() + b"(" + b",".join(sorted(parts) if kind != "cells" else parts) + b")").digest()


def _cell_hash(operations: Sequence[Operation], concat: Sequence[int]) -> bytes:
    states: list[bytes] = [b"state 0", b"state 1"]
    for step in range(len(operations) // 2):
        pair = operations[2 * step : 2 * step + 2]
        terms = [_hash(name, [states[state]]) for name, state in pair if name != "none" and states[state]]
        states.append(_hash("sum", terms) if terms else b"")
    return _hash("concat", [states[state] for state in concat])


DARTS = Genotype(
    normal=(
        ("sep_conv_3x3", 0),
        ("sep_conv_3x3", 1),
        ("sep_conv_3x3", 0),
        ("sep_conv_3x3", 1),
        ("sep_conv_3x3", 1),
        ("skip_connect", 0),
        ("skip_connect", 0),
        ("dil_conv_3x3", 2),
    ),
    reduce=(
        ("max_pool_3x3", 0),
        ("max_pool_3x3", 1),
        ("skip_connect", 2),
        ("max_pool_3x3", 1),
        ("max_pool_3x3", 0),
        ("skip_connect", 2),
        ("skip_connect", 2),
        ("max_pool_3x3", 1),
    ),
    normal_concat=(2, 3, 4, 5),
    reduce_concat=(2, 3, 4, 5),
)
"""The cells that DARTS found on CIFAR-10."""

VIT = Genotype(
    normal=(("none", 0), ("msa", 1)),
    reduce=(("none", 0), ("avg_pool_3x3", 1)),
    normal_concat=(2,),
    reduce_concat=(2,),
)
"""A vision transformer as cells: attention, and two layers that pool."""
