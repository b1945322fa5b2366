"""PredNet: predicts the next frame of a video from its own errors (Lotter, Kreiman, Cox 2017, arXiv:1605.08104).

Layer l has a representation R_l (a convolutional LSTM), a prediction Â_l, a target A_l and an error E_l. For each
frame, from the top down and then from the bottom up,

    R_l = ConvLSTM([R_l, E_l] of the last frame, upsampled R_{l+1} of this one)
    Â_l = relu(conv(R_l)), of layer 0 at most 1
    A_0 = the frame;   A_{l+1} = maxpool(relu(conv(E_l)))
    E_l = [relu(Â_l - A_l); relu(A_l - Â_l)]

with gates i, f, o = σ(conv), c = f·c + i·tanh(conv), R = o·tanh(c). The published model has hard sigmoids,
σ(x) = clip(0.2 x + 0.5, 0, 1). The variant that was studied on CPUs and GPUs (arXiv:2109.01451) has plain ones, and
weights of its own for each element of the cell on all three gates ("peepholes", which read the *old* cell): they fix
the size of the frames.

Not covered: extrapolation over several frames without seeing any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Gates = Literal["hard", "plain"]


@dataclass(frozen=True, slots=True)
class PredNetState:
    """What the network remembers of the frames so far; every list has one tensor [N, C_l, H_l, W_l] a layer."""

    representations: tuple[Tensor, ...]
    """R_l."""
    cells: tuple[Tensor, ...]
    """c_l."""
    errors: tuple[Tensor, ...]
    """E_l, [N, 2·C_l, H_l, W_l]."""

    def detached(self) -> PredNetState:
        """The same numbers, without the graph that made them: to carry a state over windows."""
        return PredNetState(
            *(tuple(map(Tensor.detach, part)) for part in (self.representations, self.cells, self.errors))
        )


class ConvLSTMCell(nn.Module):
    """One convolutional LSTM cell, with 3 × 3 kernels.

    Args:
        inputs: Channels it reads, those of its own state included.
        channels: Channels of its state.
        gates: Which sigmoid.
        peephole: Height and width of the cell, for weights of each of its elements; None for none.
    """

    def __init__(self, inputs: int, channels: int, gates: Gates, peephole: tuple[int, int] | None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, 4 * channels, 3, padding=1)
        self.hard = gates == "hard"
        self.peephole = nn.Parameter(torch.zeros(3, channels, *peephole)) if peephole else None

    def forward(self, seen: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """What is read [N, inputs, H, W] and the cell [N, channels, H, W] → new state and cell."""
        i, f, o, new = self.conv(seen).chunk(4, 1)
        if self.peephole is not None:
            i, f, o = (gate + cell * weight for gate, weight in zip((i, f, o), self.peephole, strict=True))
        i, f, o = (_hard_sigmoid(gate) if self.hard else torch.sigmoid(gate) for gate in (i, f, o))
        cell = f * cell + i * torch.tanh(new)
        return o * torch.tanh(cell), cell


class PredNet(nn.Module):
    """Predicts each frame before it sees it.

    Args:
        channels: Of the frames, then of each further layer; the published model for KITTI has (3, 48, 96, 192).
        gates: "hard" as published, or "plain".
        peephole: Height and width of the frames, for element-wise peepholes; None as published.

    Raises:
        ValueError: No layer, or a size that cannot be halved once a layer.

    Examples:
        >>> net = PredNet((1, 4, 8))
        >>> out = net(torch.rand(2, 5, 1, 16, 16))
        >>> out.predictions.shape, out.errors.shape
        (torch.Size([2, 5, 1, 16, 16]), torch.Size([2, 5, 3]))
    """

    def __init__(
        self,
        channels: Sequence[int] = (3, 48, 96, 192),
        *,
        gates: Gates = "hard",
        peephole: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        if not channels or min(channels) < 1:
            raise ValueError(
                f"`channels={list(channels)}` must be one positive number a layer, first that of the frames"
            )
        self.channels = tuple(channels)
        if peephole:
            self._check_size(*peephole)
        above = [*self.channels[1:], 0]
        sizes = [(peephole[0] >> layer, peephole[1] >> layer) if peephole else None for layer in range(len(channels))]
        self.cells = nn.ModuleList(
            ConvLSTMCell(3 * own + upper, own, gates, size)
            for own, upper, size in zip(self.channels, above, sizes, strict=True)
        )
        self.predict = nn.ModuleList(nn.Conv2d(own, own, 3, padding=1) for own in self.channels)
        self.target = nn.ModuleList(nn.Conv2d(2 * below, own, 3, padding=1) for below, own in pairwise(self.channels))

    def start(self, frames: Tensor) -> PredNetState:
        """The state before the first frame, zeros, for frames [N, …, C, H, W]."""
        height, width = frames.shape[-2:]
        self._check_size(height, width)
        shapes = [(frames.shape[0], own, height >> layer, width >> layer) for layer, own in enumerate(self.channels)]
        zeros = tuple(frames.new_zeros(shape) for shape in shapes)
        return PredNetState(zeros, zeros, tuple(torch.cat((zero, zero), 1) for zero in zeros))

    def step(self, frame: Tensor, state: PredNetState) -> tuple[Tensor, PredNetState]:
        """One frame [N, C, H, W]: its prediction, made before it was seen, and the new state."""
        representations, cells = list(state.representations), list(state.cells)
        for layer in reversed(range(len(self.channels))):
            seen = [state.representations[layer], state.errors[layer]]
            if layer + 1 < len(self.channels):
                seen.append(F.interpolate(representations[layer + 1], scale_factor=2.0, mode="nearest"))
            representations[layer], cells[layer] = self.cells[layer](torch.cat(seen, 1), state.cells[layer])
        predictions = [F.relu(conv(r)) for conv, r in zip(self.predict, representations, strict=True)]
        predictions[0] = predictions[0].clamp(max=1.0)
        target = frame
        errors: list[Tensor] = []
        for layer, prediction in enumerate(predictions):
            difference = prediction - target
            errors.append(torch.cat((F.relu(difference), F.relu(-difference)), 1))
            if layer < len(self.target):
                target = F.max_pool2d(F.relu(self.target[layer](errors[layer])), 2)
        return predictions[0], PredNetState(tuple(representations), tuple(cells), tuple(errors))

    def forward(self, frames: Tensor, state: PredNetState | None = None) -> PredNetOutput:
        """Frames [N, T, C, H, W] with values in [0, 1], after those that a state remembers.

        Raises:
            ValueError: Frames of another number of channels, or of a size that cannot be halved.
        """
        if frames.dim() != 5 or frames.shape[2] != self.channels[0]:
            raise ValueError(f"`frames` of shape {list(frames.shape)} must be [N, T, {self.channels[0]}, H, W]")
        state = state or self.start(frames)
        predictions: list[Tensor] = []
        errors: list[Tensor] = []
        for frame in frames.unbind(1):
            prediction, state = self.step(frame, state)
            predictions.append(prediction)
            errors.append(torch.stack([error.mean((1, 2, 3)) for error in state.errors], 1))
        return PredNetOutput(torch.stack(predictions, 1), torch.stack(errors, 1), state)

    def _check_size(self, height: int, width: int) -> None:
        factor = 1 << (len(self.channels) - 1)
        if height % factor or width % factor:
            raise ValueError(
                f"frames of {height} × {width} cannot be halved {len(self.channels) - 1} times; crop or scale them to "
                f"multiples of {factor}"
            )


@dataclass(frozen=True, slots=True)
class PredNetOutput:
    """What `PredNet` makes of a sequence."""

    predictions: Tensor
    """Â_0 of each frame, [N, T, C, H, W]."""
    errors: Tensor
    """Mean of E_l of each frame and layer, [N, T, layers]; that of layer 0 is half the mean absolute error."""
    state: PredNetState
    """After the last frame."""

    def loss(self, layers: Sequence[float] | None = None) -> Tensor:
        """The published loss Σ_t λ_t Σ_l λ_l · mean E_l, averaged over the sequences; the first frame does not count.

        Args:
            layers: λ_l; (1, 0, 0, …) when left out ("L0"); "Lall" is (1, 0.1, 0.1, …).

        Raises:
            ValueError: Fewer than two frames, or not one weight a layer.
        """
        count, depth = self.errors.shape[1:]
        if count < 2:
            raise ValueError(f"a sequence of {count} frame has no loss: the first frame cannot be predicted; give two")
        weights = [1.0] + [0.0] * (depth - 1) if layers is None else list(layers)
        if len(weights) != depth:
            raise ValueError(f"`layers={weights}` must be {depth} numbers, one a layer")
        return (self.errors[:, 1:] @ self.errors.new_tensor(weights)).mean()


def _hard_sigmoid(x: Tensor) -> Tensor:
    return (0.2 * x + 0.5).clamp(0.0, 1.0)
