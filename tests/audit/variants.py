"""Fifty random training windows with a planted fault: a host buffer that is filled again before backward."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

SHARING = ("from_numpy", "as_tensor", "asarray", "dlpack", "frombuffer", "memmap", "loader", "own memory")
"""Ways in which a tensor shares memory with a buffer."""

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": F.huber_loss,
    "smooth l1": F.smooth_l1_loss,
    "poisson": F.poisson_nll_loss,
    "bce": F.binary_cross_entropy_with_logits,
    "product": lambda out, target: (out * target).mean(),
}
OVERWRITES = ("all", "half", "one element", "last bit")


class Recurrent(nn.Module):
    """A cell whose state is carried over the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out, self.state = nn.GRUCell(8, 6), nn.Linear(6, 8), None

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.cell(x, self.state)
        return self.out(self.state)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(8, 8),
    "mlp": lambda: nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 8)),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 3, padding=1), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 2, 1),
        nn.Flatten(),
    ),
    "recurrent": Recurrent,
    "norm": lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), nn.Flatten()
    ),
}  # fmt: skip


@dataclass
class Variant:
    """One window."""

    sharing: str
    model: str
    loss: str
    overwrite: str
    frames: int
    batch: int
    dtype: torch.dtype
    seed: int
    target_only: bool
    """The inputs are copied, only the targets share memory."""

    def run(self, folder: Path, *, copies: bool, window: Callable[[nn.Module], Any]) -> list[Tensor]:
        """Gradients of one window, computed inside what `window` returns for the model."""
        torch.manual_seed(self.seed)
        model = MODELS[self.model]().to(self.dtype)
        frames = self.frames_of()
        folder.mkdir(exist_ok=True)
        total: Any = 0.0
        with window(model):
            for x in shared(self.sharing, frames, folder):
                target = x.clone() if copies else x
                source = x.clone() if copies or self.target_only else x
                total = total + LOSSES[self.loss](model(source), target)
            total.backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    def frames_of(self) -> list[np.ndarray[Any, Any]]:
        """The frames; each differs from the one before as `overwrite` says."""
        draw = np.random.default_rng(self.seed)
        kind = np.float64 if self.dtype == torch.float64 else np.float32
        frames = [draw.uniform(0.2, 0.9, (self.batch, 8)).astype(kind)]
        while len(frames) < self.frames:
            frame = frames[-1].copy()
            flat = frame.reshape(-1)
            if self.overwrite == "all":
                flat[:] = draw.uniform(0.2, 0.9, flat.size)
            elif self.overwrite == "half":
                flat[: flat.size // 2] = draw.uniform(0.2, 0.9, flat.size // 2)
            elif self.overwrite == "one element":
                flat[draw.integers(flat.size)] += 0.1
            else:
                place = draw.integers(flat.size)
                flat[place] = np.nextafter(flat[place], kind(2))
            frames.append(frame)
        return frames


def draw_variant(seed: int) -> Variant:
    """A variant at random; every way of sharing, model and loss occurs among 50 consecutive seeds."""
    draw = random.Random(seed)
    loss = list(LOSSES)[seed % len(LOSSES)]
    model = draw.choice(list(MODELS))
    if model == "attention" and loss == "l1":
        model = "norm"  # attention copies its input and l1_loss keeps the difference: nothing would be shared
    return Variant(
        sharing=SHARING[seed % len(SHARING)],
        model=model,
        loss=loss,
        overwrite=OVERWRITES[(seed // 2) % len(OVERWRITES)],
        frames=draw.randint(2, 6),
        batch=draw.randint(2, 5),
        dtype=draw.choice([torch.float32, torch.float64]),
        seed=seed,
        target_only=loss != "l1" and draw.random() < 0.3,  # l1_loss keeps the difference, not the target
    )


def shared(sharing: str, frames: list[np.ndarray[Any, Any]], folder: Path) -> Iterator[Tensor]:
    """The frames, all in one buffer."""
    if sharing == "loader":
        yield from _loader(frames)
        return
    if sharing == "own memory":  # of torch, lent to numpy
        tensor = torch.empty(frames[0].shape, dtype=torch.from_numpy(frames[0]).dtype)
        buffer, view = tensor.numpy(), tensor
    elif sharing == "memmap":
        buffer = np.memmap(folder / "frames.bin", dtype=frames[0].dtype, mode="w+", shape=frames[0].shape)
        view = torch.from_numpy(buffer)
    elif sharing == "frombuffer":
        raw = bytearray(frames[0].nbytes)
        buffer = np.frombuffer(raw, dtype=frames[0].dtype).reshape(frames[0].shape)
        view = torch.frombuffer(raw, dtype=torch.from_numpy(frames[0]).dtype).view(frames[0].shape)
    else:
        buffer = np.empty_like(frames[0])
        make = {"from_numpy": torch.from_numpy, "as_tensor": torch.as_tensor, "asarray": torch.asarray}
        view = make.get(sharing, torch.from_dlpack)(buffer)
    for frame in frames:
        buffer[...] = frame
        yield view


def _loader(frames: list[np.ndarray[Any, Any]]) -> Iterable[Tensor]:
    """A loader whose collate function fills one buffer."""
    buffer = np.empty_like(frames[0])

    def collate(items: list[np.ndarray[Any, Any]]) -> Tensor:
        np.stack(items, out=buffer)
        return torch.from_numpy(buffer)

    return DataLoader(list(np.concatenate(frames)), batch_size=len(frames[0]), collate_fn=collate)  # type: ignore[arg-type]
