"""Decoders: from a node's state to its weight.

"conv" (GHN-2), "linear" (GHN-3), "mlp" and "low_rank" (as in LoGAH) stand beside each other here and share one
interface: all weights of a batch are asked for at once, each as (out, in, height, width) within the decoder's channels,
and exactly that is computed. The first three decode one largest weight of which smaller ones are a corner (GHN-3: the
middle of the kernel). `VectorDecoder` makes scales and biases.

Not covered: more channels than the decoder has; `tile.py` repeats what is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.ghn.config import GHNConfig

if TYPE_CHECKING:
    from trivet.ghn.targets import View

Request = tuple[Tensor, "View"]
"""Rows of the states, int64 [n], and the sizes (out, in, height, width) of their blocks."""


class ConvDecoder(nn.Module):
    """Decoder of GHN-2: a map of features over the kernel, then two layers at each of its positions.

    A kernel is the top left corner of the largest one; one that is larger repeats it.
    """

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        self.out_channels, self.in_channels, self.size, _ = config.max_shape
        features = 4 * config.hid
        self.spatial = nn.Linear(config.hid, features * self.size**2)
        self.hidden = nn.Linear(features, 2 * features)
        self.out = nn.Linear(2 * features, self.out_channels * self.in_channels)
        self.classes = nn.Linear(self.out_channels, config.num_classes)

    def forward(self, x: Tensor, requests: Sequence[Request]) -> list[Tensor]:
        """Blocks [n, out, in, height, width] of each request, from states [nodes, hid]."""
        features = self._features(x, requests)
        blocks: list[Tensor] = [x] * len(requests)
        # Requests of equal channels share a product, so that few parts of the largest weight are cut out of it.
        same: dict[tuple[int, int], list[int]] = {}
        for index, (_, view) in enumerate(requests):
            same.setdefault((view[0], view[1]), []).append(index)
        weight = self.out.weight.unflatten(0, (self.out_channels, self.in_channels))
        bias = self.out.bias.unflatten(0, (self.out_channels, self.in_channels))
        for (out, inputs), members in same.items():
            together = torch.cat([features[index] for index in members])
            part, shift = (_cut(_cut(whole, 0, slice(0, out)), 1, slice(0, inputs)) for whole in (weight, bias))
            decoded = F.linear(together, part.flatten(0, 1), shift.flatten())
            for index, values in zip(members, decoded.split([len(features[index]) for index in members]), strict=True):
                rows, view = requests[index]
                height, width = min(view[2], self.size), min(view[3], self.size)
                values = values.view(len(rows), height * width, -1).transpose(1, 2).contiguous()
                blocks[index] = self._enlarged(values.view(-1, out, inputs, height, width), view)
        return blocks

    def classifiers(self, x: Tensor, inputs: int) -> Tensor:
        """Weights [n, classes, in, 1, 1] of classifiers, from their nodes' states [n, hid]."""
        rows = torch.arange(len(x), device=x.device)
        block = ConvDecoder.forward(self, x, [(rows, (self.out_channels, inputs, 1, 1))])[0]
        return self.classes(F.relu(block.flatten(2).transpose(1, 2))).transpose(1, 2)[..., None, None]

    def _features(self, x: Tensor, requests: Sequence[Request]) -> list[Tensor]:
        """What each position of each kernel is decoded from: [n · height · width, features] for each request."""
        windows = [(self._window(view[2]), self._window(view[3])) for _, view in requests]
        size = self.size
        weight, bias = (
            self.spatial.weight.unflatten(0, (-1, size, size)),
            self.spatial.bias.unflatten(0, (-1, size, size)),
        )
        # All windows lie within the largest one, which is cut out first.
        rows, columns = (
            slice(min(pair[side].start for pair in windows), max(pair[side].stop for pair in windows))
            for side in (0, 1)
        )
        weight, bias = (_cut(_cut(whole, 1, rows), 2, columns) for whole in (weight, bias))
        features = []
        for (nodes, _), (down, across) in zip(requests, windows, strict=True):
            down = slice(down.start - rows.start, down.stop - rows.start)
            across = slice(across.start - columns.start, across.stop - columns.start)
            part, shift = (_cut(_cut(whole, 1, down), 2, across) for whole in (weight, bias))
            maps = F.linear(x[nodes], part.permute(1, 2, 0, 3).flatten(0, 2), shift.permute(1, 2, 0).flatten())
            features.append(F.relu(self.hidden(F.relu(maps).view(-1, self.hidden.in_features))))
        return features

    def _window(self, size: int) -> slice:
        """Part of the largest kernel that one of this size is."""
        return slice(0, min(size, self.size))

    def _enlarged(self, blocks: Tensor, view: View) -> Tensor:
        """Blocks whose kernels have the asked size, where that is larger than the decoder's."""
        height, width = view[2:]
        if max(height, width) <= self.size:
            return blocks
        at = [torch.arange(n, device=blocks.device) % have for n, have in zip(view[2:], blocks.shape[3:], strict=True)]
        return blocks[..., at[0], :][..., at[1]]


