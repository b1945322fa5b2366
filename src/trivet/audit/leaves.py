"""Two results compared bit by bit: the first value that differs, where it is and by how much.

A result is anything made of tensors, arrays, numbers, text, modules, mappings, sequences and dataclasses.
Floating-point values are compared by their bits: -0.0 and 0.0 differ, a NaN equals itself.

Not covered: objects of other classes, which are compared by `==` and else by their text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.audit.checksum import flat_bytes

Leaf = tuple[str, Any]
"""Path in the result, and a tensor on the CPU or a plain value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first value that differs."""

    where: str
    """Its path, such as `weights[0.bias]`."""
    size: str
    """By how much."""


def leaves(value: Any, path: str = "") -> Iterator[Leaf]:
    """The values that a result is made of, in order; tensors are copied.

    Examples:
        >>> [name for name, _ in leaves({"loss": [1.0, 2.0], "model": nn.Linear(1, 1)})]
        ['loss[0]', 'loss[1]', 'model.weight', 'model.bias']
    """
    if isinstance(value, nn.Module):
        value = value.state_dict()
        for name, tensor in value.items():
            yield from leaves(tensor, f"{path}.{name}" if path else name)
    elif isinstance(value, Tensor):
        yield path, value.detach().to_dense().cpu().contiguous().clone()
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        yield path, torch.from_numpy(np.array(value))
    elif isinstance(value, float):
        yield path, torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from leaves(item, _joined(path, str(name)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), _joined(path, field.name))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}[{place}]")
    else:
        yield path, value if isinstance(value, (int, str, bytes, bool, type(None))) else repr(value)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def first_difference(a: list[Leaf], b: list[Leaf]) -> Difference | None:
    """The first value of two results that differs.

    Examples:
        >>> first_difference(list(leaves([1, 0.0])), list(leaves([1, -0.0])))
        Difference(where='[1]', size='1 of 1 element')
    """
    for (name, one), (other_name, other) in zip(a, b, strict=False):
        if name != other_name:
            return Difference(where=name, size=f"the second run has {other_name!r} in its place")
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            size = tensor_difference(one, other)
        else:
            size = "" if type(one) is type(other) and one == other else f"{one!r} and {other!r}"
        if size:
            return Difference(where=name or "the result", size=size)
    if len(a) != len(b):
        longer = a if len(a) > len(b) else b
        return Difference(where=longer[min(len(a), len(b))][0], size=f"{len(a)} values and {len(b)}")
    return None


def tensor_difference(one: Tensor, other: Tensor) -> str:
    """How far two tensors differ, "" when all bits are equal.

    Examples:
        >>> tensor_difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
        '1 of 2 elements, relative L2 0.22'
    """
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{_kind(one)} and {_kind(other)}"
    old, new = flat_bytes(one), flat_bytes(other)
    if torch.equal(old, new):
        return ""
    width = one.element_size()
    changed = int((old.view(-1, width) != new.view(-1, width)).any(1).sum())
    text = f"{changed:,} of {one.numel():,} element{'s' * (one.numel() != 1)}"
    if not one.is_floating_point():
        return text
    norm = one.double().norm().item()
    distance = (other.double() - one.double()).norm().item()
    return f"{text}, relative L2 {distance / norm:.2g}" if norm else text


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
