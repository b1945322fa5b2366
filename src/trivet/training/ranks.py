"""The processes that share one training run, as torchrun starts them; or one process alone.

Each process takes an equal part of every batch, in order: rank r of N the examples [r·B/N, (r+1)·B/N). Losses are means
over equal parts, so the mean over the ranks of their gradients is the gradient of the whole batch, and a run of N
processes takes the same steps as a run of one, up to the order of sums. The first process alone writes and evaluates.

`ddp`: every process holds the whole model (DistributedDataParallel). `fsdp2`: parameters, gradients and the state of
the optimiser lie in parts (`fully_shard`); then all processes evaluate, because a forward pass needs all of them.

Not covered: batches that cannot be cut into equal parts, tensor and pipeline parallelism, dropout that is the same for
one process and for N (each rank draws its own).
"""

from __future__ import annotations

import datetime
import inspect
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, distributed, nn

STRATEGY_VARIABLE = "TRIVET_STRATEGY"
"""Environment variable that says how the processes share the model."""

PATIENCE = datetime.timedelta(hours=24)
"""How long the others wait while the first process evaluates or writes."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of how many processes this is.

    Examples:
        >>> Ranks().part(torch.arange(4)).tolist(), Ranks(rank=1, size=2).part(torch.arange(4)).tolist()
        ([0, 1, 2, 3], [2, 3])
    """

    rank: int = 0
    """Number of this process."""
    size: int = 1
    """Number of processes."""
    strategy: Literal["ddp", "fsdp2"] = "ddp"
    """How they share the model."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    @property
    def is_sharded(self) -> bool:
        """Whether no process holds the whole model."""
        return self.size > 1 and self.strategy == "fsdp2"

    @property
    def evaluates(self) -> bool:
        """Whether this process takes part in evaluations."""
        return self.is_first or self.is_sharded

    def part(self, tensor: Tensor, dim: int = 0) -> Tensor:
        """This process's part of what belongs to a whole batch.

        Raises:
            ValueError: It cannot be cut into equal parts.
        """
        if self.size == 1:
            return tensor
        length = tensor.shape[dim]
        if length % self.size:
            raise ValueError(f"a batch of {length} cannot be cut into {self.size} equal parts; use a multiple of that")
        return tensor.narrow(dim, self.rank * (length // self.size), length // self.size)

    def whole(self, tensor: Tensor, dim: int = 0) -> Tensor:
        """The parts of all processes, put together again; every process must call it."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor.contiguous()) for _ in range(self.size)]
        distributed.all_gather(parts, tensor.contiguous())
        return torch.cat(parts, dim)

    def mean(self, values: Tensor) -> Tensor:
        """Each value's mean over all processes."""
        if self.size > 1:
            values = values.clone()
            distributed.all_reduce(values)
            values /= self.size
        return values

    def widest(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest lower and the largest upper bound over all processes; a NaN anywhere stays one."""
        if self.size == 1:
            return low, high
        both = torch.stack((-low, high))
        bad = torch.isnan(both)
        both = torch.stack((both.masked_fill(bad, torch.inf), bad.to(both.dtype)))
        distributed.all_reduce(both, distributed.ReduceOp.MAX)
        found = torch.where(both[1] > 0, torch.nan, both[0])
        return -found[0], found[1]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.size == 1:
            return flag
        found = torch.tensor([float(flag)])
        distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return bool(found.item())

    def from_first(self, value: Any) -> Any:
        """What the first process gives, in every process."""
        if self.size == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def all_of(self, value: Any) -> list[Any]:
        """What each process gives, by rank."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value)
        return found

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is trained: batch normalisation over the whole batch, gradients added up.

        With `fsdp2` the model's own parameters are cut in place, so make the optimiser afterwards.
        """
        if self.size == 1:
            return model
        from trivet.training.batchnorm import share_batch_norm_

        share_batch_norm_(model, self)
        if self.strategy == "ddp":
            whole = nn.parallel.DistributedDataParallel
            name = "forward_sync_buffers"  # as it is called since torch 2.14; buffers are equal anyway
            off: Any = {name if name in inspect.signature(whole.__init__).parameters else "broadcast_buffers": False}
            return whole(model, **off)
        from torch.distributed.fsdp import fully_shard

        for child in model.children():
            if any(parameter.requires_grad for parameter in child.parameters()):
                fully_shard(child)
        return cast("nn.Module", fully_shard(model))


_current: list[Ranks] = [Ranks()]


def current() -> Ranks:
    """The processes that this one has joined; itself alone outside `joined`.

    Examples:
        >>> current().size
        1
    """
    return _current[-1]


def expected() -> int:
    """How many processes torchrun has started, this one included.

    Examples:
        >>> expected() >= 1
        True
    """
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined(device: torch.device) -> Generator[Ranks]:
    """Join the processes that torchrun started; without torchrun this process is alone.

    Args:
        device: On `cuda`, this process takes the GPU of its local rank.

    Examples:
        >>> with joined(torch.device("cpu")) as ranks: ranks.size
        1
    """
    if expected() == 1:
        yield Ranks()
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    strategy = cast("Literal['ddp', 'fsdp2']", os.environ.get(STRATEGY_VARIABLE, "ddp"))
    _current.append(Ranks(distributed.get_rank(), distributed.get_world_size(), strategy))
    try:
        yield _current[-1]
    finally:
        _current.pop()
        distributed.destroy_process_group()


def own_part(*tensors: Tensor) -> Sequence[Tensor]:
    """This process's part of each tensor of a batch, cut along the first dimension."""
    return [current().part(tensor) for tensor in tensors]
