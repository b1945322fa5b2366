"""The processes that share a meta-batch, started by torchrun; or one process alone.

Each process predicts and runs its part of the networks; gradients and sums are added up over all, so that every
process makes the same optimiser step. Not covered: sharded hypernetworks.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Group:
    """Which of how many processes this is.

    Examples:
        >>> Group().share(range(4)), Group(rank=1, size=2).share(range(4))
        ([0, 1, 2, 3], [1, 3])
    """

    rank: int = 0
    """Number of this process."""
    size: int = 1
    """Number of processes."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's part."""
        return list(items[self.rank :: self.size])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in one message."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def total(self, *values: float) -> list[float]:
        """Each value summed over all processes."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        if distributed.get_backend() == "nccl":
            tensor = tensor.cuda()
        distributed.all_reduce(tensor)
        return tensor.tolist()


@contextmanager
def joined(device: torch.device) -> Generator[Group]:
    """Join the processes that torchrun started; without torchrun this process is alone.

    Examples:
        >>> with joined(torch.device("cpu")) as group: group.size
        1
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Group()
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Group(rank=distributed.get_rank(), size=distributed.get_world_size())
    finally:
        distributed.destroy_process_group()
