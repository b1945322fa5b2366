"""Batch normalisation over the batch of all processes, on any device.

In training, with n examples and positions a channel over all ranks:

    mean = Σ x / n,   variance = Σ (x − mean)² / n,   y = (x − mean) / √(variance + ε) · weight + bias

and the running variance takes Σ (x − mean)² / (n − 1), as in `torch.nn.BatchNorm2d` over the whole batch. Sums are
added up over the ranks, forward and backward. (`torch.nn.SyncBatchNorm` does the same on GPUs alone.)

Not covered: ranks whose parts differ in size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from trivet.training.ranks import Ranks


class _AddUp(torch.autograd.Function):
    """The sum over all processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        total = value.contiguous().clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        distributed.all_reduce(total)
        return total


def share_batch_norm_(model: nn.Module, ranks: Ranks) -> None:
    """Let every batch normalisation of a model see the batch of all processes, in place.

    Names, parameters and `isinstance` stay. Does nothing for one process.

    Examples:
        >>> from trivet.training.ranks import Ranks
        >>> model = nn.Sequential(nn.BatchNorm2d(2))
        >>> share_batch_norm_(model, Ranks())
        >>> type(model[0]).__name__
        'BatchNorm2d'
    """
    if ranks.size == 1:
        return
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = _shared(type(module))
            setattr(module, "num_processes", ranks.size)  # noqa: B010 - no attribute that the class declares


@lru_cache
def _shared(kind: type[Any]) -> type[Any]:
    return type(f"Shared{kind.__name__}", (kind,), {"forward": _forward, "_plain_forward": kind.forward})


def _forward(module: Any, x: Tensor) -> Tensor:
    if not module.training:
        return module._plain_forward(x)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    count = x.numel() // x.shape[1] * module.num_processes
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = _total(wide.sum(dims)) / count
    centred = wide - mean.view(shape)
    squares = _total(centred.square().sum(dims))
    y = centred * torch.rsqrt(squares / count + module.eps).view(shape)
    if module.affine:
        y = y * module.weight.view(shape) + module.bias.view(shape)
    if module.track_running_stats:
        _remember(module, mean.detach(), squares.detach() / (count - 1))
    return y.to(x.dtype)


@torch.no_grad()
def _remember(module: Any, mean: Tensor, variance: Tensor) -> None:
    module.num_batches_tracked.add_(1)
    weight = 1 / float(module.num_batches_tracked) if module.momentum is None else module.momentum
    module.running_mean.lerp_(mean.to(module.running_mean.dtype), weight)
    module.running_var.lerp_(variance.to(module.running_var.dtype), weight)


def _total(value: Tensor) -> Tensor:
    total: Any = _AddUp.apply(value)
    return total
