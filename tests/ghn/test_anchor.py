from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trivet.ghn import GHN, GHNConfig
from trivet.ghn.anchor import FEWEST, GAIN, Anchor, add_, anchor_of
from trivet.graph import graph_of

SMALL = GHNConfig(hid=8, max_shape=(16, 16, 3, 3), anchor="identity")


def anchored(shape: tuple[int, ...], anchor: Anchor) -> torch.Tensor:
    weight = torch.zeros(shape)
    add_(weight, anchor)
    return weight


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 24), st.integers(1, 24), st.integers(1, 5), st.integers(1, 5))
def test_the_identity_entry_by_entry(out: int, inputs: int, height: int, width: int) -> None:
    period = math.gcd(out, inputs)
    anchor = Anchor("identity", 0.25, period)
    expected = torch.zeros(out, inputs, height, width)
    for o in range(out):
        for i in range(inputs):
            if o % period == i % period:
                expected[o, i, height // 2, width // 2] = 0.25
    assert torch.equal(anchored((out, inputs, height, width), anchor), expected)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 64), st.integers(1, 64))
def test_every_output_is_the_gain_times_a_mean(out: int, inputs: int) -> None:
    anchor = anchor_of((out, inputs, 1, 1), grouped=False)
    assert (anchor is None) == (math.gcd(out, inputs) < FEWEST)
    if anchor is not None:
        sums = anchored((out, inputs, 1, 1), anchor).sum((1, 2, 3))
        assert torch.allclose(sums, torch.full((out,), GAIN))


def test_square_layers_begin_as_the_identity_and_depthwise_ones_pass_everything() -> None:
    anchor = anchor_of((8, 8, 3, 3), grouped=False)
    assert anchor is not None
    images = torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(0))
    weight = anchored((8, 8, 3, 3), anchor)
    assert torch.allclose(nn.functional.conv2d(images, weight, padding=1), GAIN * images)
    depthwise = anchor_of((8, 1, 5, 5), grouped=True)
    assert depthwise is not None
    out = nn.functional.conv2d(images, anchored((8, 1, 5, 5), depthwise), padding=2, groups=8)
    assert torch.equal(out, images)


@pytest.mark.parametrize("groups", [2, 4])
def test_grouped_convolutions_pass_their_channels_on(groups: int) -> None:
    anchor = anchor_of((8, 8 // groups, 1, 1), grouped=True)
    assert anchor is not None
    images = torch.randn(2, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    out = nn.functional.conv2d(images, anchored((8, 8 // groups, 1, 1), anchor), groups=groups)
    assert torch.allclose(out, GAIN * images)


@pytest.mark.parametrize("inputs", [1, 3, 4])
@pytest.mark.parametrize("kernel", [3, 5, 7, 16])
def test_filters_have_norm_one_both_signs_and_no_two_are_equal(inputs: int, kernel: int) -> None:
    weight = anchored((40, inputs, kernel, kernel), Anchor("filters", 1.0))
    on_grey = weight.sum(1)  # what an image of equal channels meets
    assert torch.allclose(torch.linalg.vector_norm(on_grey, dim=(1, 2)), torch.ones(40))
    assert torch.allclose(on_grey[:8], -on_grey[8:16])
    different = torch.cdist(on_grey.flatten(1), on_grey.flatten(1)) + 9 * torch.eye(40)
    assert different.min() > 0.05
    first = on_grey[:8].flatten(1)
    assert torch.allclose(first @ first.T, torch.eye(8), atol=1e-6)  # a part of an orthogonal basis


def test_few_inputs_without_a_kernel_and_odd_sizes_have_no_anchor() -> None:
    assert anchor_of((16, 3, 1, 1), grouped=False) is None
    assert anchor_of((10, 64, 1, 1), grouped=False) is None


class Flat(nn.Module):
    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.hidden = nn.Linear(16 * pixels, 16)
        self.head = nn.Linear(16, 10)
        self.pool = nn.Identity() if pixels > 1 else nn.AdaptiveAvgPool2d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.hidden(self.pool(torch.relu(self.conv(x))).flatten(1))))


def test_a_layer_behind_a_flattened_image_treats_all_pixels_alike() -> None:
    ghn = GHN(SMALL, seed=0)
    images = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    net = Flat(36)
    predicted = ghn.predict(net, images)
    by_pixel = predicted["hidden.weight"].view(16, 16, 36)
    assert torch.equal(by_pixel, by_pixel[:, :, :1].expand_as(by_pixel))
    ghn.predict_(net, images)
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, predicted[name]), name
    # The same as a network with a global average, given the same states: its weight is the sum over the pixels.
    mean = by_pixel.sum(2)
    features = torch.relu(net.conv(images))
    pooled = nn.functional.linear(features.mean((2, 3)), mean, net.hidden.bias)
    assert torch.allclose(net.hidden(features.flatten(1)), pooled, atol=1e-5)


def test_a_classifier_behind_a_flattened_image_too() -> None:
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(16 * 16, 10))
    ghn = GHN(SMALL, seed=0)
    weight = ghn.predict(net, torch.zeros(1, 3, 6, 6))["2.weight"].view(10, 16, 16)
    assert torch.equal(weight, weight[:, :, :1].expand_as(weight))


def test_without_anchors_nothing_changes() -> None:
    net = Flat(36)
    graph = graph_of(net, torch.zeros(1, 3, 6, 6))
    plain, anchored_ = (GHN(replace(SMALL, anchor=anchor), seed=0) for anchor in ("none", "identity"))
    one, two = (ghn.predict(net, graph=graph)["conv.weight"] for ghn in (plain, anchored_))
    difference = (two - one).detach()
    expected = torch.zeros(16, 3, 3, 3)
    add_(expected, Anchor("filters", math.sqrt(2.0)))
    assert torch.allclose(difference, expected, atol=1e-6)


def test_three_dimensional_transposed_and_one_dimensional_kernels() -> None:
    net = nn.Sequential(nn.Conv3d(8, 8, 3), nn.ConvTranspose3d(8, 8, 1), nn.Flatten(2), nn.Conv1d(8, 16, 3))
    example = torch.zeros(1, 8, 4, 4, 4)
    ghn = GHN(SMALL, seed=0)
    with torch.no_grad():
        for parameter in ghn.decoder.parameters():
            parameter.zero_()  # anchors alone
    predicted = ghn.predict(net, example)
    assert torch.allclose(predicted["0.weight"].sum(2)[:, :, 1, 1], GAIN * torch.eye(8))
    assert torch.allclose(predicted["1.weight"][..., 0, 0, 0], GAIN * torch.eye(8))
    assert torch.allclose(predicted["3.weight"][:, :, 1], GAIN * torch.eye(8).repeat(2, 1))
    ghn.predict_(net, example)
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, predicted[name]), name


def test_gradients_flow_through_what_is_added() -> None:
    ghn = GHN(SMALL, seed=0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3))
    predicted = ghn.predict(net, torch.zeros(1, 3, 8, 8))
    torch.stack([value.square().sum() for value in predicted.values()]).sum().backward()
    moved = {name for name, parameter in ghn.named_parameters() if parameter.grad is not None and parameter.grad.any()}
    assert {"decoder.out.weight", "vectors.out.weight", "word.weight"} <= moved
