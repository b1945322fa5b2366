from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.ghn.config import GHNConfig
from trivet.ghn.decoder import ConvDecoder, LinearDecoder, LowRankDecoder, MLPDecoder, VectorDecoder, make_decoder

HID, OUT, IN, SIZE, CLASSES = 8, 12, 12, 4, 5
VIEWS = [(12, 12, 1, 1), (12, 12, 3, 3), (7, 5, 3, 3), (12, 1, 4, 4), (1, 12, 1, 3), (5, 10, 2, 2), (3, 12, 3, 1)]


def config(decoder: str, **more: int) -> GHNConfig:
    return GHNConfig(hid=HID, decoder=decoder, max_shape=(OUT, IN, SIZE, SIZE), num_classes=CLASSES, **more)  # pyrefly: ignore


def states(n: int = 9) -> Tensor:
    return torch.randn(n, HID, generator=torch.Generator().manual_seed(1))


def whole(decoder: ConvDecoder, x: Tensor) -> Tensor:
    """Largest weight of each state, by two 1 × 1 convolutions over a map of features."""
    maps = F.relu(decoder.spatial(x)).view(len(x), -1, SIZE, SIZE)
    hidden = F.relu(F.conv2d(maps, decoder.hidden.weight[..., None, None], decoder.hidden.bias))
    return F.conv2d(hidden, decoder.out.weight[..., None, None], decoder.out.bias).view(-1, OUT, IN, SIZE, SIZE)


def requests(views: list[tuple[int, int, int, int]]) -> list[tuple[Tensor, tuple[int, int, int, int]]]:
    return [(torch.tensor([index, 8 - index]), view) for index, view in enumerate(views)]


def test_conv_decoder_gives_corners_of_the_largest_weight() -> None:
    torch.manual_seed(0)
    decoder, x = ConvDecoder(config("conv")), states()
    for (rows, view), blocks in zip(requests(VIEWS), decoder(x, requests(VIEWS)), strict=True):
        out, inputs, height, width = view
        torch.testing.assert_close(blocks, whole(decoder, x)[rows, :out, :inputs, :height, :width])


def test_conv_decoder_repeats_larger_kernels() -> None:
    torch.manual_seed(0)
    decoder, x = ConvDecoder(config("conv")), states()
    views = [(12, 12, 7, 6), (4, 3, 9, 2)]
    for (rows, view), blocks in zip(requests(views), decoder(x, requests(views)), strict=True):
        assert blocks.shape == (2, *view)
        repeated = whole(decoder, x)[rows].repeat(1, 1, 1, 3, 3)
        torch.testing.assert_close(blocks, repeated[:, : view[0], : view[1], : view[2], : view[3]])


def middle(size: int) -> slice:
    """Window in the middle: half the size, rounded down, before position SIZE // 2."""
    start = SIZE // 2 - size // 2
    return slice(start, start + size)


def test_linear_decoder_gives_the_middle_of_kernels() -> None:
    torch.manual_seed(0)
    decoder, x = LinearDecoder(config("linear")), states()
    for (rows, view), blocks in zip(requests(VIEWS), decoder(x, requests(VIEWS)), strict=True):
        expected = whole(decoder, x)[rows, : view[0], : view[1], middle(view[2]), middle(view[3])]
        torch.testing.assert_close(blocks, expected)


def test_linear_decoder_interpolates_larger_kernels() -> None:
    torch.manual_seed(0)
    decoder, x = LinearDecoder(config("linear")), states()
    views = [(12, 12, 7, 6), (4, 3, 9, 2)]
    tall, narrow = decoder(x, requests(views))
    torch.testing.assert_close(tall[0], F.interpolate(whole(decoder, x)[0], (7, 6), mode="bilinear"))
    thin = whole(decoder, x)[1, :4, :3, :, middle(2)]
    torch.testing.assert_close(narrow[0], F.interpolate(thin, (9, 2), mode="bilinear"))


def test_mlp_decoder_gives_corners_of_the_largest_weight() -> None:
    torch.manual_seed(0)
    decoder, x = MLPDecoder(config("mlp")), states()
    largest = decoder.out(F.relu(decoder.hidden(x))).view(-1, OUT, IN, SIZE, SIZE)
    for (rows, view), blocks in zip(requests(VIEWS), decoder(x, requests(VIEWS)), strict=True):
        torch.testing.assert_close(blocks, largest[rows, : view[0], : view[1], : view[2], : view[3]])


def test_low_rank_decoder_makes_products_of_thin_matrices() -> None:
    torch.manual_seed(0)
    decoder, x = LowRankDecoder(config("low_rank", rank=3)), states()
    for (_, view), blocks in zip(requests(VIEWS), decoder(x, requests(VIEWS)), strict=True):
        assert blocks.shape == (2, *view)
        flat = blocks.transpose(2, 3).reshape(2, view[0] * view[2], view[1] * view[3])
        assert torch.linalg.matrix_rank(flat, rtol=1e-5).max() <= 3
        assert flat.abs().max() > 0
    assert decoder(x, requests([(4, 3, 9, 2)]))[0].shape == (2, 4, 3, 9, 2)


@pytest.mark.parametrize("cls", [ConvDecoder, LinearDecoder])
def test_classifiers_are_decoded_over_the_outputs_of_a_pointwise_weight(cls: type[ConvDecoder]) -> None:
    torch.manual_seed(0)
    decoder, x = cls(config("conv")), states()
    at = 0 if cls is ConvDecoder else SIZE // 2
    pointwise = F.relu(whole(decoder, x)[:, :, :7, at, at])
    expected = torch.einsum("noi,co->nci", pointwise, decoder.classes.weight) + decoder.classes.bias[:, None]
    torch.testing.assert_close(decoder.classifiers(x, 7), expected[..., None, None])


@pytest.mark.parametrize(("name", "rank"), [("conv", 0), ("linear", 0), ("mlp", 0), ("low_rank", 3)])
def test_every_decoder_gives_gradients_to_all_of_its_weights(name: str, rank: int) -> None:
    torch.manual_seed(0)
    decoder, x = make_decoder(config(name, rank=rank)), states()
    assert isinstance(decoder, nn.Module)
    assert decoder.classifiers(x, 7).shape == (9, CLASSES, 7, 1, 1)
    parts = [*decoder(x, requests(VIEWS)), decoder.classifiers(x, 12)]
    sum(part.square().sum() for part in parts).backward()
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in decoder.parameters())


def test_initial_weights_have_the_size_that_the_normalization_expects() -> None:
    """Sums over the decoders' inputs stay near 1, so that a fan-in scale makes sense for all of them."""
    torch.manual_seed(0)
    wide = GHNConfig(hid=32, decoder="low_rank", rank=16)
    block = LowRankDecoder(wide)(torch.randn(8, 32), [(torch.arange(8), (64, 64, 3, 3))])[0]
    assert 1e-4 < block.std().item() < 10
    assert math.isfinite(block.abs().max().item())


def test_vectors_and_biases_of_classifiers() -> None:
    torch.manual_seed(0)
    decoder, x = VectorDecoder(config("conv")), states()
    both = decoder.out(F.relu(decoder.hidden(x))).view(-1, 2, 12)
    torch.testing.assert_close(decoder(x), both)
    torch.testing.assert_close(decoder.classifiers(x), decoder.classes(F.relu(both[:, 1])))
