"""Memory for large rounded tensors in eager code on a CPU: used again, or rounded in place, where nobody else can tell.

Writing into memory that is fresh from the operating system costs several times writing into memory in use. A rounded
activation therefore takes memory that an earlier one no longer needs, and a gradient that only this layer will ever see
is rounded where it lies. Both are decided by counting references, never by assumption: memory with any other owner (a
tensor saved for a backward pass, a hook that kept a gradient, a view, a numpy array) is left alone.

The memory stays with the model until it is used again or the model goes; at most as much as the rounded activations of
one training step take anyway. Copies of a model start without any.

Not covered: devices other than the CPU, whose allocators keep memory themselves; use of one model by several threads
at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from trivet.precision.layout import in_memory_order

SMALLEST = 2**18
"""Bytes from which memory is kept; smaller pieces come fast enough from the allocator."""

_LARGEST_LIMIT = 31 * 2**20
"""Bytes: just below the largest limit that the GNU allocator sets itself."""


class Buffers:
    """Memory that rounded activations of one model take in turn.

    Examples:
        >>> buffers, x = Buffers(), torch.zeros(2**17)
        >>> first = buffers.like(x)
        >>> other, place = buffers.like(x), first.data_ptr()
        >>> other.data_ptr() == place
        False
        >>> del first
        >>> buffers.like(x).data_ptr() == place
        True
    """

    def __init__(self) -> None:
        self._kept: list[torch.UntypedStorage] = []

    def like(self, x: torch.Tensor) -> torch.Tensor:
        """An uninitialized tensor with the shape, dtype and layout of another, nobody else's."""
        size = x.numel() * x.element_size()
        if size < SMALLEST or x.device.type != "cpu" or is_subclass(x) or not in_memory_order(x).is_contiguous():
            return torch.empty_like(x)
        idle = [storage for storage in self._kept if _owners(storage) == 1]
        fitting = [storage for storage in idle if storage.nbytes() >= size]
        if fitting:
            storage = min(fitting, key=_bytes)
        else:
            if idle:  # all too small: one of them makes room for its successor
                largest = max(idle, key=_bytes)
                self._kept = [storage for storage in self._kept if storage is not largest]
            keep_freed_memory()
            storage = torch.UntypedStorage(size)
            self._kept.append(storage)
        return x.new_empty(0).set_(storage, 0, x.shape, x.stride())

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        return Buffers, ()


def is_subclass(x: torch.Tensor) -> bool:
    """Whether a tensor is more than memory with a shape, such as the part of a tensor that several processes share.

    Examples:
        >>> is_subclass(torch.nn.Parameter(torch.zeros(2)))
        False
    """
    return type(x) not in (torch.Tensor, torch.nn.Parameter)


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Make the allocator keep what a training step frees for the next step, rather than give it back each time.

    The GNU allocator raises its limits to the size of the first large piece that is freed; this frees one, untouched.
    Without that, each step of a model of middling size takes fresh memory for its activations, quantized or not.

    Examples:
        >>> keep_freed_memory()
    """
    torch.UntypedStorage(_LARGEST_LIMIT)


def is_unshared(grad: torch.Tensor, references: int) -> bool:
    """Whether a gradient inside a backward pass can be changed in place without anybody noticing.

    Args:
        grad: As the backward of a function decorated with `once_differentiable` got it.
        references: What `sys.getrefcount` said of it there right after `grad = grads[0]`.
    """
    if grad.device.type != "cpu" or not _is_ordinary(grad):
        return False
    limits = unshared_counts()
    return limits is not None and references <= limits[0] and _counts(grad) <= limits[1]


def _is_ordinary(grad: torch.Tensor) -> bool:
    return (
        not is_subclass(grad)
        and grad.layout == torch.strided
        and not grad.requires_grad
        and not grad.is_inference()
        and in_memory_order(grad).is_contiguous()
        and grad.untyped_storage().resizable()  # memory of numpy and other libraries is not
    )


@lru_cache(maxsize=1)
def unshared_counts() -> tuple[int, tuple[int, int]] | None:
    """References of a gradient that nobody shares, found by looking at one; None when torch does not tell them.

    Examples:
        >>> unshared_counts() == unshared_counts()
        True
    """
    if not (hasattr(torch.Tensor, "_use_count") and hasattr(torch._C, "_storage_Use_Count")):
        return None
    found: list[tuple[int, tuple[int, int]]] = []
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(2, requires_grad=True)
        _Look.apply(x * 2, found.append).exp().sum().backward()
    return found[0]


class _Look(torch.autograd.Function):
    """Counts the references of its gradient, which is fresh from the backward pass of an exponential."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, tell: Callable[[Any], None]) -> torch.Tensor:  # pyrefly: ignore[bad-override]
        ctx.tell = tell
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:  # pyrefly: ignore[bad-override]
        grad = grads[0]
        references = sys.getrefcount(grad)
        ctx.tell((references, _counts(grad)))
        return grad, None


def _counts(grad: torch.Tensor) -> tuple[int, int]:
    """Owners of the tensor and of its memory."""
    return grad._use_count(), _owners(grad.untyped_storage())  # pyrefly: ignore[missing-attribute]


def _owners(storage: torch.UntypedStorage) -> int:
    return torch._C._storage_Use_Count(storage._cdata)


def _bytes(storage: torch.UntypedStorage) -> int:
    return storage.nbytes()
