"""Descriptions: counts against built networks and torch's own counter, plain values and back, refused nonsense."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from trivet.ghn.deepnets import (
    DARTS,
    DARTS_NETWORK,
    VIT_NETWORK,
    Architecture,
    CellArchitecture,
    DeepNets,
    Genotype,
    ResNet50Architecture,
)
from trivet.ghn.deepnets.draws import Draws
from trivet.ghn.deepnets.sample import sample
from trivet.ghn.deepnets.splits import SPLITS

KNOWN = [DARTS_NETWORK, VIT_NETWORK, ResNet50Architecture()]


def on_meta(network: Architecture, *about: int) -> nn.Module:
    with torch.device("meta"):
        return network.build(*about)


def drawn(seed: int) -> CellArchitecture:
    """A network of any split, but of 4 to 6 cells and with 16 channels."""
    split = list(SPLITS.values())[seed % len(SPLITS)]
    return replace(sample(Draws(seed), replace(split, num_cells=(4, 6))), channels=16)


def outputs_of_layers(model: nn.Module, images: torch.Tensor) -> int:
    """Numbers that convolutions and linear layers put out."""
    found: list[int] = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(lambda _m, _i, output: found.append(output.numel()))
    model(images)
    return sum(found)


def check_counts(network: Architecture, num_classes: int, in_channels: int, image_size: int) -> None:
    about = (num_classes, in_channels, image_size)
    model = on_meta(network, *about)
    tensors = network.tensors(*about)
    built = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
    assert [(tensor.name, tensor.shape) for tensor in tensors] == built
    totals = network.totals(*about)
    assert totals.parameters == sum(parameter.numel() for parameter in model.parameters())
    images = torch.zeros(2, in_channels, image_size, image_size, device="meta")
    with FlopCounterMode(display=False) as counter:
        model(images)
    assert 2 * 2 * totals.macs == counter.get_total_flops()
    assert 2 * totals.activations == outputs_of_layers(model, images)
    parts = (network.num_parameters(*about), network.macs(*about), network.activations(*about))
    assert parts == (totals.parameters, totals.macs, totals.activations)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([28, 32, 45, 64, 224]), grey=st.booleans())
def test_counts_equal_built_networks(seed: int, size: int, grey: bool) -> None:
    check_counts(drawn(seed), 10, 1 if grey else 3, size)


@pytest.mark.parametrize("network", KNOWN, ids=["darts", "vit", "resnet50"])
@pytest.mark.parametrize("size", [28, 224])
def test_counts_of_known_networks(network: Architecture, size: int) -> None:
    check_counts(network, 7, 3, size)


def test_used_tensors_are_those_with_gradients() -> None:
    partly = 0
    for seed in range(48):
        network = replace(drawn(seed), channels=8)
        if network.macs() > 5_000_000:
            continue
        model = network.build()
        model(torch.randn(2, 3, 32, 32)).square().sum().backward()
        reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
        assert {tensor.name for tensor in network.tensors() if tensor.used} == reached
        partly += len(reached) < len(network.tensors())
    assert partly >= 2  # the test saw some


@pytest.mark.parametrize("network", [*KNOWN, drawn(3), drawn(4), DeepNets("dense")[0]])
def test_plain_values_and_back(network: Architecture) -> None:
    found = Architecture.from_dict(json.loads(json.dumps(network.to_dict())))
    assert found == network
    assert found.digest == network.digest
    assert hash(found) == hash(network)


def test_every_field_changes_the_digest() -> None:
    changes: dict[str, Any] = {
        "num_cells": 9, "channels": 34, "stem": "imagenet", "kernel": 5, "stem_pool": True, "large_stride": 2,
        "norm": "none", "channel_multiplier": 1, "fc_layers": 2, "fc_dim": 64, "global_average": False,
        "genotype": Genotype(
            normal=DARTS.normal, reduce=DARTS.reduce, normal_concat=(2, 3, 4), reduce_concat=(2, 3, 4, 5)
        ),
    }  # fmt: skip
    digests = {replace(DARTS_NETWORK, **{name: value}).digest for name, value in changes.items()}
    assert len(digests | {DARTS_NETWORK.digest}) == len(changes) + 1


ONE_STEP = Genotype(
    normal=(("conv_1x1", 0), ("skip_connect", 1)),
    reduce=(("max_pool_3x3", 0), ("skip_connect", 1)),
    normal_concat=(2,),
    reduce_concat=(2,),
)
ABSENT = Genotype(
    normal=(("none", 0), ("none", 1), ("conv_1x1", 0), ("conv_1x1", 2)),
    reduce=(("conv_1x1", 0), ("conv_1x1", 1), ("conv_1x1", 0), ("conv_1x1", 2)),
    normal_concat=(2,),
    reduce_concat=(2,),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stem": "patch"}, "goes with attention and only with it"),
        ({"stem": "imagent"}, "did you mean 'imagenet'"),
        ({"norm": "batch"}, "unknown norm 'batch'"),
        ({"stem": "imagenet", "stem_pool": True}, "needs `stem='simple'`"),
        ({"num_cells": 0}, "`num_cells=0` must be ≥ 1"),
        ({"fc_layers": 0}, "`fc_layers=0` must be ≥ 1"),
        ({"kernel": 4}, "must be odd"),
        ({"channels": 7}, "multiple of 2"),
        ({"channels": 0}, "take 2"),
        ({"preprocess": False}, "got 4 and 2"),
        ({"genotype": ONE_STEP, "preprocess": False}, "got 1 and 2"),
        ({"genotype": ABSENT}, "disconnected"),
    ],
)
def test_descriptions_that_make_no_network(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(DARTS_NETWORK, **changes)


def test_attention_needs_patches_and_heads() -> None:
    with pytest.raises(ValueError, match="does not go with attention"):
        replace(VIT_NETWORK, stem="simple")
    with pytest.raises(ValueError, match="one share for each attention head; take 32"):
        replace(VIT_NETWORK, channels=30)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"family": "resnet51"}, "did you mean 'resnet50'"),
        ({"family": "resnet50", "depth": 50}, "has no fields; remove 'depth'"),
        ({**DARTS_NETWORK.to_dict(), "chanels": 3}, "did you mean 'channels'"),
        ({**DARTS_NETWORK.to_dict(), "channels": "32"}, "channels"),
        ({"family": "cells", "num_cells": 3, "channels": 16}, "genotype"),
    ],
)
def test_plain_values_that_make_no_network(plain: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Architecture.from_dict(plain)


@pytest.mark.parametrize("network", [DARTS_NETWORK, ResNet50Architecture()], ids=["cells", "resnet50"])
def test_inputs_that_make_no_sense(network: Architecture) -> None:
    for about, words in (((0, 3, 32), "num_classes=0"), ((10, 0, 32), "in_channels=0"), ((10, 3, 7), "image_size=7")):
        for call in (network.build, network.tensors, network.num_parameters, network.macs):
            with pytest.raises(ValueError, match=words):
                call(*about)
