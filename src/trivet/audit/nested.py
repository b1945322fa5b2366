"""Tensors in nested tuples, lists and dictionaries, as modules take and return them.

Not covered: other containers; what they hold is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor, in order.

    Examples:
        >>> import torch
        >>> [tensor.item() for tensor in tensors_in({"a": [torch.tensor(1)], "b": (torch.tensor(2), "x")})]
        [1, 2]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same structure with every tensor changed.

    Examples:
        >>> import torch
        >>> map_tensors(lambda tensor: tensor + 1, {"a": [torch.tensor(1)], "b": "x"})
        {'a': [tensor(2)], 'b': 'x'}
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        items = [map_tensors(change, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [map_tensors(change, item) for item in value]
    if isinstance(value, dict):
        return {name: map_tensors(change, item) for name, item in value.items()}
    return value
