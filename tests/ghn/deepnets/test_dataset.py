"""DeepNets: the same network for ever, splits that share no genotype, widths by rule, budgets."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from trivet.core.seeding import derive
from trivet.ghn.deepnets import (
    DARTS_NETWORK,
    VIT_NETWORK,
    Budget,
    CellArchitecture,
    DeepNets,
    ResNet50Architecture,
)
from trivet.ghn.deepnets.channels import CHANNELS, FC_DIMS, evaluation_channels, training_channels
from trivet.ghn.deepnets.draws import Draws
from trivet.ghn.deepnets.sample import sample
from trivet.ghn.deepnets.splits import CLASSES, SPLITS, split_names

PINNED: dict[str, tuple[str, str, str]] = {
    "train": ("370b340c2138", "83f6be5d9c94", "f692e8cbcbdb"),
    "val": ("bdbd9f32188e", "34271b0f8c27", "1d4ca30b692a"),
    "test": ("d40f83f80aa4", "4abef59e48df", "0c89d7048983"),
    "wide": ("b17ee27bbb7a", "bc83293bcf16", "b2b53337c6b3"),
    "deep": ("d05b8ad6477a", "e9d37e130bb8", "eed0a44d9eb1"),
    "dense": ("a89ee218f704", "ba9c1d130706", "9d8d065ddcbb"),
    "bn_free": ("d8e00f553add", "7e4b7b18e3b3", "2f8fc742219f"),
    "predefined": ("c7138ac0f29c", "7cc161ddde3c", "7cc161ddde3c"),
    "search": ("9c133df7bb12", "f353299d1a21", "7c0dc67dff7e"),
}


@pytest.mark.parametrize("split", split_names())
def test_networks_are_the_same_for_ever(split: str) -> None:
    """A digest that changes means that everyone's networks change: never accept that lightly."""
    nets = DeepNets(split)
    last = len(nets) - 1
    assert (nets[0].digest, nets[1].digest, nets[last].digest) == PINNED[split]


def test_other_processes_and_orders_give_the_same() -> None:
    code = "from trivet.ghn import DeepNets; print(DeepNets('train')[7].digest, 'torch' in __import__('sys').modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    nets = DeepNets("train", size=10)
    backwards = [nets[index] for index in reversed(range(10))]
    assert list(reversed(backwards)) == list(nets)
    assert done.stdout.split() == [nets[7].digest, "False"]


def test_seeds_and_splits_are_different_streams() -> None:
    digests = {DeepNets(split, seed)[0].digest for split in ("train", "val", "test", "deep") for seed in (0, 1)}
    assert len(digests) == 8


def test_classes_of_genotypes_do_not_meet() -> None:
    for one, two in itertools.combinations(SPLITS, 2):
        meets = set(SPLITS[one].classes) & set(SPLITS[two].classes)
        assert bool(meets) == ({one, two} == {"test", "wide"})
    assert set().union(*(split.classes for split in SPLITS.values())) == set(range(CLASSES))


def test_splits_share_no_genotype() -> None:
    """Cells of one step are so few that splits without classes would meet many times over."""
    found: dict[str, set[int]] = {}
    for name, split in SPLITS.items():
        if name != "wide":
            short = replace(split, steps=(1, 1), deep_steps=1)
            found[name] = {sample(Draws(derive(0, name, i)), short).genotype.identity for i in range(100)}
    for one, two in itertools.combinations(found, 2):
        assert not found[one] & found[two], (one, two)
    everyone = replace(SPLITS["train"], steps=(1, 1), deep_steps=1, classes=range(CLASSES))
    loose = [{sample(Draws(derive(seed, i)), everyone).genotype.identity for i in range(100)} for seed in range(2)]
    assert loose[0] & loose[1]  # so the test could fail


def test_wide_is_test_with_more_channels() -> None:
    for index in range(3):
        wide, test = DeepNets("wide")[index], DeepNets("test")[index]
        assert isinstance(test, CellArchitecture)
        assert wide == replace(test, channels=4 * test.channels)
        assert DeepNets("wide", large_images=True)[index] == replace(test, channels=2 * test.channels)


def test_predefined() -> None:
    assert list(DeepNets("predefined")) == [ResNet50Architecture(), VIT_NETWORK]
    assert [net.num_parameters() for net in DeepNets("predefined")] == [23_520_842, 1_012_234]
    assert [net.num_parameters(1000, image_size=224) for net in DeepNets("predefined")] == [25_557_032, 1_244_392]


def test_sizes() -> None:
    sizes = {name: len(DeepNets(name)) for name in split_names()}
    assert sizes == {
        "train": 1_000_000, "val": 500, "test": 500, "wide": 100, "deep": 100, "dense": 100, "bn_free": 100,
        "predefined": 2, "search": 100_000,
    }  # fmt: skip
    assert len(DeepNets("test", size=7)) == 7
    assert len(list(DeepNets("test", size=2))) == 2
    for index in (-1, 7):
        with pytest.raises(IndexError, match=f"index {index} of split 'test' must lie in 0 to 6"):
            DeepNets("test", size=7)[index]


