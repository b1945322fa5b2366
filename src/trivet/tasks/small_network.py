"""A small network trained for a moment under one setting of the machine: what `trivet doctor` measures with.

Two 3×3 convolutions and two linear layers, 105,866 parameters, on the embedded images shrunk to 14×14, batches of 32,
Adam at 1e-3. Initial weights, order and images are made by numpy from integers, so they are the same bits under every
setting; what differs afterwards was computed otherwise.

Not covered: large networks, where more sums are cut into more parts; normalization layers.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.audit.noise import Noise
from trivet.audit.noise_config import NoiseConfig
from trivet.audit.settings import Setting
from trivet.audit.trace import weight_checksum
from trivet.core.config import build
from trivet.core.environment import EnvironmentConfig
from trivet.core.seeding import derive
from trivet.tasks.data import ImageData, load_images
from trivet.training.environment import Realised, apply_environment
from trivet.training.layout import to_channels_last

BATCH = 32
SIDE = 14
CHANGES = ("switch", "optimizer", "channels_last", "accumulate", "compile", "dtype", "autocast", "nudge", "seed")
"""What `Setting.change` may name."""


def small_network(seed: int = 0) -> nn.Sequential:
    """The network; each weight uniform within one over the square root of what one output sums.

    Examples:
        >>> sum(parameter.numel() for parameter in small_network().parameters())
        105866
    """
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (SIDE // 2) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    draws = np.random.Generator(np.random.PCG64(derive(seed, "doctor", "init")))
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                bound = layer.weight[0].numel() ** -0.5
                for parameter in layer.parameters():
                    values = draws.uniform(-bound, bound, tuple(parameter.shape))
                    parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return net


def shrunk(images: np.ndarray) -> np.ndarray:
    """Means of 2×2 pixels, from -0.5 to 0.5: uint8 [N, 1, 28, 28] → float32 [N, 1, 14, 14].

    Examples:
        >>> shrunk(np.full((1, 1, 28, 28), 255, np.uint8))[0, 0, 0, 0]
        np.float32(0.5)
    """
    sums = images.reshape(len(images), 1, SIDE, 2, SIDE, 2).sum((3, 5), dtype=np.int64)
    return (sums.astype(np.float64) / 1020.0 - 0.5).astype(np.float32)


@functools.cache
def embedded_images() -> ImageData:
    """The part of Fashion-MNIST inside the package."""
    return load_images("fashion-mnist")


def trained(setting: Setting, *, steps: int, keep: Sequence[int]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Train under one setting, in a process whose variables are set already.

    Args:
        setting: What is changed.
        steps: How many.
        keep: Steps after which the weights are kept; the start is always.

    Returns:
        `checksums`, `losses`, `accuracy`, `not_realised` (setting → why), `evidence`; and the arrays, by name:
        `predictions`, and the weights by their step.

    Raises:
        ValueError: `setting.change` names something unknown.
    """
    unknown = set(setting.change) - set(CHANGES)
    if unknown:
        raise ValueError(f"`change` names {sorted(unknown)}; allowed: {', '.join(CHANGES)}")
    realised = apply_environment(build(EnvironmentConfig, {"device": "cpu", **setting.environment}))
    run = _Run(setting, realised, keep)
    for step in range(steps):
        run.step(step)
    accuracy, predictions = run.evaluated()
    answer = {
        "checksums": run.checksums,
        "losses": run.losses,
        "accuracy": accuracy,
        "not_realised": run.not_realised(),
        "evidence": dict(realised.evidence),
    }
    return answer, {"predictions": predictions, **{str(step): weights for step, weights in run.weights.items()}}


