"""The distributions that networks are drawn from, against those of the published generator.

Seeds are fixed, so these tests give the same answer every time; bounds are those of a test at 1 in 10,000.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from scipy import stats

from trivet.ghn.deepnets.draws import Draws
from trivet.ghn.deepnets.sample import Candidate, candidates, sample, sample_genotype
from trivet.ghn.deepnets.splits import CLASSES, SPLITS, Split

RARE = 1e-4
EVERYTHING = range(CLASSES)


def is_uniform(values: Iterable[Any], options: Sequence[Any]) -> bool:
    counts = Counter(values)
    assert set(counts) <= set(options)
    return bool(stats.chisquare([counts[option] for option in options]).pvalue > RARE)


def share(flags: Sequence[bool], expected: float) -> bool:
    return bool(stats.binomtest(sum(flags), len(flags), expected).pvalue > RARE)


def free(name: str, **changes: Any) -> Split:
    """A split with the genotypes of all splits."""
    from dataclasses import replace

    return replace(SPLITS[name], classes=EVERYTHING, **changes)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_operations_and_states_of_a_cell(steps: int) -> None:
    draws = Draws(steps)
    cells = [sample_genotype(draws, steps).normal for _ in range(1500)]
    names = [
        "max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5",
        "conv_1x1", "conv_7x1_1x7", "conv_3x3", "conv_5x5", "conv_7x7", "msa", "cse",
    ]  # fmt: skip
    assert is_uniform((name for cell in cells for name, _ in cell), [*names, "none"] if steps > 1 else names)
    for step in range(steps):
        pairs = [(cell[2 * step][1], cell[2 * step + 1][1]) for cell in cells]
        assert is_uniform(pairs, list(itertools.permutations(range(step + 2), 2)))


def test_half_of_the_reduction_cells_only_pool() -> None:
    draws = Draws(5)
    pool = {"none", "max_pool_3x3", "avg_pool_3x3", "skip_connect"}
    flags = [{name for name, _ in sample_genotype(draws, 3).reduce} <= pool for _ in range(2000)]
    assert share(flags, 0.5 + 0.5 * (4 / 15) ** 6)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_concatenation(steps: int) -> None:
    draws = Draws(6)
    found = [sample_genotype(draws, steps) for _ in range(2000)]
    assert all(genotype.normal_concat == genotype.reduce_concat for genotype in found)
    assert all(genotype.normal_concat[-1] == steps + 1 for genotype in found)
    complete = [len(genotype.normal_concat) == steps for genotype in found]
    assert share(complete, 0.5 + 0.5 * 0.5 ** (steps - 1)) if steps > 1 else all(complete)
    if steps > 1:
        assert share([2 in genotype.normal_concat for genotype in found], 0.75)


def test_draws_are_uniform_and_reach_both_ends() -> None:
    draws = Draws(1)
    assert is_uniform((draws.integer(4, 18) for _ in range(3000)), range(4, 19))
    assert is_uniform((draws.choice("abc") for _ in range(3000)), "abc")
    assert share([draws.flip(0.1) for _ in range(3000)], 0.1)
    assert is_uniform((draws.pair(4) for _ in range(3000)), list(itertools.permutations(range(4), 2)))


def drawn(split: Split, count: int, seed: int = 0) -> list[Any]:
    draws = Draws(seed)
    return [sample(draws, split) for _ in range(count)]


SIZE_FREE = 10**12


def test_train_cells_steps_and_the_rest() -> None:
    # No limit of parameters: it is the one rule that depends on the number of cells.
    nets = drawn(free("train", max_parameters=SIZE_FREE), 1200)
    assert {net.num_cells for net in nets} == set(range(4, 19))
    shallow = [net for net in nets if net.num_cells <= 7]
    deep = [net for net in nets if net.num_cells > 10]
    assert {net.genotype.num_steps for net in shallow} == {1, 2, 3, 4}
    assert {net.genotype.num_steps for net in deep} == {1, 2}
    between = [net for net in nets if net.num_cells == 9]
    # A network of 9 cells is deep when the threshold, U{7..10}, is below 9: in half of the draws.
    assert any(net.genotype.num_steps > 2 for net in between)
    convolutional = [net for net in nets if not net.is_transformer]
    assert is_uniform((net.kernel for net in convolutional), (3, 5, 7))
    assert is_uniform((net.channel_multiplier for net in nets), (1, 2))
    assert is_uniform((net.fc_layers for net in nets), (1, 2))
    assert is_uniform((net.stem for net in convolutional), ("simple", "imagenet"))
    assert is_uniform((net.stem_pool for net in convolutional if net.stem == "simple"), (False, True))
    few = drawn(free("train", max_parameters=SIZE_FREE, num_cells=(4, 5), steps=(1, 2)), 1500)
    assert share([not net.global_average for net in few if not net.is_transformer], 0.1)
    assert all(net.global_average for net in nets if net.is_transformer or net.num_cells > 10)
    bare = [net for net in nets if net.genotype.num_steps == 1 and net.channel_multiplier == 1]
    assert all(net.preprocess for net in bare if not net.is_transformer)
    assert share([not net.preprocess for net in bare if net.is_transformer], 0.8)
    assert all(net.preprocess for net in nets if net not in bare)
    normless = [net for net in nets if net.num_cells <= 5 and net.genotype.num_steps <= 2]
    assert share([net.norm == "none" for net in normless], 0.5)
    assert all(net.norm == "bn" for net in nets if net not in normless)


@pytest.mark.parametrize(
    ("name", "cells", "shallow_steps", "deep_steps", "threshold"),
    [
        ("deep", range(10, 37), {1, 2, 3, 4}, {1, 2}, (18, 18)),
        ("dense", range(4, 19), set(range(2, 11)), set(range(2, 7)), (7, 10)),
        ("search", range(6, 21), set(range(1, 7)), {1, 2, 3}, (10, 10)),
    ],
)
def test_other_splits(
    name: str, cells: range, shallow_steps: set[int], deep_steps: set[int], threshold: tuple[int, int]
) -> None:
    nets = drawn(free(name, max_parameters=SIZE_FREE), 500)
    assert {net.num_cells for net in nets} <= set(cells)
    assert min(net.num_cells for net in nets) == cells[0]
    assert {net.genotype.num_steps for net in nets if net.num_cells <= threshold[0]} == shallow_steps
    assert {net.genotype.num_steps for net in nets if net.num_cells > threshold[1]} == deep_steps


def test_norms_of_the_splits() -> None:
    assert {net.norm for net in drawn(free("bn_free"), 40)} == {"none"}
    assert {net.norm for net in drawn(free("search"), 40)} == {"bn"}


def test_bare_convolutional_cells_occur_in_search_alone() -> None:
    nets = drawn(free("search", steps=(1, 1), deep_steps=1), 300)
    bare = [net for net in nets if net.channel_multiplier == 1]
    assert share([not net.preprocess for net in bare if not net.is_transformer], 0.2)
    assert share([not net.preprocess for net in bare if net.is_transformer], 0.8)


def test_every_rule_refuses() -> None:
    draws = Draws(3)
    found: Counter[str] = Counter()
    loose = free("train", max_parameters=100_000, steps=(1, 4))
    stream = candidates(draws, loose)
    kept: list[Candidate] = []
    while len(kept) < 150:
        candidate = next(stream)
        found[candidate.refused] += 1
        if candidate.network is not None:
            kept.append(candidate)
    for candidate in kept:
        assert candidate.network is not None
        genotype = candidate.network.genotype
        both = [name for name, _ in genotype.normal + genotype.reduce]
        assert any("conv" in name for name in both) or ("msa" in both and "cse" not in both)
        for cell in (genotype.normal, genotype.reduce):
            names = [name for name, _ in cell]
            assert names.count("cse") <= 1
            assert names.count("conv_5x5") + names.count("conv_7x7") <= 1
        assert all(candidate.network.num_parameters(image_size=size) <= 100_000 for size in (32, 224))
    assert set(found) == {
        "", "squeeze-and-excite without convolution", "too much squeeze-and-excite", "too many large kernels",
        "nothing to learn", "disconnected", "too many parameters",
    }  # fmt: skip


def test_a_split_keeps_to_its_genotypes() -> None:
    for name, split in SPLITS.items():
        assert all(net.genotype.identity % CLASSES in split.classes for net in drawn(split, 10)), name