@pytest.mark.parametrize("split", ["val", "test", "deep", "dense", "bn_free"])
def test_evaluation_networks_are_the_narrowest_of_their_kind(split: str) -> None:
    for net in DeepNets(split, size=6):
        assert isinstance(net, CellArchitecture)
        assert net.fc_dim == 256
        assert net.num_parameters() >= 2_500_000
        assert net.channels == 32 or replace(net, channels=net.channels - 16).num_parameters() < 2_500_000


def tiny(**changes: object) -> CellArchitecture:
    """A network of 0.05 M parameters and four cells."""
    from trivet.ghn.deepnets.genotype import Genotype

    cell = (("conv_1x1", 0), ("skip_connect", 1))
    genotype = Genotype(normal=cell, reduce=cell, normal_concat=(2,), reduce_concat=(2,))
    base = CellArchitecture(genotype=genotype, num_cells=4, channels=32, channel_multiplier=1, stem_pool=True)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_training_widths_follow_size() -> None:
    def widths(net: CellArchitecture, wider: bool = False) -> tuple[set[int], set[int]]:
        found = [training_channels(Draws(seed), net, wider=wider) for seed in range(150)]
        return {item.channels for item in found}, {item.fc_dim for item in found}

    assert tiny().num_parameters() < 200_000
    assert widths(tiny()) == (set(CHANNELS), set(FC_DIMS))
    assert all(
        item.fc_dim <= 256 for seed in range(150) if (item := training_channels(Draws(seed), tiny())).channels > 64
    )
    assert widths(tiny(num_cells=9)) == ({32, 48, 64}, set(FC_DIMS[:4]))
    assert widths(tiny(num_cells=9), wider=True) == ({32, 48, 64, 80, 96}, set(FC_DIMS[:4]))
    assert widths(tiny(num_cells=11)) == ({32, 48}, set(FC_DIMS[:4]))
    assert widths(tiny(num_cells=11), wider=True) == ({32, 48, 64, 80}, set(FC_DIMS[:4]))
    assert widths(tiny(num_cells=13))[0] == {32}
    assert widths(tiny(num_cells=13), wider=True)[0] == {32, 48, 64, 80}
    assert widths(tiny(num_cells=15), wider=True)[0] == {32}
    assert widths(tiny(global_average=False))[0] == {32}
    assert 0.8e6 < DARTS_NETWORK.num_parameters() < 2e6
    assert widths(DARTS_NETWORK)[0] == {32}
    assert widths(DARTS_NETWORK, wider=True)[0] == {32, 48, 64, 80}


def test_small_strides_on_large_images() -> None:
    def strides(net: CellArchitecture, wider: bool, large_images: bool) -> set[int]:
        found = (training_channels(Draws(s), net, wider=wider, large_images=large_images) for s in range(40))
        return {item.large_stride for item in found}

    assert strides(tiny(), True, True) == {2, 4}
    assert strides(tiny(), False, True) == {4}
    assert strides(tiny(), True, False) == {4}
    assert strides(tiny(stem_pool=False), True, True) == {4}
    assert strides(tiny(num_cells=9), True, True) == {4}


def test_evaluation_width_of_a_small_network() -> None:
    found = evaluation_channels(tiny())
    assert found.num_parameters() >= 2_500_000 > replace(found, channels=found.channels - 16).num_parameters()


def test_budget() -> None:
    budget = Budget(max_parameters=60_000, max_macs=6_000_000, max_activations=100_000, in_channels=1, image_size=28)
    nets = DeepNets("train", budget=budget, size=25)
    for net in nets:
        assert isinstance(net, CellArchitecture)
        assert 4 <= net.num_cells <= 8
        assert net.channels in (16, 24, 32)
        assert net.fc_dim in (64, 128)
        assert net.num_parameters(10, 1, 28) <= 60_000
        assert net.macs(10, 1, 28) <= 6_000_000
        assert net.activations(10, 1, 28) <= 100_000
    assert any(net.macs(10, 1, 28) > 3_000_000 for net in nets)


def test_an_impossible_budget_says_so() -> None:
    with pytest.raises(ValueError, match=r"none fits .*max_parameters=10"):
        DeepNets("train", budget=Budget(max_parameters=10))[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_cells": (5, 4)}, "must be a range"),
        ({"num_cells": (0, 4)}, "must be a range"),
        ({"channels": ()}, "`channels` is empty"),
        ({"channels": (16, 20)}, "take 24"),
        ({"max_macs": 0}, "`max_macs=0` must be ≥ 1"),
    ],
)
def test_budgets_that_make_no_sense(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Budget(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"split": "wiide"}, "did you mean 'wide'"),
        ({"channels": "wide"}, "did you mean 'wider'"),
        ({"size": -1}, "`size=-1` must be ≥ 0"),
        ({"split": "predefined", "size": 3}, "`size=3` must be 0 to 2"),
        ({"split": "predefined", "budget": Budget()}, "does not apply"),
    ],
)
def test_data_sets_that_make_no_sense(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DeepNets(**arguments)  # type: ignore[arg-type]


def test_it_can_be_sent_to_another_process() -> None:
    nets = DeepNets("deep", 3)
    assert pickle.loads(pickle.dumps(nets))[2] == nets[2]
    assert pickle.loads(pickle.dumps(nets[2])) == nets[2]
