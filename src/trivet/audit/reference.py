"""A window computed once more as it was meant: in float64, on copies of everything that shares memory.

Inside `Copied` every operation of torch gets copies of tensors whose memory is not torch's own, taken at that moment,
so that a buffer which is filled again later keeps its old contents in the graph. With `double=True` it also gets
float64 for each narrower floating-point tensor, whatever the code asks for, and random numbers are still drawn as
float32, so that masks and noise are those of the narrower run.

Not covered: operations inside one call of torch that draw random numbers of their own (an LSTM's dropout, attention's);
their masks are those of float64. Writes in place to a narrower tensor stay narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

NARROW = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
"""Types that are replaced, and by which."""

_TO_NARROW = {"float", "half", "bfloat16"}
_DRAWN = {"rand", "randn", "rand_like", "randn_like"}
_DRAWN_IN_PLACE = {"normal_", "uniform_", "bernoulli_", "exponential_", "trunc_normal_"}
_DROPPED = {"dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout"}
_UNTOUCHED = {
    "__get__", "__set__", "__delete__", "backward", "numpy", "detach", "data_ptr", "untyped_storage", "size", "stride",
    "view", "view_as", "reshape", "flatten", "unflatten", "__getitem__", "select", "narrow", "unsqueeze", "squeeze",
    "transpose", "permute", "movedim", "t", "expand", "expand_as", "chunk", "split", "unbind",
}  # fmt: skip
"""Attributes and views: what they give is copied by the operation that computes with it."""


class Copied(TorchFunctionMode):
    """Copies for every operation inside the `with` block; see the module.

    Args:
        double: Also compute in float64.

    Examples:
        >>> import numpy as np
        >>> buffer = np.ones(2, np.float32)
        >>> weight = torch.ones(2, requires_grad=True)
        >>> with Copied(double=True):
        ...     out = (torch.from_numpy(buffer) * weight).sum()
        ...     buffer[:] = 7
        ...     out.backward()
        >>> out.dtype, weight.grad.tolist()
        (torch.float64, [1.0, 1.0])
    """

    def __init__(self, *, double: bool) -> None:
        super().__init__()
        self.double = double

    def __enter__(self) -> Copied:
        hook: Any = self._enter_module  # what it returns replaces the inputs
        self._handle = register_module_forward_pre_hook(hook)
        self._default = torch.get_default_dtype()
        if self.double:
            torch.set_default_dtype(torch.float64)
        super().__enter__()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        torch.set_default_dtype(self._default)
        self._handle.remove()

    def _enter_module(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Modules may look at the type of what they are given."""
        return tree_map(self._given, inputs)

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operation with copies."""
        named = dict(kwargs or {})
        name = str(getattr(func, "__name__", ""))
        if name in _UNTOUCHED:
            return func(*args, **named)
        kept = 1 if _is_in_place(name) else 0
        out = named.pop("out", None)
        args = (*args[:kept], *tree_map(self._given, args[kept:]))
        named = tree_map(self._given, named)
        if out is not None:
            named["out"] = out
        return self._double(func, name, args, named) if self.double else func(*args, **named)

    def _given(self, value: Any) -> Any:
        """What an operation gets in place of `value`."""
        if self.double and isinstance(value, torch.dtype):
            return NARROW.get(value, value)
        if not isinstance(value, Tensor):
            return value
        if self.double and value.dtype in NARROW:
            return value.to(NARROW[value.dtype])
        return value.clone() if shares_memory(value) else value

    def _double(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name in _TO_NARROW and args and isinstance(args[0], Tensor):
            return args[0]
        if name in _DRAWN:
            return func(*args, **{**named, "dtype": torch.float32}).double()
        if name == "bernoulli" and args:
            return func(args[0].float(), *args[1:], **named).double()
        if name in _DRAWN_IN_PLACE and args and args[0].is_floating_point():
            with torch.no_grad():
                args[0].copy_(func(torch.empty_like(args[0], dtype=torch.float32), *args[1:], **named))
            return args[0]
        if name in _DROPPED:
            value, *rest = args or (named.pop("input"),)
            return value * func(torch.ones_like(value, dtype=torch.float32), *rest, **named).double()
        return func(*args, **named)


def shares_memory(tensor: Tensor) -> bool:
    """Whether the memory is not torch's own: numpy's, a memory map's, another process's.

    Examples:
        >>> import numpy as np
        >>> shares_memory(torch.from_numpy(np.ones(3))), shares_memory(torch.ones(3))
        (True, False)
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        return False
    return not tensor.untyped_storage().resizable()


def _is_in_place(name: str) -> bool:
    is_plain = name.endswith("_") and not name.endswith("__")
    return is_plain or name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__"))
