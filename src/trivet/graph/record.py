"""Watches a module run: every function of torch that it calls, with where the tensors come from.

A `TorchFunctionMode` sees functions, methods and operators before they run. What it knows of a tensor stands in an
attribute of the tensor, so it lives as long as the tensor does. Views and in-place operations hand on what they change.

Not covered: functions in C++ that torch does not see pass on nothing by themselves; `Watch` sees the operators in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from trivet.graph import attention, joints, layers  # noqa: F401  (their rules register themselves)
from trivet.graph.build import Builder
from trivet.graph.rules import BY_FUNCTION, Call, Entry, entry_of, name_of, tensors_in
from trivet.graph.shapes import IN_PLACE, SHAPES, Shape, overwritten
from trivet.graph.values import CONSTANT, Value, merge

_TENSOR_GETTERS = {"T", "H", "mT", "mH", "data", "real", "imag", "grad", "_base"}
_PLAIN = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "is_floating_point", "is_complex",
    "len", "data_ptr", "element_size", "get_device", "storage_offset", "hash", "is_signed", "untyped_storage", "item",
    "tolist", "numpy", "bool", "int", "float", "index", "is_same_size", "is_nonzero", "is_view", "repr", "format",
    "get_default_dtype", "is_tensor", "is_storage", "allclose", "equal", "dir", "contains", "set_rng_state",
    "broadcast_shapes",
}  # fmt: skip
"""Functions that return no tensors, by their plain names."""
_MOVES = {"to", "cuda", "cpu", "xpu", "type", "pin_memory"}
_NO_SPACE: Mapping[str, Any] = {}


class _Known:
    """What is done about a function: looked up once for each."""

    __slots__ = ("changes", "entry", "factory", "moves", "name", "plain", "shape")

    def __init__(self, function: Any) -> None:
        raw = getattr(function, "__name__", "")
        getter = raw == "__get__"
        self.name = name_of(function)
        self.plain = self.name in _PLAIN
        if getter:
            self.plain = getattr(getattr(function, "__self__", None), "__name__", "") not in _TENSOR_GETTERS
        if raw == "__set__":
            self.plain = True
        self.entry: Entry | None = None if self.plain or getter else entry_of(function)
        replaced = self.entry is not None and self.entry is BY_FUNCTION.get(function)
        self.changes = (raw.endswith("_") and not raw.startswith("__")) or raw in ("__setitem__", "__ior__", "__iand__")
        self.changes = self.changes or (raw.startswith("__i") and raw not in ("__invert__", "__index__", "__init__"))
        self.shape: Shape | None = None if replaced or raw.startswith("__r") else SHAPES.get(self.name)
        if self.changes:
            self.shape = overwritten if self.name in IN_PLACE and not replaced else None
        self.factory = function in _device_constructors()
        self.moves = self.name in _MOVES


class Recorder(TorchFunctionMode):
    """Runs what is called inside it and tells a builder.

    Args:
        builder: Gets nodes and edges.
        copies: `id` of an original tensor → its copy: what reaches the original by a side way gets the copy.
        stack: Paths of the modules that run, innermost last.
        meta: Whether tensors have no storage.
    """

    def __init__(self, builder: Builder, copies: Mapping[int, Any], stack: list[str], *, meta: bool) -> None:
        super().__init__()
        self.builder = builder
        self.copies = copies
        self.stack = stack
        self.meta = meta
        self.busy = False
        self.unknown = False
        """Whether a tensor turned up of which nobody saw where it comes from."""
        self._transformed = False
        self._known: dict[Any, _Known] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function and note it."""
        del types
        known = self._known.get(func)
        if known is None:
            known = self._known[func] = _Known(func)
        if known.plain:
            return func(*args, **(kwargs or _NO_SPACE))
        pairs: list[tuple[torch.Tensor, Value]] = []
        if not self._collect(args, pairs) or (kwargs and not self._collect(kwargs.values(), pairs)):
            args, kwargs = self.owned(args), self.owned(kwargs)
            pairs = []
            self._collect(args, pairs)
            self._collect((kwargs or {}).values(), pairs)
        kwargs = kwargs or _NO_SPACE
        if self._transformed:  # what happens to the tensors inside is seen by `Watch` alone
            self._transformed, self.unknown = False, True
            return func(*args, **kwargs)
        output = self._run(func, known, args, kwargs)
        if pairs:
            self._note(known, args, kwargs, output, pairs)
        else:
            assign(output, CONSTANT)
        return output

    def owned(self, content: Any) -> Any:
        """The same arguments with copies in place of originals, and nothing with storage where none may be."""

        def own(tensor: torch.Tensor) -> torch.Tensor:
            found = self.copies.get(id(tensor))
            if isinstance(found, torch.Tensor):
                return found
            if self.meta and not tensor.is_meta:
                tensor = torch.empty_like(tensor, device="meta")
                assign(tensor, CONSTANT)
            return tensor

        return tree_map_only(torch.Tensor, own, content)

    def _collect(self, content: Any, pairs: list[tuple[torch.Tensor, Value]]) -> bool:
        """List the tensors that come from somewhere; False if there is one that must be replaced first."""
        for item in content:
            if isinstance(item, torch.Tensor):
                value = getattr(item, "_trivet_value", None)
                if value is None:
                    if torch._C._functorch.is_functorch_wrapped_tensor(item):  # inside `torch.vmap` and its like
                        self._transformed = True
                        continue
                    if id(item) in self.copies or (self.meta and not item.is_meta):
                        return False
                    self.unknown = True
                elif value is not CONSTANT:
                    pairs.append((item, value))
                    if value.parameters:
                        self.builder.used.update(value.parameters)
            elif isinstance(item, (list, tuple)):
                if item and not self._collect(item, pairs):
                    return False
            elif isinstance(item, dict) and not self._collect(item.values(), pairs):
                return False
        return True

    def _run(self, func: Any, known: _Known, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if not self.meta:
            return self._real(func, known, args, kwargs)
        if known.shape is not None:
            output = known.shape(*args, **kwargs)
            if output is not None:
                return output
        if known.moves and isinstance(args[0], torch.Tensor):
            return _converted(args[0], args[1:], kwargs)
        if known.factory or kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": "meta"}
        self.busy = True
        try:
            return func(*args, **kwargs)
        finally:
            self.busy = False

    def _real(self, func: Any, known: _Known, args: Any, kwargs: Mapping[str, Any]) -> Any:
        self.busy = True
        try:
            return func(*args, **kwargs)
        except ValueError:
            if func is not torch.nn.functional.batch_norm:
                raise
            # A single value per channel has no variance; here nothing depends on its being normalized.
            return torch.empty_like(args[0] if args else kwargs["input"])
        finally:
            self.busy = False

    def _note(
        self, known: _Known, args: Any, kwargs: Any, output: Any, pairs: list[tuple[torch.Tensor, Value]]
    ) -> None:
        """Find out what the output comes from."""
        entry = known.entry
        value: Value | None = None
        if entry is None and len(pairs) == 1:
            value = pairs[0][1]
        else:
            active = any(value.sources for _, value in pairs)
            if (entry is not None and (active or entry.always)) or (active and any(v.parameters for _, v in pairs)):
                stack = self.stack
                call = Call(self.builder, args, kwargs, output, stack[-1] if stack else "", pairs)
                value = entry.rule(call) if entry is not None and (active or entry.always) else None
                value = call.default() if value is None else value
            else:
                value = merge(v for _, v in pairs)
        changed = args[0] if known.changes and args else kwargs.get("out")
        if isinstance(changed, torch.Tensor):
            if output is None:  # item assignment: what is not overwritten stays
                value = merge([getattr(changed, "_trivet_value", CONSTANT), value])
                changed._trivet_value = value  # type: ignore[attr-defined]
            if changed._is_view():
                base = changed._base
                base._trivet_value = merge([getattr(base, "_trivet_value", CONSTANT), value])  # type: ignore[union-attr]
        assign(output, value)

    def note_operator(self, func: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Note an operator that ran where no function was seen."""
        pairs: list[tuple[torch.Tensor, Value]] = []
        if self._collect(args, pairs) and self._collect((kwargs or {}).values(), pairs) and pairs:
            known = self._known.get(func) or self._known.setdefault(func, _Known(func))
            if not known.plain:
                self._note(known, args, kwargs or {}, output, pairs)


class Watch(TorchDispatchMode):
    """Sees the operators inside code that shows no functions, such as compiled or scripted parts.

    Args:
        recorder: Is told of them.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and note it, unless it belongs to a function that is noted."""
        del types
        with torch._C.DisableTorchFunction():  # or the operator would be noted as a function, too
            output = func(*args, **(kwargs or {}))
        if not self.recorder.busy:
            self.recorder.note_operator(func, args, kwargs, output)
        return output


def assign(output: Any, value: Value) -> None:
    """Say of all tensors in an output where they come from."""
    if isinstance(output, torch.Tensor):
        output._trivet_value = value  # type: ignore[attr-defined]
    elif output is not None:
        for tensor in tensors_in(output):
            tensor._trivet_value = value  # type: ignore[attr-defined]


def _converted(tensor: torch.Tensor, args: Any, kwargs: Mapping[str, Any]) -> torch.Tensor:
    """A tensor without storage moved to a device, which changes its type at most."""
    kinds = [kwargs.get("dtype"), *args]
    for kind in kinds:
        if isinstance(kind, torch.dtype):
            return tensor.to(kind)
        if isinstance(kind, torch.Tensor):
            return tensor.to(kind.dtype)
        if isinstance(kind, str) and kind.startswith("torch."):
            return tensor.type(kind)
    return tensor
