from __future__ import annotations

from collections import Counter

import pytest

from trivet.ghn.meta.rules import BEYOND, PoolConfig, pool, shares

RULES = PoolConfig(max_macs=12_000_000)
SPLITS = ("train", "val", "test", "wide", "deep", "dense", "bn_free")


@pytest.mark.parametrize("split", SPLITS)
def test_the_limits_hold(split: str) -> None:
    factor = 1 if split in ("train", "val", "test") else BEYOND
    for entry in pool(split, RULES, 4):
        network = entry.architecture
        assert network.num_parameters() <= factor * RULES.max_parameters
        assert network.macs() <= factor * RULES.max_macs
        low, high = (9, 16) if split == "deep" else (4, 8)
        assert low <= network.num_cells <= high
        assert network.channels in {channels * (2 if split == "wide" else 1) for channels in RULES.channels}
        assert split != "bn_free" or network.norm == "none"


def test_a_pool_grows_at_its_end_and_other_seeds_are_other_pools() -> None:
    assert pool("train", RULES, 3) == pool("train", RULES, 5)[:3]
    assert pool("train", PoolConfig(max_macs=12_000_000, seed=1), 3) != pool("train", RULES, 3)


def test_no_genotype_is_in_two_splits() -> None:
    found = {split: {entry.architecture.genotype.identity for entry in pool(split, RULES, 8)} for split in SPLITS[:3]}
    assert not found["train"] & found["val"]
    assert not found["train"] & found["test"]
    assert not found["val"] & found["test"]


def test_the_share_without_norms_is_kept() -> None:
    entries = pool("train", PoolConfig(max_macs=12_000_000, bn_free=0.25), 8)
    assert [entry.architecture.norm == "none" for entry in entries] == [False, False, False, True] * 2
    assert shares(entries)["batch norm"] == 0.75


def test_widths_come_equally_often_among_networks_with_and_without_norms() -> None:
    rules = PoolConfig(max_macs=12_000_000, bn_free=0.25, even_channels=True)
    entries = [entry.architecture for entry in pool("train", rules, 24)]
    counts = Counter((network.norm == "none", network.channels) for network in entries)
    assert counts == {(False, c): 6 for c in (16, 24, 32)} | {(True, c): 2 for c in (16, 24, 32)}
    assert pool("train", rules, 12) == pool("train", rules, 24)[:12]
    limited = PoolConfig(max_macs=3_500_000)
    assert sum(entry.architecture.channels == 16 for entry in pool("train", limited, 24)) > 16, "else no need for it"


def test_attention_can_be_left_out() -> None:
    rules = PoolConfig(max_macs=12_000_000, attention=False)
    assert not any(entry.architecture.is_transformer for entry in pool("train", rules, 8))
    assert any(entry.architecture.is_transformer for entry in pool("train", RULES, 8))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 1}, "must be ≥ 2"),
        ({"channels": (12,)}, "multiples of 8"),
        ({"fc_dim": ()}, "is empty"),
        ({"max_macs": 0}, "must be ≥ 1"),
        ({"bn_free": 1.5}, r"must lie in \[0, 1\]"),
    ],
)
def test_bad_rules_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PoolConfig(**wrong)  # type: ignore[arg-type]
