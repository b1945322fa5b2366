"""What the quantized layers of one model share: how many bits each role has now, and the key of the noise.

Bits are kept twice: as a number for people and reports, and as a 0-d tensor 2^b − 1 per device for the arithmetic. The
tensors are filled in place, so a change costs nothing and `torch.compile` sees one graph for all bits. Only crossing
to and from 32 bits, where nothing is rounded at all, is a different program.

Layers whose bits differ from the rest have dials of their own, found by the pattern that names them.

Not covered: bits that differ inside one layer beyond its three roles.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch

from trivet.precision.buffers import Buffers
from trivet.precision.checks import MAX_BITS, check_bits
from trivet.precision.noise import stream_key
from trivet.training.ranks import Ranks

if TYPE_CHECKING:
    from trivet.precision.scope import ScopedForward

DEFAULT_BITS = 8
"""Bits of a quantized model that no controller has taken over."""


class Scalar:
    """A number that can change, with a 0-d tensor of it on every device that asked for one."""

    def __init__(self, value: float, dtype: torch.dtype) -> None:
        self._value = value
        self._dtype = dtype
        self._tensors: dict[torch.device, torch.Tensor] = {}

    def set(self, value: float) -> None:
        """Change the number, in place."""
        self._value = value
        for tensor in self._tensors.values():
            tensor.fill_(value)

    def on(self, device: torch.device) -> torch.Tensor:
        """The number as a 0-d tensor on a device."""
        tensor = self._tensors.get(device)
        if tensor is None:
            # A tensor made under inference mode could not be filled later outside it.
            with torch.inference_mode(False):
                tensor = torch.tensor(self._value, dtype=self._dtype, device=device)
            self._tensors[device] = tensor
        return tensor


class Dial:
    """Bits of one role.

    Examples:
        >>> dial = Dial(8)
        >>> dial.set(3)
        >>> dial.bits, dial.levels(torch.device("cpu")).item(), dial.exact
        (3, 7.0, False)
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        """Bits in force."""
        self.exact = bits >= MAX_BITS
        """Whether nothing is rounded."""
        self._levels = Scalar(2.0**bits - 1.0, torch.float32)

    def set(self, bits: int) -> None:
        """Change the bits."""
        bits = check_bits("bits", bits)
        self.bits = bits
        self.exact = bits >= MAX_BITS
        self._levels.set(2.0**bits - 1.0)

    def levels(self, device: torch.device) -> torch.Tensor:
        """2^bits − 1 as a 0-d float32 tensor, always the same object on the same device."""
        return self._levels.on(device)


class Dials:
    """The dials of a group of layers: three for training, two for evaluation, where there is no gradient."""

    def __init__(self) -> None:
        self.weight = Dial(DEFAULT_BITS)
        self.activation = Dial(DEFAULT_BITS)
        self.gradient = Dial(DEFAULT_BITS)
        self.weight_evaluation = Dial(DEFAULT_BITS)
        self.activation_evaluation = Dial(DEFAULT_BITS)

    def all(self) -> tuple[Dial, ...]:
        """Every dial."""
        return (self.weight, self.activation, self.gradient, self.weight_evaluation, self.activation_evaluation)

    def training_bits(self) -> tuple[int, int, int]:
        """Bits of weight, activation and gradient."""
        return self.weight.bits, self.activation.bits, self.gradient.bits

    def set_training(self, bits: tuple[int, int, int]) -> None:
        """Change the bits of weight, activation and gradient."""
        for dial, value in zip((self.weight, self.activation, self.gradient), bits, strict=True):
            if dial.bits != value:
                dial.set(value)

    def evaluation_bits(self) -> tuple[int, int]:
        """Bits of weight and activation in evaluation."""
        return self.weight_evaluation.bits, self.activation_evaluation.bits

    def set_evaluation(self, bits: tuple[int, int]) -> None:
        """Change the bits of evaluation."""
        self.weight_evaluation.set(bits[0])
        self.activation_evaluation.set(bits[1])


class ModelState:
    """Shared by the quantized layers of one model; copied and pickled with it."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.groups: dict[str, Dials] = {"*": Dials()}
        """Dials by the pattern of the layers they belong to; `*` is every layer without others."""
        self.execution = "simulated"
        """How low precision is executed: simulated, native or auto."""
        self.claims = 0
        """Raised when a controller takes the model over or the model is dequantized, so that older ones notice."""
        self.recording = True
        """False inside `at(bits)`: evaluation bits everywhere, nothing counted, no range updated."""
        self.counting = False
        """True while `layer_macs` runs a copy: every pass is counted."""
        self.scope: ScopedForward | None = None
        """Whose functional calls are quantized at this moment."""
        self.intercepting = False
        """Whether functional calls are being watched."""
        self.key_value = stream_key(0, 0, 0)
        """Key of the noise of this step as a number, read by eager code only."""
        self._key = Scalar(self.key_value, torch.int64)
        self.buffers = Buffers()
        """Memory that rounded activations take in turn."""
        self.ranks = Ranks()
        """The processes that see parts of one batch; ranges are taken over all."""
        self.devices = tuple(devices)
        """Devices of the layers."""
        self.prepare()

    @property
    def base(self) -> Dials:
        """Dials of every layer that has none of its own."""
        return self.groups["*"]

    def dials_for(self, *names: str) -> Dials:
        """The dials of a layer: of the last pattern that matches one of its names."""
        matching = [dials for pattern, dials in self.groups.items() if any(fnmatchcase(n, pattern) for n in names)]
        return matching[-1]

    def set_groups(self, patterns: Iterable[str]) -> None:
        """Give each pattern dials of its own, next to `*`; sites then have to look theirs up again."""
        self.groups = {"*": self.base} | {pattern: Dials() for pattern in patterns}
        self.prepare()

    def prepare(self) -> None:
        """Make the tensors of every device now rather than at first use."""
        for device in self.devices:
            for dials in self.groups.values():
                for dial in dials.all():
                    dial.levels(device)
            self._key.on(device)

    def set_key(self, seed: int, step: int, rank: int) -> None:
        """Choose the noise of a step."""
        self.key_value = stream_key(seed, step, rank)
        self._key.set(self.key_value)

    def key(self, device: torch.device) -> torch.Tensor:
        """Key of the noise of this step as a 0-d int64 tensor, for compiled code."""
        return self._key.on(device)