class LinearDecoder(ConvDecoder):
    """Decoder of GHN-3: as that of GHN-2, but kernels are the middle of the largest, and larger ones interpolate."""

    def _window(self, size: int) -> slice:
        middle = self.size // 2
        return slice(max(0, middle - size // 2), min(self.size, middle + -(-size // 2)))

    def _enlarged(self, blocks: Tensor, view: View) -> Tensor:
        if max(view[2:]) <= self.size:
            return blocks
        larger = F.interpolate(blocks.flatten(0, 1), view[2:], mode="bilinear")
        return larger.unflatten(0, blocks.shape[:2])


class MLPDecoder(nn.Module):
    """Two layers that decode the largest weight, of which smaller ones are a corner; larger kernels repeat it."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        self.max_shape = config.max_shape
        out, inputs, height, width = config.max_shape
        self.hidden = nn.Linear(config.hid, 2 * config.hid)
        self.out = nn.Linear(2 * config.hid, out * inputs * height * width)
        self.classes = nn.Linear(2 * config.hid, config.num_classes * inputs)

    def forward(self, x: Tensor, requests: Sequence[Request]) -> list[Tensor]:
        """Blocks [n, out, in, height, width] of each request, from states [nodes, hid]."""
        features = F.relu(self.hidden(x))
        weight, bias = self.out.weight.unflatten(0, self.max_shape), self.out.bias.unflatten(0, self.max_shape)
        blocks = []
        for rows, view in requests:
            out, inputs = view[:2]
            at = [torch.arange(n, device=x.device) % have for n, have in zip(view[2:], self.max_shape[2:], strict=True)]
            part = weight[:out, :inputs, at[0]][:, :, :, at[1]]
            shift = bias[:out, :inputs, at[0]][:, :, :, at[1]]
            blocks.append(F.linear(features[rows], part.flatten(0, 3), shift.flatten()).view(-1, *view))
        return blocks

    def classifiers(self, x: Tensor, inputs: int) -> Tensor:
        """Weights [n, classes, in, 1, 1] of classifiers, from their nodes' states [n, hid]."""
        decoded = self.classes(F.relu(self.hidden(x)))
        return decoded.view(len(x), -1, self.max_shape[1])[:, :, :inputs, None, None]


class LowRankDecoder(nn.Module):
    """Weights as a product of two thin matrices, so that wide layers need no repetition (Zhou et al., 2024).

    The product A·B of rank r has (out · height) rows and (in · width) columns. A classifier has rows of A of its own.
    """

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        self.rank, self.size = config.rank, config.max_shape[2]
        self.widest = max(config.max_shape[:2]) * self.size
        self.hidden = nn.Linear(config.hid, 4 * config.hid)
        self.factors = nn.Linear(4 * config.hid, 2 * self.rank * self.rank)
        self.out = nn.Linear(self.rank, self.widest)
        self.classes = nn.Linear(self.rank, config.num_classes)

    def forward(self, x: Tensor, requests: Sequence[Request]) -> list[Tensor]:
        """Blocks [n, out, in, height, width] of each request, from states [nodes, hid]."""
        left, right = self._factors(x)
        blocks = []
        for rows, view in requests:
            out, inputs = view[:2]
            height, width = min(view[2], self.size), min(view[3], self.size)
            a, b = self._part(left[rows], out * height), self._part(right[rows], inputs * width)
            product = (a.transpose(1, 2) @ b).view(-1, out, height, inputs, width).transpose(2, 3)
            if (height, width) != view[2:]:
                product = F.interpolate(product.flatten(0, 1), view[2:], mode="bilinear").unflatten(0, (-1, out))
            blocks.append(product)
        return blocks

    def classifiers(self, x: Tensor, inputs: int) -> Tensor:
        """Weights [n, classes, in, 1, 1] of classifiers, from their nodes' states [n, hid]."""
        left, right = self._factors(x)
        return (self.classes(left).transpose(1, 2) @ self._part(right, inputs))[..., None, None]

    def _factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What A and B are decoded from: twice [n, rank, rank]."""
        factors = F.relu(self.factors(F.relu(self.hidden(x)))).view(-1, 2, self.rank, self.rank)
        return factors[:, 0], factors[:, 1]

    def _part(self, factors: Tensor, size: int) -> Tensor:
        """The first `size` entries of each of the r rows: [n, rank, size]."""
        return F.linear(factors, self.out.weight[:size], self.out.bias[:size])


class VectorDecoder(nn.Module):
    """Scales (row 0) and biases (row 1) of up to as many channels as the decoder has, and biases of classifiers."""

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        channels = max(config.max_shape[:2])
        self.hidden = nn.Linear(config.hid, 2 * config.hid)
        self.out = nn.Linear(2 * config.hid, 2 * channels)
        self.classes = nn.Linear(channels, config.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Decode states [n, hid] into [n, 2, channels]."""
        return self.out(F.relu(self.hidden(x))).unflatten(1, (2, -1))

    def classifiers(self, x: Tensor) -> Tensor:
        """Biases [n, classes] of classifiers, from their bias nodes' states [n, hid]."""
        return self.classes(F.relu(self(x)[:, 1]))


def _cut(whole: Tensor, dim: int, window: slice) -> Tensor:
    """A slice along one dimension; the tensor itself if that is all of it, whose gradient then is not copied."""
    length = window.stop - window.start
    return whole if length == whole.shape[dim] else whole.narrow(dim, window.start, length)


def make_decoder(config: GHNConfig) -> ConvDecoder | MLPDecoder | LowRankDecoder:
    """The decoder that a configuration names."""
    return {"conv": ConvDecoder, "linear": LinearDecoder, "mlp": MLPDecoder, "low_rank": LowRankDecoder}[
        config.decoder
    ](config)