class _Run:
    """One training."""

    def __init__(self, setting: Setting, realised: Realised, keep: Sequence[int]) -> None:
        self.setting, self.realised, self.change = setting, realised, setting.change
        self.keep = frozenset(keep)
        self.device = torch.device(realised.device)
        self.dtype = torch.float64 if self.change.get("dtype") == "float64" else torch.float32
        self.switched = self._switch(self.change.get("switch", ""))
        seed = int(self.change.get("seed", 0))
        self.net = small_network(seed).to(self.device, self.dtype)
        self._load_images(seed)
        self.nudged = self._nudge() if self.change.get("nudge") else -1
        if self.change.get("channels_last"):
            to_channels_last(self.net, self.device)
        kind = self.change.get("optimizer", "")
        self.optimizer = torch.optim.Adam(
            self.net.parameters(),
            lr=1e-3,
            foreach=kind == "foreach",
            fused=True if kind == "fused" else None,
        )
        self.noise = Noise(self.net, build(NoiseConfig, dict(setting.noise)), seed=0)
        self.forward: Any = torch.compile(self.net) if self.change.get("compile") else self.net
        self.losses: list[str] = []
        self.checksums = [self._checksum()]
        self.weights = {0: _flat(self.net)}

    @torch.no_grad()
    def _nudge(self) -> int:
        """Move the largest weight of the first layer by one unit in the last place; its place."""
        weights = next(self.net.parameters()).view(-1)
        place = int(weights.abs().argmax())
        weights[place] = torch.nextafter(weights[place], torch.full_like(weights[place], torch.inf))
        return place

    def _switch(self, name: str) -> bool:
        """Whether the library says that it did what it was asked."""
        if name == "nnpack off":
            torch.backends.nnpack.set_flags(False)
            return torch.backends.nnpack.set_flags(False) == (False,)
        return torch.set_flush_denormal(True) if name == "flush denormals" else True

    def _load_images(self, seed: int) -> None:
        data = embedded_images()
        order = np.random.Generator(np.random.PCG64(derive(seed, "doctor", "order")))
        self.order = order.permutation(len(data.train_labels))
        self.images, self.labels = data.train_images, data.train_labels
        self.test_images, self.test_labels = shrunk(data.test_images), data.test_labels

    def _placed(self, images: np.ndarray) -> Tensor:
        layout = torch.channels_last if self.change.get("channels_last") else torch.contiguous_format
        return torch.from_numpy(images).to(self.device, self.dtype).contiguous(memory_format=layout)

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bool(self.change.get("autocast")))

    def step(self, step: int) -> None:
        """One update."""
        places = self.order[np.arange(step * BATCH, (step + 1) * BATCH) % len(self.order)]
        images = self._placed(shrunk(self.images[places]))
        labels = torch.from_numpy(self.labels[places]).to(self.device)
        parts = int(self.change.get("accumulate", 1))
        self.optimizer.zero_grad()
        total = torch.zeros((), dtype=self.dtype, device=self.device)
        for some, answers in zip(images.chunk(parts), labels.chunk(parts), strict=True):
            with self._autocast():
                loss = F.cross_entropy(self.forward(some), answers) / parts
            loss.backward()
            total += loss.detach()
        self.optimizer.step()
        self.noise.step()
        self.losses.append(float(total.float()).hex())
        self.checksums.append(self._checksum())
        if step + 1 in self.keep:
            self.weights[step + 1] = _flat(self.net)

    def _checksum(self) -> str:
        """Of the weights as float32, so that it can be equal across precisions."""
        return weight_checksum(self.net if self.dtype == torch.float32 else copy.deepcopy(self.net).float())

    @torch.no_grad()
    def evaluated(self) -> tuple[float, np.ndarray]:
        """Accuracy on the test images, and the class of each."""
        with self._autocast():
            logits = [self.net(self._placed(part)) for part in np.array_split(self.test_images, 8)]
        predictions = torch.cat(logits).argmax(1).cpu().numpy()
        return float((predictions == self.test_labels).mean()), predictions

    def not_realised(self) -> dict[str, str]:
        """What was asked for and is different, each with what was seen instead."""
        asked = {**self.setting.environment}
        found = {name: f"asked {asked[name]}, got {self.realised.settings[name]}" for name in self._missed()}
        if self.setting.variables.get("MKL_CBWR") == "AUTO" and self.realised.settings["mkl_cbwr"] != "AUTO":
            found["MKL_CBWR"] = self.realised.evidence["mkl_cbwr"]
        found.update({name: "not so" for name, is_real in self._probes() if not is_real})
        return found

    def _missed(self) -> Iterator[str]:
        yield from (name for name in self.realised.not_realised if name in self.setting.environment)

    def _probes(self) -> Iterator[tuple[str, bool]]:
        """Each change inside the process, and whether it is real."""
        change = self.change
        with torch.no_grad(), self._autocast():
            seen = self.net[:3](self._placed(self.test_images[:2]))
        if "switch" in change:
            yield change["switch"], self.switched
        if "optimizer" in change:
            yield f"Adam {change['optimizer']}", bool(self.optimizer.param_groups[0][change["optimizer"]])
        if change.get("channels_last"):
            yield "channels last", seen.is_contiguous(memory_format=torch.channels_last)
        if change.get("compile"):
            yield "compiled", torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
        if "dtype" in change:
            yield change["dtype"], seen.dtype == torch.float64
        if change.get("autocast"):
            yield "bfloat16", seen.dtype == torch.bfloat16
        if change.get("nudge"):  # Adam moves every weight that has a gradient
            yield "one live weight", self.weights[0][self.nudged] != self.weights[max(self.weights)][self.nudged]


def _flat(net: nn.Module) -> np.ndarray:
    """All weights as one float64 vector, whatever their layout in memory."""
    return np.concatenate([parameter.detach().cpu().double().numpy().ravel() for parameter in net.parameters()])


def as_setting(content: Mapping[str, Any]) -> Setting:
    """A setting from its plain values."""
    return Setting(**content)
